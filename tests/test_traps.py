"""The traps around ending a process tree: each of these went wrong once, somewhere."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio

from supervisor.process import guarded, guardian
from supervisor.process.guardian import Fence, fence_off
from supervisor.process.guardian_protocol import pack_program
from tests.test_guardian import (
    MODES,
    PYTHON,
    ROOT,
    SECONDS_TO_DIE,
    SHELL,
    Ledger,
    finish,
    hold,
    inner_of,
    outer_of,
    read,
    require,
    run,
    start,
    start_ready,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(guardian.__file__).read_text()
PR_GET_CHILD_SUBREAPER = 37  # prctl(2)
NOBODY = (1 << 23, 1 << 24)
"""Pids above the largest that Linux gives."""


# ---- the fence: kill(-1) must never be called without


def fake_world(
    monkeypatch: pytest.MonkeyPatch, *, before: int, after: int, refused: int = 0, abi: int = 7
) -> list[str]:
    """Let the witness answer as told before and after the fence is raised; raises no fence."""
    done: list[str] = []

    def raise_nothing() -> None:
        done.append("raised")
        if refused:
            raise OSError(refused, "landlock")

    monkeypatch.setattr(guardian, "raise_fence", raise_nothing)
    monkeypatch.setattr(guardian, "landlock_abi", lambda: abi)
    monkeypatch.setattr(guardian, "try_signal", lambda _: after if done else before)
    return done


def test_a_fence_that_is_seen_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_world(monkeypatch, before=0, after=errno.EPERM)
    fence, why = fence_off(4)
    assert isinstance(fence, Fence)
    assert why == "-"


@pytest.mark.parametrize(
    ("world", "why"),
    [
        ({"before": 0, "after": 0}, "open"),  # the fence was skipped, or does nothing
        ({"before": 0, "after": errno.ESRCH}, "open"),  # the witness has died meanwhile
        ({"before": errno.EPERM, "after": errno.EPERM}, "witness"),  # it proves nothing
        ({"before": errno.ESRCH, "after": errno.EPERM}, "witness"),
        ({"before": 0, "after": errno.EPERM, "refused": errno.E2BIG}, f"refused {errno.E2BIG}"),
        ({"before": 0, "after": errno.EPERM, "abi": 5}, "abi 5"),
        ({"before": 0, "after": errno.EPERM, "abi": 0}, "abi 0"),
    ],
)
def test_anything_else_is_no_fence(
    monkeypatch: pytest.MonkeyPatch, world: dict[str, int], why: str
) -> None:
    done = fake_world(monkeypatch, **world)
    assert fence_off(4) == (None, why)
    assert done == ([] if why == "witness" or why.startswith("abi") else ["raised"])


@pytest.mark.parametrize("witness", [0, -1])
def test_a_group_is_no_witness(monkeypatch: pytest.MonkeyPatch, witness: int) -> None:
    fake_world(monkeypatch, before=0, after=errno.EPERM)
    assert fence_off(witness) == (None, "witness")


@pytest.mark.parametrize("fenced", [True, False])
def test_without_a_fence_only_own_children_are_killed(
    monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    sent: list[tuple[Any, ...]] = []

    class Recorded(Fence):
        def kill_inside(self) -> None:
            sent.append(("everybody inside",))

    class Two:
        def children(self, pid: int) -> tuple[int, ...]:
            return NOBODY if pid == os.getpid() else ()

    rounds = iter([True, True, False])
    monkeypatch.setattr(guardian, "reap", lambda _: next(rounds))
    monkeypatch.setattr(guardian, "attempt", lambda _, *given: sent.append(given))
    fence = Recorded() if fenced else None
    guardian.kill_everything(Two(), fence, lambda *_: None)  # type: ignore[arg-type]
    first = [("everybody inside",)] if fenced else []
    assert sent == 2 * [*first, *((pid, signal.SIGKILL) for pid in NOBODY)]


def test_everybody_is_named_in_one_place_and_only_the_test_of_a_fence_makes_one() -> None:
    tree = ast.parse(SOURCE)
    places: dict[str, set[str]] = {"-1 to kill": set(), "Fence()": set()}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    text = ast.unparse(node)
                    if "kill" in text and "-1" in text:
                        places["-1 to kill"].add(function.name)
                    if text == "Fence()":
                        places["Fence()"].add(function.name)
    assert places == {"-1 to kill": {"kill_inside"}, "Fence()": {"fence_off"}}


async def test_a_guardian_whose_fence_is_skipped_falls_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raising = "def raise_fence() -> None:"
    skipped = SOURCE.replace(raising, f"{raising}\n    return", 1)
    # Should it be the guardian that is wrong, then it ends without hurting anybody.
    harmless = skipped.replace("attempt(os.kill, -1, signal.SIGKILL)", "os._exit(99)")
    assert SOURCE != skipped != harmless
    mutant = tmp_path / "guardian.py"
    mutant.write_text(harmless)
    monkeypatch.setattr(guarded, "guardian_file", lambda: str(mutant))
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready("scope", ledger.command("daemon"))
    assert (child.mode, child.weakness) in (("loop", "open"), ("loop", "abi 0"))
    killed, left = await finish(child, grace=0)
    assert (ledger.living(), len(killed), left, child.proven) == ([], 3, (), True)


async def test_the_run_can_signal_nobody_outside_of_its_fence(tmp_path: Path) -> None:
    await require("scope")
    script = """
import os, sys
for pid in map(int, sys.argv[1:] + [str(os.getppid())]):
    try:
        os.kill(pid, 0)
        print("reached")
    except PermissionError:
        print("refused")
print(next(line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")))
"""
    bystander = await trio.to_thread.run_sync(subprocess.Popen, ["sleep", "20"])
    argv = [*PYTHON, "-c", script, str(os.getpid()), str(bystander.pid)]
    fenced, _ = await run("scope", argv)
    assert fenced.split() == [b"refused"] * 3 + [b"NoNewPrivs:", b"1"]
    open_, _ = await run("loop", argv)
    assert open_.split() == [b"reached"] * 3 + [b"NoNewPrivs:", b"0"]
    bystander.kill()
    bystander.wait()


# ---- the host keeps what is its own


async def test_the_run_survives_the_thread_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_dying_thread(work: Callable[..., Any], *given: Any, **_: Any) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(work(*given)))
        thread.start()
        thread.join()
        await trio.lowlevel.checkpoint()
        return results[0]

    with monkeypatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", in_dying_thread)
        child = await start("scope", ["cat"], has_stdin=True)
    assert child.stdin is not None
    for word in (b"one", b"two"):
        await child.stdin.send_all(word)
        assert await child.stdout.receive_some(10) == word
    await finish(child)
    assert child.exit is not None
    assert child.exit.signal == signal.SIGTERM


async def test_the_exit_codes_of_the_hosts_own_children_are_left_alone() -> None:
    own = await trio.to_thread.run_sync(subprocess.Popen, ["sh", "-c", "exit 7"])
    for mode in ("scope", "loop"):
        child = await start(mode, ["sh", "-c", "sleep 20 & exit 3"])
        await child.wait()
        await finish(child)
    assert own.wait() == 7


async def test_a_host_that_waits_for_every_child_breaks_nothing() -> None:
    child = await start_ready("loop", ["sh", "-c", "echo ready; exec sleep 20"])
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: psutil.Process(outer_of(child)).status() == psutil.STATUS_ZOMBIE)
    stolen, _ = os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222 -- it does not block
    assert stolen == outer_of(child)
    killed, left = await finish(child)
    assert (killed, left, child.proven) == ({}, (), True)
    assert child.exit is not None
    assert child.exit.signal == signal.SIGKILL


async def test_the_host_is_no_subreaper_and_has_no_fence_afterwards() -> None:
    await run("scope", ["true"])
    answer = ctypes.c_int(-1)
    zero = ctypes.c_ulong(0)
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), zero, zero, zero) == 0
    assert answer.value == 0
    async with await trio.open_file("/proc/self/status") as status:
        assert "NoNewPrivs:\t0" in await status.read()
    bystander = await trio.to_thread.run_sync(subprocess.Popen, ["sleep", "20"])
    bystander.kill()
    assert bystander.wait() == -signal.SIGKILL


@pytest.mark.parametrize("mode", MODES)
async def test_a_forked_copy_of_the_host_keeps_no_run_alive(mode: str, tmp_path: Path) -> None:
    await require(mode)
    ledger = Ledger(tmp_path / "ledger")
    argv = ledger.command("daemon")
    host, copy = await trio.to_thread.run_sync(hold, mode, tmp_path, argv, "fork")
    with host:
        assert copy
        try:
            host.kill()
            await ledger.dies()
            assert psutil.pid_exists(copy)
        finally:
            os.kill(copy, signal.SIGKILL)


async def test_a_host_without_standard_streams_can_start_runs(tmp_path: Path) -> None:
    script = """
import os, sys
import trio
from supervisor.process.guarded import start_guarded

async def main():
    for number in (0, 1, 2):  # here, so that trio's own descriptors do not take the numbers
        os.close(number)
    child = await start_guarded(
        ["cat"], {}, work="/", run_id="r", has_stdin=True, mode="scope"
    )
    await child.stdin.send_all(b"through")
    await child.stdin.aclose()
    data = await child.stdout.receive_some(100)
    await child.end(polite="TERM", grace=5)
    with open(sys.argv[1], "w") as file:
        file.write(f"{data} {child.exit.code} {child.proven}")
    await child.close()

trio.run(main)
"""
    result = tmp_path / "result"
    environ = {**SHELL, "PYTHONPATH": str(ROOT)}
    await trio.run_process([sys.executable, "-c", script, str(result)], env=environ, check=False)
    assert result.read_text() == "b'through' 0 True"


async def test_what_the_host_ignores_or_blocks_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = guarded._spawn
    mask = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}

    def spawn_blocked(*given: Any) -> Any:
        signal.pthread_sigmask(signal.SIG_BLOCK, mask)
        try:
            return original(*given)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)

    monkeypatch.setattr(guarded, "_spawn", spawn_blocked)
    kept = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGHUP, signal.SIGINT)}
    try:
        output, _ = await run("scope", ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"])
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert output.split() == [b"SigBlk:", b"0" * 16, b"SigIgn:", b"0" * 16]


# ---- a status reader that is no reader


def spawn(mode: str, argv: list[str]) -> guarded._Started:
    program = pack_program(argv, {})
    return guarded._spawn(mode, program, ("0", "r"), "/", False, False)  # type: ignore[arg-type]


def spawn_and_keep(
    monkeypatch: pytest.MonkeyPatch, mode: str, argv: list[str]
) -> tuple[guarded._Started, int]:
    """A guardian, and a copy of the write end of its status pipe."""
    kept: list[int] = []
    original = subprocess.Popen

    def popen(command: list[str], *, pass_fds: tuple[int, ...], **given: Any) -> Any:
        kept.append(os.dup(pass_fds[1]))
        return original(command, pass_fds=pass_fds, **given)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", popen)
        started = spawn(mode, argv)
    return started, kept[0]


def fill(started: guarded._Started, pipe: int) -> None:
    """Fill the status pipe, without a change to how the guardian's own descriptor behaves."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    while select.select([started.status], [], [], 0)[0]:
        os.read(started.status, 4096)
    os.write(pipe, b"x" * 4096)


def read_until(descriptor: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        data = os.read(descriptor, 100)
        assert data
        seen += data


@pytest.mark.parametrize("how", ["gone", "full"])
@pytest.mark.parametrize("mode", MODES)
async def test_nobody_reads_the_status_and_everything_is_killed(
    monkeypatch: pytest.MonkeyPatch, mode: str, how: str, tmp_path: Path
) -> None:
    await require(mode)
    ledger = Ledger(tmp_path / "ledger")
    started, write = spawn_and_keep(monkeypatch, mode, ledger.command("comet"))
    read_until(started.stdout, b"ready")
    if how == "gone":
        os.close(started.status)
    else:
        fill(started, write)
    os.close(write)
    os.write(started.control, b"K")
    await ledger.dies()
    with trio.fail_after(SECONDS_TO_DIE):
        await trio.to_thread.run_sync(started.process.wait)
    if how == "full":
        os.close(started.status)
    for descriptor in (started.control, started.watch, started.stdout, started.stderr):
        os.close(descriptor)


# ---- somebody stops the guardian


async def test_a_stopped_inner_is_resumed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready("loop", ledger.command("daemon"))
    os.kill(inner_of(child), signal.SIGSTOP)
    _, left = await finish(child, grace=0)
    assert (ledger.living(), left, child.proven) == ([], (), True)


async def test_a_stopped_outer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guarded, "REAP_WAIT", 0.1)
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready("loop", ledger.command("daemon"))
    os.kill(outer_of(child), signal.SIGSTOP)
    _, left = await finish(child, grace=0)
    assert (ledger.living(), left, child.proven) == ([], (), True)
    assert child._process.returncode == -signal.SIGKILL


# ---- the rest


async def test_the_interpreter_adds_nothing_to_the_environment() -> None:
    output, _ = await run("scope", ["cat", "/proc/self/environ"], {"PATH": SHELL["PATH"]})
    assert output == f"PATH={SHELL['PATH']}\0".encode()


async def test_a_holder_of_the_output_is_killed_so_the_output_ends(tmp_path: Path) -> None:
    for mode in ("scope", "loop"):
        child = await start_ready(mode, Ledger(tmp_path / mode).command("holder"))
        with trio.fail_after(SECONDS_TO_DIE):
            assert await read(child.stdout) == b""
        await finish(child)


async def test_a_forged_kernel_without_lists_of_children_is_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mutant = tmp_path / "guardian.py"
    mutant.write_text(SOURCE.replace('"thread-self/children"', '"thread-self/nothing"'))
    monkeypatch.setattr(guarded, "guardian_file", lambda: str(mutant))
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready("loop", ledger.command("daemon"))
    killed, _ = await finish(child, grace=0)
    assert (ledger.living(), len(killed), child.proven) == ([], 3, True)


# ---- cancelled at every step


class AtStep(trio.abc.Instrument):
    """Does something when the current task is about to take its n-th step."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self._task = trio.lowlevel.current_task()
        self._act = act
        self.missing = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.missing -= 1
            if self.missing == 0:
                self._act()


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_anywhere_it_leaves_nothing(mode: str, tmp_path: Path) -> None:
    await require(mode)
    argv = ["sh", "-c", "trap '' TERM; setsid sleep 20 & sleep 20"]
    descriptors = len(os.listdir("/proc/self/fd"))
    step = 0
    while True:
        step += 1
        child = None
        with trio.CancelScope() as scope:
            instrument = AtStep(step, scope.cancel)
            trio.lowlevel.add_instrument(instrument)
            try:
                child = await start(mode, argv, has_stdin=True)
                await child.end(polite="TERM", grace=0.02)
            finally:
                trio.lowlevel.remove_instrument(instrument)
                if child is not None:
                    await finish(child, grace=0)
        assert child is None or child.proven
        assert psutil.Process().children() == []
        await until(lambda: len(os.listdir("/proc/self/fd")) == descriptors)
        if instrument.missing > 0:
            break
    assert step > 5


def test_interrupted_anywhere_in_its_start_it_leaves_nothing() -> None:
    argv = ["sh", "-c", "trap '' TERM; setsid sleep 20 & sleep 20"]

    async def main(step: int) -> int:
        instrument = AtStep(step, lambda: signal.raise_signal(signal.SIGINT))
        trio.lowlevel.add_instrument(instrument)
        child = await start("scope", argv)
        trio.lowlevel.remove_instrument(instrument)
        await child.abandon()
        return instrument.missing

    descriptors = len(os.listdir("/proc/self/fd"))
    step, missing = 0, 0
    while missing <= 0:
        step += 1
        with contextlib.suppress(KeyboardInterrupt):
            missing = trio.run(main, step)
        assert psutil.Process().children() == []
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert step > 2
