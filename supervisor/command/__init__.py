"""The command line `supervisor`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of the distribution."""
    from supervisor.command.app import app

    app()
