"""The fault kit, on this machine and for every dialect."""

from __future__ import annotations

import pytest

from supervisor.faults import CHECKS, Check, CheckError, read_stream, run_check, stream_names
from supervisor.faults.bench import Workbench, require


@pytest.mark.parametrize("provider", stream_names())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_fault(check: Check, provider: str) -> None:
    """In the strongest mode that this machine has."""
    await run_check(check, read_stream(provider))


@pytest.mark.parametrize("mode", ["loop", "group"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_fault_in_a_weaker_mode(check: Check, mode: str) -> None:
    if check.proven_only and mode == "group":
        return  # a group proves nothing, and says so
    await run_check(check, read_stream("codex"), {"containment": mode})


async def test_a_check_that_fails_says_why() -> None:
    async def work(bench: Workbench) -> None:
        require(False, "the sky fell")

    with pytest.raises(CheckError, match="the sky fell"):
        await run_check(Check("sky", work), read_stream("codex"))


async def test_a_file_that_is_left_fails_a_check() -> None:
    async def work(bench: Workbench) -> None:
        (bench.runs / "0123456789ab").mkdir(parents=True)

    with pytest.raises(CheckError, match="files are left: 0123456789ab"):
        await run_check(Check("left", work), read_stream("codex"))
