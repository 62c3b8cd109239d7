"""One start of a CLI: its child process served, read, judged and cleaned away.

The consumer pulls: each `__anext__` reads, frames, decodes and hands out one event. Side tasks write
standard input, keep the end of standard error and watch for the exit; they never raise.

States, each left for good:

    opening ─▶ reading ─▶ draining ─▶ settled
       │          │           │          ▲
       └──────────┴───────────┴──────────┘   a limit, a breach, close(), or leaving the block

reading    the leader lives; our own limits run
draining   the leader has ended and nothing of the run lives; what is in the pipe is still read
settled    processes, pipes and files are gone; the verdict stands
"""

from __future__ import annotations

import re
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

import trio

from supervisor.model.completion import Cleanup, Completion, Exit, Latency, Partial
from supervisor.model.errors import Failure, about, as_error, failure
from supervisor.model.events import (
    Done,
    Event,
    Failed,
    Notice,
    Text,
    TextDelta,
    Unrecognized,
)
from supervisor.model.request import Data
from supervisor.process.pump import read_now
from supervisor.protocol.accumulate import Accumulator, End, Verdict
from supervisor.protocol.deadlines import Deadlines
from supervisor.protocol.decode import is_utf8, read_objects
from supervisor.protocol.ending import cause_of, ending
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.redact import shown_argv

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from supervisor.model.adapter import Surroundings
    from supervisor.model.events import Record
    from supervisor.model.request import Request
    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild
    from supervisor.process.life import Life
    from supervisor.trusted import Trusted

_CHUNK = 65536
_DRAIN_LEAST = 1.0
"""Seconds in which the rest of the output is read, although the run's whole time may be over."""
_REPLACED = "A line held bytes that are not UTF-8; U+FFFD stands in their place."
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_COLOUR_BYTES = re.compile(_COLOUR.pattern.encode())


class Attempt(Generic[Data]):
    """One start of a CLI: an async iterator of events, of which the last is `Done` or `Failed`.

    One task reads it. Asking for the next event is a checkpoint when it has to be waited for.
    """

    def __init__(
        self,
        own: Request[Data],
        request: Request[Any],
        trusted: Trusted,
        surroundings: Surroundings,
        life: Life,
    ) -> None:
        """Plan a start.

        Args:
            own: the caller's request.
            request: the same as `asked` makes it.
            trusted, surroundings: what the plan may know.
            life: what will hold the processes and files.

        Raises:
            SupervisorError: the CLI cannot honour the request.
        """
        self.request = own
        self._adapter = trusted.adapter
        self._trusted = trusted
        self._life = life
        self._launch = self._adapter.plan(request, surroundings)
        self._decoder = self._adapter.decoder(request, surroundings)
        self._framer = Framer(request.limits.line_bytes)
        self._accumulator = Accumulator(
            request, own, optional_as_null=self._launch.optional_as_null
        )
        self._deadlines = Deadlines(
            request.timeouts, silent_while_thinking=self._launch.silent_while_thinking
        )
        self._began = self._mark = trio.current_time()
        self._spawned: float | None = None
        self._first_event: float | None = None
        self._first_text: float | None = None
        self._pending: deque[Event] = deque()
        self._argv: tuple[str, ...] = ()
        self._wait: trio.CancelScope | None = None
        self._cause: Failure | None = None
        self._read_bytes = self._dropped_bytes = self._dropped_lines = 0
        self._output_ended = False
        self._drain_until: float | None = None
        self._end: Done | Failed | None = None

    # ---- for the consumer

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the last one is `Done` or `Failed`."""
        if not self._pending:
            self._mark = trio.current_time()
            try:
                while not self._pending:
                    if self._end is not None:
                        raise StopAsyncIteration
                    await self._step()
            finally:
                self._account()
        return self._pending.popleft()

    # ---- for the run

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What could not be cleaned."""
        return self._life.leftovers

    async def open(self, *, reap_first: bool) -> None:
        """Start the CLI.

        Raises:
            SupervisorError: it does not start. `dispose` removes what was made.
        """
        environ = self._trusted.environment(self._launch, self._life)
        try:
            program = await self._life.prepare(
                self._adapter,
                self._trusted.programs,
                environ,
                self._trusted.containment,
                reap_first=reap_first,
            )
            self._argv = shown_argv(program, self._launch)
            started = await self._life.open(self._launch, program, environ)
        finally:
            self._life.opened()
        self._spawned = trio.current_time()
        if not started:
            raise as_error(self._cause or failure("supervisor.closed"))

    @property
    def spawned(self) -> bool:
        """Whether the CLI was started."""
        return self._spawned is not None

    @property
    def login(self) -> str | None:
        """See `Trusted.login`."""
        return self._trusted.login

    def partial(self) -> Partial:
        """What there is of an attempt that nobody reads to its end."""
        return self._partial((), None if self._life.child is None else self._life.child.exit)

    def serve(self, nursery: trio.Nursery) -> None:
        """Start the side tasks."""
        self._life.serve(nursery)
        nursery.start_soon(self._watch_exit)

    async def abort(self, cause: Failure) -> None:
        """End the run from another task. Its reader gets `cause` as the terminal event."""
        if self._end is None and self._cause is None:
            self._cause = cause
        self._wake()
        with trio.CancelScope(shield=True):
            await self._life.stop_opening()
        await self._life.remove("closed")

    async def dispose(self) -> None:
        """Leave the run: nothing of it stays. See `Life.remove`."""
        self._life.opened()
        await self._life.remove("left")

    # ---- reading

    async def _step(self) -> None:
        """One step towards the end. What goes wrong in our own code is told as `internal`."""
        try:
            await self._advance()
        except Exception as bug:
            await self._life.remove("left")
            named = f"This library failed with {type(bug).__name__}."
            error = as_error(failure("internal", named), Partial(argv=self._argv))
            error.__cause__ = bug
            self._finish(Failed(error=error))

    async def _advance(self) -> None:
        """Read a chunk and take what it says, or settle."""
        child = self._started_child()
        if self._stopped():
            await self._settle()
        elif child.exit is not None:
            await self._drain(child)
        else:
            self._account()
            seconds, limit = self._deadlines.next()
            if seconds > 0:
                await self._listen(child, seconds)
            elif limit == "linger":
                await self._settle()
            else:
                self._cause = failure(limit)

    async def _listen(self, child: Child | GuardedChild, seconds: float) -> None:
        """Wait for output, or for the exit of a CLI that has closed its output."""
        if self._output_ended:
            with trio.move_on_after(seconds) as self._wait:
                await child.wait()
            return
        chunk = await self._receive(child, seconds)
        if chunk:
            self._deadlines.first_byte()
            await self._read(chunk)
        elif chunk is not None:
            # Whether it ends by itself now is a question of the linger limit.
            self._output_ended = True
            self._deadlines.turn_ended()

    async def _drain(self, child: Child | GuardedChild) -> None:
        """The leader has ended: end what is left of the run, then read what is in the pipe."""
        await self._life.end("itself")
        self._account()
        await trio.lowlevel.checkpoint()
        if self._drain_until is None:
            self._drain_until = trio.current_time() + max(
                self._deadlines.total_left(), _DRAIN_LEAST
            )
        left = self._drain_until - trio.current_time()
        # First without waiting: a consumer that was busy elsewhere shall not lose what is there.
        chunk = None if self._output_ended else read_now(child)
        if chunk is None and not self._output_ended:
            chunk = await self._receive(child, min(self.request.timeouts.drain, left))
        if not chunk:
            await self._settle()
        elif left <= 0:  # somebody writes and writes who was not found
            self._cause = failure("timeout.total")
        else:
            await self._read(chunk)

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

    def _stopped(self) -> bool:
        """Whether there is a cause of ours to end the run."""
        if self._cause is None:
            self._cause = self._accumulator.violation
        return self._cause is not None

    async def _read(self, chunk: bytes) -> None:
        """Take a chunk. A breach in it ends the run before its events are handed out."""
        self._read_bytes += len(chunk)
        self._take_lines(self._framer.feed(chunk))
        if self._read_bytes > self.request.limits.stdout and self._cause is None:
            self._cause = failure("output.stdout")
        if self._stopped():
            await self._settle()

    def _take_lines(self, lines: Sequence[bytes | Dropped]) -> None:
        at = datetime.now().astimezone()
        for line in lines:
            if isinstance(line, Dropped):
                self._dropped_lines += 1
                self._dropped_bytes += line.size
                self._accumulator.line_lost("output.line")
                told = f"A line of {line.size} bytes was over the limit and is dropped."
                self._take(Notice(code="line_dropped", message=told))
                continue
            if self._launch.terminal:
                line = _COLOUR_BYTES.sub(b"", line)
            for value in read_objects(line):
                if isinstance(value, Unrecognized):
                    if line.lstrip().startswith(b"{"):  # an event, cut or mixed with another
                        self._accumulator.line_lost("protocol.truncated")
                    self._take(value)
                else:
                    if not is_utf8(line):
                        self._take(Notice(code="warning", message=_REPLACED))
                    for record in self._decoder.record(value, len(line), at):
                        self._take(record)

    def _take(self, record: Record) -> None:
        now = trio.current_time()
        self._first_event = self._first_event or now
        if isinstance(record, (Text, TextDelta)):
            self._first_text = self._first_text or now
        self._deadlines.take(record)
        event = self._accumulator.take(record)
        if event is not None:
            self._pending.append(event)

    # ---- the end

    async def _settle(self) -> None:
        """Clean up, judge, and put the terminal event behind what is pending."""
        cause = cause_of(self._cause)
        child = self._started_child()
        rest_read = ending(cause, leader_ended=child.exit is not None).rest_read
        await self._life.remove(cause)
        if rest_read:
            self._take_lines(self._framer.finish())
        # A leader that even SIGKILL did not end is reported in the leftovers.
        ended = child.exit or Exit(code=None, signal=None, ended_by_us=True)
        verdict = self._accumulator.settle(
            End(
                exit=ended,
                cause=self._cause,
                diagnosis=self._adapter.diagnose(ended, _COLOUR.sub("", self._life.tail.text())),
                dropped=self._dropped_lines,
            )
        )
        if verdict.failure is None:
            self._finish(Done(completion=self._complete(verdict, ended)))
        else:
            fact = about(verdict.failure, self.request.provider)
            self._finish(Failed(error=as_error(fact, self._partial(verdict.warnings, ended))))

    def _finish(self, end: Done | Failed) -> None:
        self._end = end
        self._pending.append(end)

    def _complete(self, verdict: Verdict, ended: Exit) -> Completion[Data]:
        kept, started = self._accumulator, self._accumulator.started
        said = () if started is None else started.loaded
        return Completion(
            text=verdict.text,
            data=verdict.data,
            decision=verdict.decision,
            usage=kept.usage,
            cost=kept.cost,
            billing=self._decoder.billing(),
            model=kept.model or self._launch.model,
            session_id=None if started is None else started.session_id,
            effort=self._launch.effort,
            effort_source=self._launch.effort_source,
            login=self._trusted.login,
            loaded=None
            if said is None and not self._launch.loaded
            else (*(said or ()), *self._launch.loaded),
            attempts=1,
            latency=self._latency(),
            exit=ended,
            cleanup=self._cleanup(),
            warnings=(*self._launch.warnings, *verdict.warnings),
            provider=self.request.provider,
            cli_version=None if started is None else started.cli_version,
            argv=self._argv,
            metadata=self.request.metadata,
        )

    def _partial(self, warnings: tuple[Failure, ...], ended: Exit | None) -> Partial:
        kept, started = self._accumulator, self._accumulator.started
        return Partial(
            text=kept.text,
            usage=kept.usage,
            cost=kept.cost,
            session_id=None if started is None else started.session_id,
            model=kept.model or self._launch.model,
            exit=ended,
            cleanup=None if self._life.child is None else self._cleanup(),
            warnings=(*self._launch.warnings, *warnings),
            argv=self._argv,
        )

    def _cleanup(self) -> Cleanup:
        child = self._started_child()
        used = child.resources
        return Cleanup(
            mode=child.mode,
            proven=child.proven,
            weakness=self._life.contained.reason,
            killed=self._life.killed,
            seconds=self._life.seconds,
            dropped_bytes=self._dropped_bytes,
            leftovers=self._life.leftovers,
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

    async def _watch_exit(self) -> None:
        await self._started_child().wait()
        self._wake()

    def _wake(self) -> None:
        if self._wait is not None:
            self._wait.cancel()

    def _started_child(self) -> Child | GuardedChild:
        assert self._life.child is not None, "the run was not opened"
        return self._life.child
