"""Fake CLIs with one fault each, and what the supervisor must make of them.

They are real subprocesses, so what passes here holds on this machine. `supervisor selftest` runs them
all; in a test suite:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_faults(check):
        trio.run(run_check, check, read_stream("codex"))
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from supervisor.faults.bench import BOUND, CheckError, Workbench
from supervisor.faults.checks import CHECKS, Check
from supervisor.faults.stream import Stream, read_stream, scripted, stream_names
from supervisor.model.errors import SupervisorError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CHECKS",
    "Check",
    "CheckError",
    "Stream",
    "read_stream",
    "run_check",
    "scripted",
    "stream_names",
]


async def run_check(check: Check, stream: Stream, options: Mapping[str, Any] | None = None) -> None:
    """Run one check in a folder of its own, and look for what it left behind.

    Args:
        check: one of CHECKS.
        stream: the dialect that the scripted CLI speaks.
        options: further arguments for each Supervisor.

    Raises:
        CheckError: what must not be.
    """
    with tempfile.TemporaryDirectory(prefix="supervisor-check-") as folder:
        bench = Workbench(stream=stream, folder=Path(folder), options=options or {})
        with trio.move_on_after(BOUND) as scope:
            try:
                await check.work(bench)
            except SupervisorError as error:
                raise CheckError(f"it raised {error.code}: {error.message}") from error
            bench.require_clean()
        if scope.cancelled_caught:
            raise CheckError(f"it did not end within {BOUND:g} s")
