"""`python -m supervisor`: the command line."""

from supervisor.command import main

main()
