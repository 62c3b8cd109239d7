"""One CLI as a child process: the leader of its own session and process group.

The leader is not reaped before its group was killed: until then the group's number cannot belong to
anybody else. Nothing here waits for, signals or reaps a process that is not of this run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import trio

from supervisor.model.completion import Exit, Killed, Mode
from supervisor.model.errors import as_error, failure
from supervisor.process.output import open_output
from supervisor.process.shelter import in_thread
from supervisor.process.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.errors import SupervisorError
    from supervisor.model.launch import PoliteSignal
    from supervisor.process.guardian_protocol import Resources

KILL_WAIT = 5.0
"""Seconds that a killed leader is given to disappear; only uninterruptible I/O takes longer."""

SWEEP_WAIT = 5.0
"""Seconds for the search for what is left, which must come back empty twice."""

_POLITE = {"INT": signal.SIGINT, "TERM": signal.SIGTERM}


class Child:
    """A started CLI. Call `end` exactly when nothing of it shall live on, then `close`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: tuple[int | None, int, int],
        run_id: str,
    ) -> None:
        stdin, stdout, stderr = pipes
        self.pid = process.pid
        self.stdin = None if stdin is None else trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)
        self.stderr = trio.lowlevel.FdStream(stderr)
        self._process = process
        self._sweep = Sweep(run_id, process.pid)
        self._signalled = False
        self._reaped = False
        self.exit: Exit | None = None
        """How the leader ended; None while it lives."""
        self.mode: Mode = "group"
        self.proven = False
        self.resources: Resources | None = None
        """Reaping by number tells nothing of what was used."""

    async def wait(self) -> None:
        """Wait until the leader has ended. It stays unreaped. Several tasks may wait."""
        self._look()
        if self.exit is not None:
            return
        # One descriptor for each waiter, since trio lets only one task wait on a descriptor.
        try:
            watch = os.pidfd_open(self.pid)
        except OSError:  # none is to be had, so it is looked at now and then
            while self.exit is None:
                await trio.sleep(0.01)
                self._look()
            return
        try:
            while self.exit is None:
                await trio.lowlevel.wait_readable(watch)
                self._look()
        finally:
            os.close(watch)

    async def end(
        self, *, polite: PoliteSignal, grace: float
    ) -> tuple[tuple[Killed, ...], tuple[str, ...]]:
        """End the leader, its group and whatever else carries the run's mark.

        The leader is asked first and given `grace` seconds. Takes at most
        `grace + KILL_WAIT + SWEEP_WAIT` seconds; call it shielded from cancellation.

        Returns:
            What was still alive after the leader's end and was killed, and a sentence for each
            process that could not be.
        """
        if self.exit is None:
            self._sweep.remember()  # those that leave the group are known by their parents now
            self._signal(_POLITE[polite])
            with trio.move_on_after(grace):
                await self.wait()
        if self.exit is None:
            self._signal(signal.SIGKILL)
            with trio.move_on_after(KILL_WAIT):
                await self.wait()
        found: dict[int, str] = {}
        with contextlib.suppress(OSError):  # no descriptor is to be had: what follows needs none
            found = await in_thread(self._sweep.look)
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._reap()
        try:
            left = await self._kill_until_clean()
        except OSError as error:
            why = os.strerror(error.errno or 0)
            left = (f"What is left of the run could not be searched for: {why}.",)
        killed = tuple(Killed(pid=pid, name=name) for pid, name in sorted(found.items()))
        if self.exit is None:
            left = (*left, f"The CLI itself (pid {self.pid}) does not end.")
        return killed, left

    def kill(self) -> None:
        """Kill the group, needing nothing but a system call."""
        self._signal(signal.SIGKILL)

    async def close(self) -> None:
        """Close what is open. Safe to call twice."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)

    async def _kill_until_clean(self) -> tuple[str, ...]:
        clean = 0
        with trio.move_on_after(SWEEP_WAIT):
            while clean < 2:
                alive = await in_thread(self._sweep.kill)
                clean = 0 if alive else clean + 1
                if alive:
                    await trio.sleep(0.01)
            return ()
        alive = await in_thread(self._sweep.look)
        return tuple(
            f"The process {name!r} (pid {pid}) of the run does not end."
            for pid, name in sorted(alive.items())
        )

    def _signal(self, number: signal.Signals) -> None:
        self._look()
        if self.exit is None:
            self._signalled = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _look(self) -> None:
        """Note the leader's end without reaping it."""
        if self.exit is not None or self._reaped:
            return
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            seen = os.waitid(os.P_PID, self.pid, options)
        except ChildProcessError:
            # Somebody in this program waits for all children: how it ended is lost, and its number
            # and its group's may be another's by now.
            self._forget()
            self._process.returncode = 0
            self.exit = Exit(code=None, signal=None, ended_by_us=self._signalled)
            return
        if seen is not None:
            by_signal = seen.si_code != os.CLD_EXITED
            self.exit = Exit(
                code=None if by_signal else seen.si_status,
                signal=seen.si_status if by_signal else None,
                ended_by_us=self._signalled,
            )

    def _reap(self) -> None:
        self._look()
        if self.exit is not None and not self._reaped:
            self._forget()
            self._process.wait()

    def _forget(self) -> None:
        self._reaped = True
        self._sweep.forget_group()


async def start_child(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    work: str,
    run_id: str,
    has_stdin: bool,
    terminal: bool = False,
) -> Child:
    """Start a CLI in a session and process group of its own.

    Standard input is a pipe, or /dev/null without input; it is never inherited.

    Raises:
        CliError: `cli.not_runnable`.
        RequestError: `request.too_large` if the system refuses the size of an argument.
    """
    # The fork is slow enough for a thread; no parent-death signal may be asked for there, since it
    # would follow the thread, and this one ends after ten idle seconds.
    process, pipes = await in_thread(_spawn, list(argv), dict(environ), work, has_stdin, terminal)
    return Child(process, pipes, run_id)


def _spawn(
    argv: list[str], environ: dict[str, str], work: str, has_stdin: bool, terminal: bool
) -> tuple[subprocess.Popen[bytes], tuple[int | None, int, int]]:
    inner: list[int] = []
    outer: list[int] = []
    try:
        if has_stdin:
            read, write = os.pipe()
            inner.append(read)
            outer.append(write)
        for name in ("stdout", "stderr"):
            read, write = open_output(terminal=terminal and name == "stdout")
            outer.append(read)
            inner.append(write)
        process = subprocess.Popen(
            argv,
            stdin=inner[0] if has_stdin else subprocess.DEVNULL,
            stdout=inner[-2],
            stderr=inner[-1],
            cwd=work,
            env=environ,
            start_new_session=True,
        )
    except BaseException as error:
        for descriptor in outer:
            os.close(descriptor)
        if isinstance(error, OSError):
            raise start_error(error, argv[0]) from error
        raise
    finally:
        for descriptor in inner:
            os.close(descriptor)
    stdin = outer[0] if has_stdin else None
    return process, (stdin, outer[-2], outer[-1])


def start_error(error: OSError, program: str) -> SupervisorError:
    """What a failed exec is called."""
    if error.errno == errno.E2BIG:
        return as_error(failure("request.too_large", "An argument is too long for the system."))
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        why = os.strerror(error.errno)
        hint = "Run less at once, or raise the limits of this process (ulimit)."
        return as_error(
            failure("cli.not_runnable", f"The system has no room to start it: {why}.", hint=hint)
        )
    why = os.strerror(error.errno or 0)
    return as_error(failure("cli.not_runnable", f"The program {program!r} does not start: {why}."))
