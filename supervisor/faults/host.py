"""A program that runs one request and is there to be killed: `python -m supervisor.faults.host`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import trio

from supervisor.model.request import Request
from supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from supervisor.process.start import Containment


async def main(provider: str, state_dir: str, mode: Containment, program: list[str]) -> None:
    """Run the program once."""
    async with Supervisor(
        programs={provider: program}, state_dir=state_dir, containment=mode
    ) as supervisor:
        await supervisor.run(Request(provider=provider, prompt="x", billing="any"))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], cast("Containment", sys.argv[3]), sys.argv[4:])
