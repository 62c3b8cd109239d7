"""A program that runs one request and is there to be killed: `python -m supervisor.faults.host`."""

from __future__ import annotations

import sys

import trio

from supervisor.model.request import Request
from supervisor.supervisor import Supervisor


async def main(provider: str, state_dir: str, program: list[str]) -> None:
    """Run the program once."""
    async with Supervisor(programs={provider: program}, state_dir=state_dir) as supervisor:
        await supervisor.run(Request(provider=provider, prompt="x", billing="any"))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])
