"""One run: its child process served, read, judged and cleaned away.

The consumer pulls: each `__anext__` reads, frames, decodes and hands out one event. Side tasks write
standard input, keep the end of standard error and watch for the exit; they never raise.

States, each left for good:

    opening ─▶ reading ─▶ draining ─▶ settled
       │          │           │          ▲
       └──────────┴───────────┴──────────┘   a limit, a breach, close(), or leaving the block

reading    the leader lives; our own limits run
draining   the leader has ended and its group is killed; what is in the pipe is still read
settled    processes, pipes and files are gone; the verdict stands
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic

import trio

from supervisor.model.completion import Cleanup, Completion, Exit, Latency, Partial
from supervisor.model.errors import Failure, about, as_error, failure
from supervisor.model.events import (
    Done,
    Event,
    Failed,
    Notice,
    Started,
    Text,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unrecognized,
)
from supervisor.model.request import Data
from supervisor.process.home import name_home
from supervisor.process.lease import close_home, open_home
from supervisor.process.modes import Found
from supervisor.process.program import find_program
from supervisor.process.pump import Tail, write_stdin
from supervisor.process.start import find_containment, start
from supervisor.protocol.accumulate import MADE_PROGRESS, Accumulator, End, Verdict
from supervisor.protocol.deadlines import Deadlines
from supervisor.protocol.decode import read_objects
from supervisor.protocol.ending import cause_of, ending
from supervisor.protocol.environment import base_environment, child_environment
from supervisor.protocol.framer import Dropped, Framer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from supervisor.model.adapter import Adapter
    from supervisor.model.completion import Killed
    from supervisor.model.events import Record
    from supervisor.model.request import Request
    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild
    from supervisor.process.lease import Lease
    from supervisor.process.start import Containment
    from supervisor.protocol.ending import Cause

_CHUNK = 65536
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Trusted:
    """What the application says of one provider: never part of a Request."""

    __slots__ = ("keep", "programs", "variables")

    def __init__(
        self, programs: Sequence[str] | None, keep: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self.programs = programs
        self.keep = tuple(keep)
        self.variables = dict(variables)


class Run(Generic[Data]):
    """A run under way: an async iterator of events, then `completion`.

    It is made by `Supervisor.stream`. One task reads it.
    """

    def __init__(
        self,
        request: Request[Data],
        adapter: Adapter,
        trusted: Trusted,
        environ: Mapping[str, str],
        state_dir: str,
        containment: Containment,
    ) -> None:
        self.request = request
        self._adapter = adapter
        self._trusted = trusted
        self._home = name_home(state_dir)
        named = (*adapter.variables, *trusted.keep)
        self._base = base_environment(environ, named)
        known = {**self._base, **trusted.variables}
        self._launch = adapter.plan(request, self._home.places, known)
        self._decoder = adapter.decoder(request, known)
        self._framer = Framer(request.limits.line_bytes)
        self._accumulator = Accumulator(request, optional_as_null=self._launch.optional_as_null)
        self._deadlines = Deadlines(
            request.timeouts, silent_while_thinking=self._launch.silent_while_thinking
        )
        self._tail = Tail(request.limits.stderr_tail)
        self._began = self._mark = trio.current_time()
        self._spawned: float | None = None
        self._first_event: float | None = None
        self._first_text: float | None = None
        self._pending: deque[Event] = deque()
        self._argv: tuple[str, ...] = ()
        self._lease: Lease | None = None
        self._containment: Containment = containment
        self._contained = Found("group", None)  # until it is known
        self._child: Child | GuardedChild | None = None
        self._wait: trio.CancelScope | None = None
        self._cause: Failure | None = None
        self._read_bytes = self._dropped_bytes = self._dropped_lines = 0
        self._opening = trio.Event()
        self._served = False
        self._ending: trio.Event | None = None
        self._killed: tuple[Killed, ...] = ()
        self._leftovers: tuple[str, ...] = ()
        self._end_seconds = 0.0
        self._disposing: trio.Event | None = None
        self._end: Done | Failed | None = None

    # ---- for the consumer

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the last one is `Done` or `Failed`."""
        if not self._pending:
            self._mark = trio.current_time()
            while not self._pending:
                if self._end is not None:
                    raise StopAsyncIteration
                await self._advance()
            self._account()
        return self._pending.popleft()

    @property
    def completion(self) -> Completion[Data]:
        """What the run gave.

        Raises:
            SupervisorError: the one of its `Failed` event.
            RuntimeError: the run has not been read to its end.
        """
        if isinstance(self._end, Done):
            return self._end.completion
        if isinstance(self._end, Failed):
            raise self._end.error
        raise RuntimeError("the run has no completion before its events were read to the end")

    # ---- for the supervisor

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What could not be cleaned."""
        return self._leftovers

    async def open(self) -> None:
        """Start the CLI.

        Raises:
            SupervisorError: it does not start; nothing is left.
        """
        try:
            environ = child_environment(
                self._base,
                self._launch.environment,
                self._trusted.keep,
                self._trusted.variables,
                temporary=self._home.places.temporary,
                run_id=self._home.run_id,
            )
            program = await trio.to_thread.run_sync(
                find_program, self._adapter, self._trusted.programs, environ
            )
            self._argv = self._launch.shown(program)
            self._contained = await find_containment(self._containment)
            self._lease = await trio.to_thread.run_sync(
                open_home, self._home, self._launch.files, self._launch.tidy
            )
            if self._cause is None:
                self._child = await start(
                    self._contained,
                    (*program, *self._launch.arguments),
                    environ,
                    work=self._home.places.work,
                    run_id=self._home.run_id,
                    has_stdin=bool(self._launch.stdin),
                )
                self._spawned = trio.current_time()
        finally:
            self._opening.set()
        if self._cause is not None:
            raise as_error(self._cause)

    def serve(self, nursery: trio.Nursery) -> None:
        """Start the side tasks."""
        self._served = True
        child = self._started_child()
        nursery.start_soon(write_stdin, child, self._launch.stdin)
        nursery.start_soon(self._tail.read, child)
        nursery.start_soon(self._watch_exit, child)

    async def abort(self, cause: Failure) -> None:
        """End the run from another task. Its reader gets `cause` as the terminal event."""
        if self._end is None and self._cause is None:
            self._cause = cause
        self._wake()
        with trio.CancelScope(shield=True):
            await self._opening.wait()
            await self.dispose("closed")

    @trio.lowlevel.enable_ki_protection
    async def dispose(self, cause: Cause) -> None:
        """End the processes, close the pipes, remove the files: once, whoever calls first.

        Shielded. Takes at most the grace period, the two bounds of `Child.end`, the drain limit and
        the second of `remove_home`.
        """
        with trio.CancelScope(shield=True):
            if self._disposing is not None:
                await self._disposing.wait()
                return
            self._disposing = trio.Event()
            try:
                await self._dispose(cause)
            finally:
                self._disposing.set()

    async def _dispose(self, cause: Cause) -> None:
        await self._end_processes(cause)
        began = trio.current_time()
        if self._child is not None:
            if self._served:
                with trio.move_on_after(self.request.timeouts.drain):
                    await self._tail.finished.wait()
            await self._child.close()
        if self._lease is not None:
            left = await trio.to_thread.run_sync(close_home, self._home, self._lease)
            self._leftovers = (*self._leftovers, *left)
        self._end_seconds += trio.current_time() - began

    @trio.lowlevel.enable_ki_protection
    async def _end_processes(self, cause: Cause) -> None:
        with trio.CancelScope(shield=True):
            if self._ending is not None:
                await self._ending.wait()
                return
            self._ending = trio.Event()
            began = trio.current_time()
            try:
                if self._child is not None:
                    way = ending(cause, leader_ended=self._child.exit is not None)
                    self._killed, self._leftovers = await self._child.end(
                        polite=self._launch.polite,
                        grace=self.request.timeouts.grace if way.asked else 0.0,
                    )
            finally:
                self._end_seconds += trio.current_time() - began
                self._ending.set()

    # ---- reading

    async def _advance(self) -> None:
        """One step towards the end: read a chunk, or settle."""
        if self._cause is None:
            self._cause = self._accumulator.violation
        if self._cause is not None:
            return await self._settle()
        child = self._started_child()
        if child.exit is not None:
            return await self._drain(child)
        self._account()
        seconds, limit = self._deadlines.next()
        if seconds > 0:
            chunk = await self._receive(child, seconds)
            if chunk is not None:
                return await self._take_chunk(child, chunk)
        elif limit == "linger":
            return await self._settle()
        else:
            self._cause = failure(limit)
        return None

    async def _receive(self, child: Child | GuardedChild, seconds: float) -> bytes | None:
        """The next bytes, b"" at the end of the stream, or None when woken or out of time."""
        try:
            with trio.move_on_after(seconds) as self._wait:
                return await child.stdout.receive_some(_CHUNK)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return b""
        finally:
            self._wait = None
            self._account()

    def _account(self) -> None:
        """Tell the limits of the time since the last look: waits and our own work alike.

        Waits alone would not do: a CLI that prints without a pause is never waited for.
        """
        now = trio.current_time()
        self._deadlines.waited(now - self._mark)
        self._mark = now

    async def _take_chunk(self, child: Child | GuardedChild, chunk: bytes) -> None:
        if chunk:
            self._deadlines.first_byte()
            self._read(chunk)
            if self._read_bytes > self.request.limits.stdout:
                self._cause = failure("output.stdout")
            return
        # The CLI has closed its output. Whether it ends by itself is a question of the linger limit.
        self._deadlines.turn_ended()
        seconds, _ = self._deadlines.next()
        with trio.move_on_after(seconds):
            await child.wait()
        await self._settle()

    async def _drain(self, child: Child | GuardedChild) -> None:
        """The leader has ended: kill what is left of its group, then read what is in the pipe."""
        await self._end_processes("itself")
        chunk = await self._receive(child, self.request.timeouts.drain)
        if chunk:
            self._read(chunk)
        else:
            await self._settle()

    def _read(self, chunk: bytes) -> None:
        self._read_bytes += len(chunk)
        self._take_lines(self._framer.feed(chunk))

    def _take_lines(self, lines: Sequence[bytes | Dropped]) -> None:
        at = datetime.now(UTC)
        for line in lines:
            if isinstance(line, Dropped):
                self._dropped_lines += 1
                self._dropped_bytes += line.size
                told = f"A line of {line.size} bytes was over the limit and is dropped."
                self._take(Notice(code="line_dropped", message=told))
                continue
            for value in read_objects(line):
                if isinstance(value, Unrecognized):
                    self._take(value)
                else:
                    for record in self._decoder.record(value, len(line), at):
                        self._take(record)

    def _take(self, record: Record) -> None:
        now = trio.current_time()
        self._first_event = self._first_event or now
        if isinstance(record, (Text, TextDelta)):
            self._first_text = self._first_text or now
        if isinstance(record, MADE_PROGRESS):
            self._deadlines.progress()
        if isinstance(record, ToolStarted):
            self._deadlines.tool_started(record.id)
        elif isinstance(record, ToolFinished):
            self._deadlines.tool_finished(record.id)
        if isinstance(record, TurnEnded):
            self._deadlines.turn_ended()
        elif isinstance(record, Started):
            self._deadlines.turn_resumed()
        event = self._accumulator.take(record)
        if event is not None:
            self._pending.append(event)

    # ---- the end

    async def _settle(self) -> None:
        """Clean up, judge, and put the terminal event behind what is pending."""
        cause = cause_of(self._cause)
        await self.dispose(cause)
        if ending(cause, leader_ended=self._started_child().exit is not None).rest_read:
            self._take_lines(self._framer.finish())
        ended = self._exit()
        verdict = self._accumulator.settle(
            End(
                exit=ended,
                cause=self._cause,
                diagnosis=self._adapter.diagnose(ended, _COLOUR.sub("", self._tail.text())),
                dropped=self._dropped_lines,
            )
        )
        if verdict.failure is None:
            self._end = Done(completion=self._complete(verdict, ended))
        else:
            fact = about(verdict.failure, self.request.provider)
            self._end = Failed(error=as_error(fact, self._partial(verdict, ended)))
        self._pending.append(self._end)

    def _complete(self, verdict: Verdict, ended: Exit) -> Completion[Data]:
        kept, started = self._accumulator, self._accumulator.started
        return Completion(
            text=verdict.text,
            data=verdict.data,
            usage=kept.usage,
            cost=kept.cost,
            billing=self._decoder.billing(),
            model=kept.model,
            session_id=None if started is None else started.session_id,
            effort=self.request.effort,
            latency=self._latency(),
            exit=ended,
            cleanup=self._cleanup(),
            warnings=verdict.warnings,
            provider=self.request.provider,
            cli_version=None if started is None else started.cli_version,
            argv=self._argv,
            metadata=self.request.metadata,
        )

    def _partial(self, verdict: Verdict, ended: Exit) -> Partial:
        kept, started = self._accumulator, self._accumulator.started
        return Partial(
            text=verdict.text,
            usage=kept.usage,
            cost=kept.cost,
            session_id=None if started is None else started.session_id,
            model=kept.model,
            exit=ended,
            cleanup=self._cleanup(),
            warnings=verdict.warnings,
            argv=self._argv,
        )

    def _cleanup(self) -> Cleanup:
        child = self._started_child()
        used = child.resources
        return Cleanup(
            mode=child.mode,
            proven=child.proven,
            weakness=self._contained.reason,
            killed=self._killed,
            seconds=self._end_seconds,
            dropped_bytes=self._dropped_bytes,
            leftovers=self._leftovers,
            cpu_seconds=None if used is None else used.user_seconds + used.system_seconds,
            peak_bytes=None if used is None else used.peak_bytes,
        )

    def _latency(self) -> Latency:
        def since(moment: float | None) -> float | None:
            return None if moment is None else moment - self._began

        return Latency(
            spawn=since(self._spawned) or 0.0,
            first_event=since(self._first_event),
            first_text=since(self._first_text),
            total=trio.current_time() - self._began,
        )

    def _exit(self) -> Exit:
        ended = self._started_child().exit
        # A leader that even SIGKILL did not end is reported in the leftovers.
        return ended or Exit(code=None, signal=None, ended_by_us=True)

    async def _watch_exit(self, child: Child | GuardedChild) -> None:
        await child.wait()
        self._wake()

    def _wake(self) -> None:
        if self._wait is not None:
            self._wait.cancel()

    def _started_child(self) -> Child | GuardedChild:
        assert self._child is not None, "the run was not opened"
        return self._child
