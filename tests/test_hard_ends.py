"""Ends that come at a bad moment: interrupts, cancels in cancels, a starved loop, no descriptors."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
import trio.testing

from supervisor import CleanupError, ClosedError, Failed, Limits, Supervisor, Timeouts, register
from supervisor.process.shelter import to_the_end
from tests.conftest import of_folder
from tests.fakes import COMPLETED, GOOD, STARTED, ask, events_of, fake, message
from tests.test_run import BOUND, HASTY

if TYPE_CHECKING:
    from tests.fakes import Bench

HOST = """
import os, signal, sys, threading, time, trio
from supervisor import Request, Supervisor, Timeouts
state, mode, moments, *program = sys.argv[1:]
def interrupt():
    for moment in map(float, moments.split(",")):
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGINT)
async def main():
    supervisor = Supervisor(programs={"codex": program}, state_dir=state, containment=mode)
    request = Request(provider="codex", prompt="x", timeouts=Timeouts(linger=0.2, grace=1.0))
    async with supervisor, supervisor.stream(request) as run:
        threading.Thread(target=interrupt, daemon=True).start()
        async for event in run:
            pass
    print("ended by itself")
try:
    trio.run(main)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("mode", ["auto", "group"])
@pytest.mark.parametrize(
    ("moments", "ends"),
    [("0.3", False), ("0.3,0.5", False), ("0.5", True), ("0.3,0.3,0.3", True)],
    ids=["once", "again in the grace period", "while a good run is tidied", "three times"],
)
def test_ctrl_c_waits_for_the_end_of_the_run(
    bench: Bench, mode: str, moments: str, ends: bool
) -> None:
    """A second Ctrl-C in the grace period left the CLI alive and its directory behind."""
    body = GOOD if ends else STARTED
    program = fake(["ignore", "SIGINT"], ["ignore", "SIGTERM"], body, ["hang"])
    command = [sys.executable, "-c", HOST, str(bench.state), mode, moments, *program]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.stdout.decode().splitlines()[-1:] == ["interrupted"], done.stderr.decode()
    assert of_folder(bench.path) == []
    assert os.listdir(bench.state / "runs") == []


async def test_an_error_that_the_body_makes_of_a_cancel_comes_out(bench: Bench) -> None:
    """It vanished: the side tasks were cancelled too, and their end hid it."""
    async with bench.supervisor(STARTED, ["hang"]) as supervisor:
        with trio.move_on_after(0.3):
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 -- the block is the test
                async with supervisor.stream(ask(timeouts=HASTY)) as run:
                    await run.__anext__()
                    try:
                        await run.__anext__()
                    finally:
                        _ = 1 // 0
        assert bench.homes() == []


async def test_close_beside_a_run_that_was_cancelled_before_its_start(bench: Bench) -> None:
    """It waited for ever for a start that never came."""
    for _ in range(6):
        supervisor = bench.supervisor(GOOD)

        async def cancelled(supervisor: Any = supervisor) -> None:
            with trio.CancelScope() as scope, suppress(ClosedError):
                scope.cancel()
                await supervisor.run(ask())

        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancelled)
                nursery.start_soon(supervisor.close)


async def test_the_rest_is_read_by_a_consumer_that_was_busy(bench: Bench) -> None:
    """Another task blocked the loop for longer than the drain limit, and a good run was cut."""
    go = bench.path / "go"
    steps = (STARTED, ["wait_for", str(go)], GOOD)
    async with bench.supervisor(*steps) as supervisor:
        async with supervisor.stream(ask(timeouts=Timeouts(drain=0.1))) as run:
            first = await run.__anext__()
            assert first.kind == "started"
            go.touch()
            await trio.sleep(0.5)  # it ends unread

            async def busy() -> None:
                while True:
                    time.sleep(0.2)  # noqa: ASYNC251 -- the blocking is the point
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(busy)
                kinds = [event.kind async for event in run]
                nursery.cancel_scope.cancel()
    assert kinds[-1] == "done"


async def test_no_drain_time_loses_nothing_that_is_there(bench: Bench) -> None:
    async with bench.supervisor(GOOD) as supervisor:
        completion = await supervisor.run(ask(timeouts=Timeouts(drain=0)))
    assert completion.text == "second message"


async def test_a_consumer_that_polls_does_not_put_off_the_limits(bench: Bench) -> None:
    """Each cancelled wait for the next event started the limit anew."""
    limits = Timeouts(total=1.0, linger=0.5, grace=0.2)
    async with bench.supervisor(STARTED, ["close_stdout"], ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            async with supervisor.stream(ask(timeouts=limits)) as run:
                kinds: list[str] = []
                while "failed" not in kinds:
                    with trio.move_on_after(0.1):
                        kinds.append((await run.__anext__()).kind)
    assert kinds[-1] == "failed"


async def test_a_breach_ends_the_cli_before_its_event_is_handed_out(bench: Bench) -> None:
    """A consumer that took its time gave the CLI time to go on billing the key."""
    pid = bench.path / "pid"
    init = '{"type":"system","subtype":"init","apiKeySource":"ANTHROPIC_API_KEY"}'
    steps = (["pid", str(pid)], ["print", init], ["hang"])
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        async with supervisor.stream(ask(provider="claude", timeouts=HASTY)) as run:
            event = await run.__anext__()
            assert event.kind == "started"
            assert int(pid.read_text()) not in psutil.pids()
            last = await run.__anext__()
    assert isinstance(last, Failed)
    assert last.error.code == "auth.api_key_in_use"


NAKED_WRITER = """
import os, sys, time
sys.stdin.read()
if os.fork() == 0:
    os.setsid()
    code = '''
import os, time
began = time.monotonic()
while time.monotonic() - began < 10:
    os.write(1, b'{"type":"system"}\\\\n' * 3000)
    time.sleep(0.01)
'''
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
print('{"type":"thread.started","thread_id":"t"}', flush=True)
time.sleep(0.1)
"""


@pytest.mark.parametrize("limits", [Limits(stdout=1 << 20), Limits()], ids=["size", "time"])
async def test_a_descendant_that_writes_for_ever_meets_the_limits(
    bench: Bench, limits: Limits
) -> None:
    """In mode group it is not found; its writing held the run for as long as it went on."""
    program = [sys.executable, "-I", "-S", "-c", NAKED_WRITER]
    timeouts = Timeouts(total=1.0, grace=0.2, drain=0.2, linger=0.2)
    async with Supervisor(
        programs={"codex": program}, state_dir=bench.state, containment="group"
    ) as supervisor:
        began = trio.current_time()
        events = await events_of(supervisor, ask(timeouts=timeouts, limits=limits))
    assert trio.current_time() - began < 8
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.code == ("output.stdout" if limits.stdout == 1 << 20 else "timeout.total")


@pytest.mark.parametrize("mode", ["auto", "group"])
async def test_an_end_without_a_free_descriptor(bench: Bench, mode: Any) -> None:
    """The CLI stayed, the directory stayed, and close() said that all was well."""
    supervisor = bench.supervisor(["ignore", "SIGINT"], STARTED, ["hang"], containment=mode)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    try:
        with trio.fail_after(BOUND):
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                await run.__anext__()
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
                try:
                    while True:
                        filled.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    pass
    finally:
        for descriptor in filled:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with trio.fail_after(BOUND):
        while of_folder(bench.path):  # noqa: ASYNC110 -- no event crosses a process
            await trio.sleep(0.01)
    with suppress(CleanupError):  # it says so, or it has left nothing
        await supervisor.close()
        assert bench.homes() == []
    async with bench.supervisor(GOOD) as again:
        await again.run(ask())
    assert bench.homes() == [], "the next start removes what could not be removed"


async def test_a_host_whose_threads_are_all_blocked_does_not_hold_the_end(bench: Bench) -> None:
    stop = threading.Event()
    async with trio.open_nursery() as nursery:
        async with bench.supervisor(STARTED, ["hang"]) as supervisor:
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                await run.__anext__()
                for _ in range(40):
                    nursery.start_soon(trio.to_thread.run_sync, stop.wait, 15)
                await trio.testing.wait_all_tasks_blocked()
                began = trio.current_time()
            took = trio.current_time() - began
        stop.set()
    assert took < 10


async def test_a_bug_of_ours_is_an_error_of_ours(bench: Bench) -> None:
    """A decoder that raises ended the stream without a terminal event."""
    from supervisor.adapters.codex import Codex, CodexDecoder

    class Broken(CodexDecoder):
        def record(self, *_: Any) -> Any:
            raise KeyError("oops")

    class Mine(Codex):
        kind = "mine"

        def decoder(self, *_: Any) -> Any:
            return Broken(api_key=False)

    undo = register(Mine())
    try:
        async with Supervisor(programs={"mine": fake(GOOD)}, state_dir=bench.state) as supervisor:
            events = await events_of(supervisor, ask(provider="mine"))
    finally:
        undo()
    (last,) = events
    assert isinstance(last, Failed)
    assert last.error.code == "internal"
    assert isinstance(last.error.__cause__, KeyError)
    assert "oops" not in str(last.error)


# ---- answers that were not one


@pytest.mark.parametrize(
    ("spoiled", "code"),
    [(["filler", 4 << 20], "output.line"), (["print", '{"type":"item.com'], "protocol.truncated")],
    ids=["over the limit", "cut by another writer"],
)
async def test_a_comment_is_not_the_answer_when_the_answer_was_lost(
    bench: Bench, spoiled: Any, code: str
) -> None:
    """codex says something first; the answer's own line was lost, and the comment was taken for it."""
    limits = Limits(answer=1 << 20, line=3 << 20)
    steps = (STARTED, message("Let me see."), spoiled, COMPLETED)
    async with bench.supervisor(*steps) as supervisor:
        last = (await events_of(supervisor, ask(limits=limits)))[-1]
    assert isinstance(last, Failed)
    assert last.error.code == code


async def test_a_line_of_any_shape_costs_little(bench: Bench) -> None:
    """An array of ten million numbers became ten million events."""
    line = bench.path / "line"
    line.write_bytes(b"[" + b"0," * 2_000_000 + b"0]\n")
    deep = b'{"a":' * 700 + b"1" + b"}" * 700
    steps = (["file", str(line)], ["write", (deep + b"\n").hex()], GOOD)
    async with bench.supervisor(*steps) as supervisor:
        events = await events_of(supervisor, ask())
    assert [event.kind for event in events].count("unrecognized") <= 2
    assert events[-1].kind == "done"


# ---- the shelter itself


async def test_sheltered_work_is_done_before_a_cancel_is_felt() -> None:
    done: list[int] = []

    async def work() -> None:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            done.append(number)

    with trio.CancelScope() as scope:
        scope.cancel()
        await to_the_end(work)
        assert done == [0, 1, 2]
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_sheltered_work_that_fails_says_so_plainly() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await to_the_end(work)
