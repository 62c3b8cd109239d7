"""Every end of a run: how the leader ends x who holds the pipes x how it takes a signal x the cause."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor import Limits, Timeouts
from supervisor.model.errors import failure
from supervisor.protocol.ending import cause_of, ending
from tests.fakes import COMPLETED, STARTED, STATUS, ask, message
from tests.test_run import BOUND

if TYPE_CHECKING:
    from tests.fakes import Bench, Step

LEADER = ("exits 0", "exits 1", "is killed", "stays")
HOLDER = ("nobody", "same", "session", "daemon")
HABIT = ("polite", "deaf")

QUICK = Timeouts(total=0.3, linger=0.1, grace=0.1, drain=0.1)


def steps(leader: str, holder: str, habit: str, *, answers: bool) -> list[Step]:
    found: list[Step] = []
    if habit == "deaf":
        found += [["ignore", "SIGINT"], ["ignore", "SIGTERM"]]
    if holder != "nobody":
        found.append(["child", holder, "hold"])
    found += [STARTED, message("yes")]
    if answers:
        found.append(COMPLETED)
    return [*found, ENDS[leader]]


ENDS: dict[str, Step] = {
    "exits 0": ["exit", 0],
    "exits 1": ["exit", 1],
    "is killed": ["kill", "SIGKILL"],
    "stays": ["hang"],
}


@pytest.mark.parametrize("leader", LEADER)
async def test_a_run_that_ends_by_itself(bench: Bench, leader: str) -> None:
    """With its terminal event it is good whatever comes after, without it never."""

    async def one(holder: str, habit: str, answers: bool) -> None:
        script = steps(leader, holder, habit, answers=answers)
        async with bench.supervisor(*script) as supervisor:
            kinds, code = await read(supervisor, ask(timeouts=QUICK))
        assert kinds.count("done") + kinds.count("failed") == 1
        if answers:
            assert code is None
        elif leader == "stays":
            assert code == "timeout.total"
        else:
            assert code == ("process.signal" if leader == "is killed" else "protocol.truncated")

    await all_of(one, HOLDER, HABIT, (True, False))
    assert bench.homes() == []


@pytest.mark.parametrize("cause", ["size", "close", "cancel", "break"])
async def test_a_run_that_is_ended(bench: Bench, cause: str) -> None:
    async def one(holder: str, habit: str, leader: str) -> None:
        script = steps(leader, holder, habit, answers=False)
        if cause == "size":
            script.insert(-1, ["repeat", 100, STATUS])
        limits = Limits(stdout=2000) if cause == "size" else Limits()
        request = ask(timeouts=Timeouts(linger=0.1, grace=0.1, drain=0.1), limits=limits)
        async with bench.supervisor(*script) as supervisor:
            kinds: list[str] = []
            with trio.CancelScope() as scope:
                async with supervisor.stream(request) as run:
                    async for event in run:
                        kinds.append(event.kind)
                        if event.kind == "failed":
                            assert event.error.code == EXPECTED[cause]
                        if cause == "break":
                            break
                        if cause == "close":
                            await supervisor.close()
                        if cause == "cancel":
                            scope.cancel()
            terminal = kinds.count("done") + kinds.count("failed")
            assert terminal == (0 if cause in ("cancel", "break") else 1)

    await all_of(one, HOLDER, HABIT, ("stays", "exits 0"))
    assert bench.homes() == []


EXPECTED = {"size": "output.stdout", "close": "supervisor.closed"}


async def read(supervisor: Any, request: Any) -> tuple[list[str], str | None]:
    code = None
    kinds: list[str] = []
    async with supervisor.stream(request) as run:
        async for event in run:
            kinds.append(event.kind)
            if event.kind == "failed":
                code = event.error.code
    return kinds, code


async def all_of(one: Any, *sides: tuple[Any, ...]) -> None:
    """Every combination, four at a time."""
    limiter = trio.CapacityLimiter(4)

    async def limited(values: tuple[Any, ...]) -> None:
        async with limiter:
            with trio.fail_after(BOUND):
                await one(*values)

    async with trio.open_nursery() as nursery:
        for values in product(*sides):
            nursery.start_soon(limited, values)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (None, "stays"),
        ("supervisor.closed", "closed"),
        ("timeout.idle", "limit"),
        ("output.stdout", "limit"),
        ("policy.tool_used", "breach"),
        ("auth.api_key_in_use", "breach"),
    ],
)
def test_the_cause_behind_a_failure(code: Any, cause: str) -> None:
    assert cause_of(None if code is None else failure(code)) == cause


def test_only_a_living_leader_that_broke_no_rule_is_asked() -> None:
    for cause in ("stays", "limit", "closed", "left"):
        assert ending(cause, leader_ended=False).asked
        assert not ending(cause, leader_ended=True).asked
    assert not ending("breach", leader_ended=False).asked
    assert ending("itself", leader_ended=True).rest_read
    assert not ending("closed", leader_ended=True).rest_read
