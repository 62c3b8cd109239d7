"""close() refuses, ends, waits, and says the same to everybody."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor import CleanupError, CliError, ClosedError, Supervisor, SupervisorError
from tests.fakes import GOOD, STARTED, ask, events_of, fake
from tests.test_run import BOUND, HASTY, appears

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fakes import Bench


async def refused(supervisor: Supervisor) -> bool:
    with pytest.raises(ClosedError) as caught:
        await supervisor.run(ask())
    return caught.value.code == "supervisor.closed"


async def test_close_refuses_new_runs_and_may_be_called_again(bench: Bench) -> None:
    supervisor = bench.supervisor(GOOD)
    await supervisor.run(ask())
    await supervisor.close()
    await supervisor.close()
    assert await refused(supervisor)


async def test_close_before_any_run(bench: Bench) -> None:
    supervisor = bench.supervisor(GOOD)
    await supervisor.close()
    assert await refused(supervisor)
    assert bench.homes() == []


async def test_close_from_another_task_ends_the_stream_with_an_error(bench: Bench) -> None:
    supervisor = bench.supervisor(STARTED, ["hang"])
    reading = trio.Event()
    kinds: list[str] = []

    async def read() -> None:
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            async for event in run:
                kinds.append(event.kind)
                reading.set()
        with pytest.raises(ClosedError):
            _ = run.completion

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await reading.wait()
            await supervisor.close()
            assert bench.homes() == []
    assert kinds == ["started", "failed"]


async def test_close_does_not_need_the_reader(bench: Bench) -> None:
    """The consumer is busy elsewhere between two events; its processes go all the same."""
    supervisor = bench.supervisor(["child", "session", "hold"], STARTED, ["hang"])
    with trio.fail_after(BOUND):
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            await run.__anext__()
            await supervisor.close()
            assert bench.homes() == []
            rest = [event.kind async for event in run]
    assert rest == ["failed"]


async def test_concurrent_closes_wait_for_the_same_end(bench: Bench) -> None:
    supervisor = bench.supervisor(["ignore", "SIGINT"], STARTED, ["hang"])
    ended: list[int] = []

    async def close(number: int) -> None:
        await supervisor.close()
        assert bench.homes() == []
        ended.append(number)

    with trio.fail_after(BOUND):
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            await run.__anext__()
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(close, number)
    assert sorted(ended) == [0, 1, 2, 3, 4]


async def test_close_while_the_caller_is_cancelled(bench: Bench) -> None:
    supervisor = bench.supervisor(STARTED, ["hang"])
    with trio.fail_after(BOUND):
        with trio.CancelScope() as scope:
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                await run.__anext__()
                scope.cancel()
                await supervisor.close()
                assert bench.homes() == []
        assert await refused(supervisor)


async def test_leaving_the_supervisor_ends_the_runs_of_other_tasks(bench: Bench) -> None:
    outcomes: list[Any] = []

    async def read(supervisor: Supervisor, reading: trio.Event) -> None:
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            async for event in run:
                reading.set()
                outcomes.append(event.kind)

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            async with bench.supervisor(STARTED, ["hang"]) as supervisor:
                for _ in range(3):
                    reading = trio.Event()
                    nursery.start_soon(read, supervisor, reading)
                    await reading.wait()
    assert outcomes.count("failed") == 3


async def test_close_in_the_middle_of_a_start(bench: Bench) -> None:
    outcomes: list[str] = []

    async def ask_once(supervisor: Supervisor) -> None:
        try:
            await supervisor.run(ask("x" * 100_000, timeouts=HASTY))
            outcomes.append("done")
        except SupervisorError as error:
            outcomes.append(error.code)

    with trio.fail_after(2 * BOUND):
        for ticks in range(12):
            supervisor = bench.supervisor(GOOD)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_once, supervisor)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                await supervisor.close()
                assert bench.homes() == []
    assert set(outcomes) <= {"done", "supervisor.closed"}
    assert len(outcomes) == 12
    assert "supervisor.closed" in outcomes


async def test_close_after_a_failed_start(bench: Bench) -> None:
    supervisor = Supervisor(programs={"codex": ["/nowhere/codex"]}, state_dir=bench.state)
    with pytest.raises(CliError):
        await supervisor.run(ask())
    await supervisor.close()
    assert await refused(supervisor)


async def test_close_names_what_could_not_be_cleaned_each_time(bench: Bench) -> None:
    """A file of the private directory cannot be removed, and the answer is given all the same."""
    ready, go = bench.path / "ready", bench.path / "go"
    steps = (STARTED, ["touch", str(ready)], ["wait_for", str(go)], GOOD)
    supervisor = bench.supervisor(*steps)
    async with supervisor.stream(ask()) as run:
        await run.__anext__()
        await appears(ready)
        with unremovable(bench.state / "runs", bench.homes()[0]):
            go.touch()
            async for _ in run:
                pass
            assert run.completion.text == "second message"
            (left,) = run.completion.cleanup.leftovers
            assert bench.homes()[0] in left
            for _ in range(2):
                with pytest.raises(CleanupError) as caught:
                    await supervisor.close()
                assert left in caught.value.message
    shutil.rmtree(bench.state)


@contextmanager
def unremovable(runs: Path, name: str) -> Iterator[None]:
    """Make a run's directory one that its owner cannot remove; root needs the immutable flag."""
    if os.getuid() == 0:
        lock, unlock = (["chattr", sign, str(runs / name / "files")] for sign in ("+i", "-i"))
    else:
        lock, unlock = (["chmod", mode, str(runs)] for mode in ("0500", "0700"))
    subprocess.run(lock, check=True)
    try:
        yield
    finally:
        subprocess.run(unlock, check=True)


async def test_two_supervisors_do_not_know_of_each_other(bench: Bench) -> None:
    first = Supervisor(programs={"codex": fake(GOOD)}, state_dir=bench.path / "one")
    second = Supervisor(programs={"codex": fake(STARTED)}, state_dir=bench.path / "two")
    await first.close()
    assert [event.kind for event in await events_of(second, ask())][-1] == "failed"
    await second.close()
