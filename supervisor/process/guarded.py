"""One CLI below a guardian: used like `Child`, and its end is proven.

The guardian is two processes between us and the CLI, see `guardian.py`. We write commands to it, read
what it reports, and reap the one of the two that is our child, by its number alone. Should this
process die, in whatever way, the guardian ends the run by itself.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import importlib.machinery
import importlib.util
import marshal
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import trio

from supervisor.model.completion import Exit, Killed
from supervisor.model.errors import as_error, failure
from supervisor.process.child import start_error
from supervisor.process.guardian_protocol import GuardedMode, Report, Resources, pack_program
from supervisor.process.output import open_output
from supervisor.process.shelter import in_thread, to_the_end
from supervisor.process.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.errors import SupervisorError
    from supervisor.model.launch import PoliteSignal

PROOF_WAIT = 10.0
"""Seconds that the guardian is given to kill everything and prove it. A few milliseconds are usual."""

REAP_WAIT = 1.0
"""Seconds that a guardian is given to end when its work is done, before it is killed."""

SWEEP_WAIT = 2.0
"""Seconds for the search for what is left of a run whose guardian was killed from outside."""

MFD_NOEXEC_SEAL = 0x8
"""memfd_create(2), Linux 6.3: some systems refuse memory files that might be executed."""

_POLITE = {"INT": b"I", "TERM": b"T"}
_KILL = b"K"

_unfinished: list[subprocess.Popen[bytes]] = []
"""Guardians that had not ended when they were closed. They go on trying; their end is reaped later."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A started guardian and our ends of its descriptors; `watch` is its pidfd."""

    process: subprocess.Popen[bytes]
    watch: int
    control: int
    status: int
    stdin: int | None
    stdout: int
    stderr: int


class GuardedChild:
    """A started CLI. Call `end` exactly when nothing of it shall live on, then `close`.

    Left unended, it ends with `close` or with this process, whichever comes first.
    """

    def __init__(self, started: _Started, run_id: str) -> None:
        """Made by `start_guarded`."""
        self.stdin = None if started.stdin is None else trio.lowlevel.FdStream(started.stdin)
        self.stdout = trio.lowlevel.FdStream(started.stdout)
        self.stderr = trio.lowlevel.FdStream(started.stderr)
        self.exit: Exit | None = None
        """How the leader ended; None while it lives."""
        self._process = started.process
        self._watch, self._control, self._status = started.watch, started.control, started.status
        os.set_blocking(self._status, False)
        self._run_id = run_id
        self._report = Report()
        self._signalled = False
        self._silent = False  # the guardian says nothing more
        self._answered = trio.Event()  # the leader runs, or never will
        self._exited = trio.Event()
        self._over = trio.Event()  # nothing is left, or the guardian is gone
        # Not in a nursery of the caller's: whoever waits for the exit, and however many they are,
        # may be cancelled.
        trio.lowlevel.spawn_system_task(self._listen, name="supervisor guardian status")

    @property
    def pid(self) -> int:
        """The leader's pid."""
        return self._report.leader or 0

    @property
    def mode(self) -> GuardedMode:
        """The containment in force: `loop` where `scope` was asked for and is not to be had."""
        return self._report.mode or "loop"

    @property
    def weakness(self) -> str | None:
        """The guardian's own words for why `mode` is not what was asked for."""
        return self._report.weakness

    @property
    def proven(self) -> bool:
        """Whether the kernel has confirmed that no process of the run is left."""
        return self._report.proven

    @property
    def resources(self) -> Resources | None:
        """What the leader used; None before its end, and where its end was not seen."""
        return self._report.resources

    async def wait(self) -> None:
        """Wait until the leader has ended. Several tasks may wait."""
        self._look()
        await self._exited.wait()

    async def end(
        self, *, polite: PoliteSignal, grace: float
    ) -> tuple[tuple[Killed, ...], tuple[str, ...]]:
        """End the leader and everything that descends from it.

        The leader is asked first and given `grace` seconds. Takes at most
        `grace + PROOF_WAIT + REAP_WAIT + SWEEP_WAIT` seconds, and some milliseconds as a rule; call
        it shielded from cancellation. Safe to call again.

        Returns:
            What was still alive when the kill began, the leader aside; and, without a proof, a
            sentence for each process that is still there. The guardian goes on trying to kill those.
        """
        self._look()
        if self.exit is None:
            self._signalled = True
            self._tell(_POLITE[polite])
            with trio.move_on_after(grace):
                await self._exited.wait()
        self._tell(_KILL)
        with trio.move_on_after(PROOF_WAIT):
            await self._over.wait()
        if self._over.is_set():
            await self._reap()
        found = {pid: name for pid, name in self._report.alive.items() if pid != self.pid}
        left: tuple[str, ...] = ()
        if not self.proven:
            if self._over.is_set():
                found |= await self._sweep()
            left = await in_thread(_remains, self._process.pid, self._run_id)
        return tuple(Killed(pid=pid, name=name) for pid, name in sorted(found.items())), left

    def kill(self) -> None:
        """Have the guardian kill everything, needing nothing but a system call."""
        self._tell(_KILL)

    async def close(self) -> None:
        """Close what is open. Safe to call twice, and cancelled."""
        self._silent = True
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self._status >= 0:
            trio.lowlevel.notify_closing(self._status)
            for descriptor in (self._control, self._status, self._watch):
                os.close(descriptor)
            self._control = self._status = self._watch = -1
            if self._process.poll() is None:
                _unfinished.append(self._process)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def started(self) -> None:
        """Wait until the guardian has started the leader, or has failed to.

        Raises:
            OSError: exec failed.
            GuardianError: the guardian did.
        """
        await self._answered.wait()
        report = self._report
        if report.refused is not None:
            raise OSError(report.refused, os.strerror(report.refused))
        if report.leader is None:
            why = "it ended too early"
            if report.broken is not None:
                number, place = report.broken
                why = f"{os.strerror(number)} ({place})"
            raise GuardianError(why)

    async def abandon(self) -> None:
        """Kill everything and close, whatever happens around."""
        await to_the_end(self._abandon)

    async def _abandon(self) -> None:
        await self.end(polite="TERM", grace=0)
        await self.close()

    async def _listen(self) -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            while not self._silent:
                await trio.lowlevel.wait_readable(self._status)
                self._look()

    def _look(self) -> None:
        """Read what the guardian has said, without waiting, and tell those who wait for it."""
        while not self._silent:
            try:
                data = os.read(self._status, 65536)
            except BlockingIOError:
                break
            self._report.feed(data)
            self._silent = not data
        report = self._report
        if self._silent or report.leader or report.refused or report.broken:
            self._answered.set()
        if self._silent or report.proven:
            self._over.set()
        if self.exit is None and (report.status is not None or self._over.is_set()):
            self.exit = _exit_of(report.status, self._signalled)
            self._exited.set()

    def _tell(self, command: bytes) -> None:
        with contextlib.suppress(OSError):  # the guardian has ended
            os.write(self._control, command)

    async def _reap(self) -> None:
        """Reap our own child of the two guardians, which has nothing to do any more."""
        if self._process.returncode is None and self._watch >= 0:
            # A copy for each caller, since trio lets only one task wait on a descriptor.
            watch = os.dup(self._watch)
            try:
                with trio.move_on_after(REAP_WAIT) as limit:
                    await trio.lowlevel.wait_readable(watch)
                if limit.cancelled_caught:  # somebody has stopped it
                    signal.pidfd_send_signal(watch, signal.SIGKILL)
                    await trio.lowlevel.wait_readable(watch)
            finally:
                os.close(watch)
            self._process.wait()

    async def _sweep(self) -> dict[int, str]:
        """Both guardians were killed from outside: look for the run by the mark in its environment."""
        sweep = Sweep(self._run_id, 0)
        sweep.forget_group()
        found: dict[int, str] = {}
        with trio.move_on_after(SWEEP_WAIT):
            while alive := await in_thread(sweep.look):
                found |= alive
                await in_thread(sweep.kill)
                await trio.sleep(0.01)
        return found


class GuardianError(Exception):
    """The guardian did not start: `str` says why."""


@trio.lowlevel.enable_ki_protection
async def start_guarded(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    work: str,
    run_id: str,
    has_stdin: bool,
    mode: GuardedMode,
    terminal: bool = False,
    settle_ms: int = 0,
) -> GuardedChild:
    """Start a CLI below a guardian, as the leader of a session and process group of its own.

    The CLI sees exactly `argv`, `environ` and the working directory, with all signals at their
    defaults and none blocked. Standard input is a pipe, or /dev/null without input. The sizes of
    arguments and environment meet the same limits as at a bare exec: they travel in a memory file.

    Args:
        mode: `scope` becomes `loop` where it is not to be had; see `modes.py`.
        terminal: standard output is a pseudo-terminal.
        settle_ms: how long descendants may live on after the leader has ended by itself.

    Raises:
        CliError: `cli.not_runnable`.
        RequestError: `request.too_large` if the system refuses the size of an argument.
    """
    _unfinished[:] = [process for process in _unfinished if process.poll() is None]
    parcel = pack_program(argv, environ)
    words = (str(settle_ms), run_id)
    try:
        # The fork is slow enough for a thread. Cancellation waits for it, so that nothing is lost.
        started = await in_thread(_spawn, mode, parcel, words, work, has_stdin, terminal)
        child = GuardedChild(started, run_id)
        try:
            await child.started()
        except BaseException:
            await child.abandon()
            raise
    except OSError as error:
        raise start_error(error, argv[0]) from error
    except GuardianError as error:
        raise _guardian_error(error) from error
    return child


def _guardian_error(error: GuardianError) -> SupervisorError:
    told = f"The guardian of the run does not start: {error}."
    hint = "Check that sys.executable can be started and that the system is not short of memory."
    return as_error(failure("cli.not_runnable", told, hint=hint))


def _exit_of(status: int | None, ended_by_us: bool) -> Exit:
    if status is None:
        return Exit(code=None, signal=None, ended_by_us=ended_by_us)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Exit(code=None, signal=-code, ended_by_us=ended_by_us)
    return Exit(code=code, signal=None, ended_by_us=ended_by_us)


def _spawn(
    mode: GuardedMode,
    parcel: bytes,
    words: tuple[str, ...],
    work: str,
    has_stdin: bool,
    terminal: bool,
) -> _Started:
    """Start the guardian. Blocks for some milliseconds."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        read, write = os.pipe()
        control, order = _keep(theirs, read), _keep(ours, write)
        stdin = None
        given: int = subprocess.DEVNULL
        if has_stdin:
            read, write = os.pipe()
            given, stdin = _keep(theirs, read), _keep(ours, write)
        outputs: list[tuple[int, int]] = []
        for name in ("stdout", "stderr", "status"):
            read, write = open_output(terminal=terminal and name == "stdout")
            outputs.append((_keep(ours, read), _keep(theirs, write)))
        (stdout, to_stdout), (stderr, to_stderr), (answer, status) = outputs
        program = _keep(theirs, _memory_file(parcel))
        ourselves = _keep(theirs, os.pidfd_open(os.getpid()))
        passed = (control, status, program, ourselves)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", guardian_file(), mode),
                *map(str, passed),
                *words,
            ],
            stdin=given,
            stdout=to_stdout,
            stderr=to_stderr,
            cwd=work,
            env=guardian_environment(),
            pass_fds=passed,
            start_new_session=True,
        )
        try:
            watch = os.pidfd_open(process.pid)
        except OSError:
            ours.close()  # the guardian takes that for our end
            process.wait()
            raise
        ours.pop_all()
    return _Started(process, watch, order, answer, stdin, stdout, stderr)


def _keep(stack: contextlib.ExitStack, descriptor: int) -> int:
    """Have a descriptor closed with `stack`.

    Where this process has closed its own standard streams, new descriptors take their numbers, and
    would be taken for standard streams by the guardian: those are moved.
    """
    if descriptor <= 2:
        low = descriptor
        try:
            descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        finally:
            os.close(low)
    stack.callback(os.close, descriptor)
    return descriptor


def _memory_file(content: bytes) -> int:
    try:
        file = os.memfd_create("supervisor", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        file = os.memfd_create("supervisor", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.close(file)
        raise
    return file


def guardian_environment() -> dict[str, str]:
    """What the interpreter may need to find its own library; nothing of the CLI's environment."""
    name = "LD_LIBRARY_PATH"
    return {name: os.environ[name]} if name in os.environ else {}


@functools.cache
def guardian_file() -> str:
    """The guardian's program: compiled if there is an up-to-date compiled file, else its source."""
    source = str(Path(__file__).with_name("guardian.py"))
    loader = importlib.machinery.SourceFileLoader("supervisor.process.guardian", source)
    code = loader.get_code(loader.name)  # writes the compiled file where it can
    try:
        compiled = importlib.util.cache_from_source(source)
        stored = Path(compiled).read_bytes()
        # Started by its own name it is not compared with its source, so that is done here.
        header = 16
        fresh = stored.startswith(importlib.util.MAGIC_NUMBER)
        return compiled if fresh and marshal.loads(stored[header:]) == code else source
    except (OSError, NotImplementedError, ValueError, EOFError, TypeError):
        return source


def _remains(guardian: int, run_id: str) -> tuple[str, ...]:
    """A sentence for each living process of a run: below its guardian, or with its mark."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        outer = psutil.Process(guardian)
        ours = outer.cmdline()
        for process in outer.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline() != ours:  # the other guardian
                    found[process.pid] = process
    sweep = Sweep(run_id, 0)
    sweep.forget_group()
    for pid in sweep.look():
        with contextlib.suppress(psutil.Error):
            found[pid] = psutil.Process(pid)
    sentences = (_describe(process) for _, process in sorted(found.items()))
    return tuple(sentence for sentence in sentences if sentence)


def _describe(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            state = process.status()
            if state == psutil.STATUS_ZOMBIE:
                return ""
            who = f"pid {process.pid}, user {process.uids().real}, {state}"
            return f"The process {process.name()!r} ({who}) of the run does not end."
    except psutil.Error:
        return ""
