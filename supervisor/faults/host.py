"""A program that runs one request and is there to be killed: `python -m supervisor.faults.host`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, cast

import trio

from supervisor.model.request import Request
from supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from supervisor.process.start import Containment


async def main(
    provider: str, state_dir: str, mode: Containment, variables: str, program: list[str]
) -> None:
    """Run the program once, with variables given as a JSON object."""
    async with Supervisor(
        programs={provider: program},
        variables={provider: json.loads(variables)},
        state_dir=state_dir,
        containment=mode,
    ) as supervisor:
        await supervisor.run(Request(provider=provider, prompt="x", billing="any"))


if __name__ == "__main__":
    provider, state_dir, mode, variables, *program = sys.argv[1:]
    trio.run(main, provider, state_dir, cast("Containment", mode), variables, program)
