"""One run: its child process served, read, judged and cleaned away.

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
    Text,
    TextDelta,
    Unrecognized,
)
from supervisor.model.request import Data
from supervisor.process.life import Life
from supervisor.process.pump import read_now
from supervisor.protocol.accumulate import Accumulator, End, Verdict
from supervisor.protocol.deadlines import Deadlines
from supervisor.protocol.decode import read_objects
from supervisor.protocol.ending import cause_of, ending
from supervisor.protocol.environment import base_environment, child_environment
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.redact import shown_argv

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from supervisor.model.adapter import Adapter
    from supervisor.model.events import Record
    from supervisor.model.request import Request
    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild
    from supervisor.process.start import Containment

_CHUNK = 65536
_DRAIN_LEAST = 1.0
"""Seconds in which the rest of the output is read, although the run's whole time may be over."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Trusted:
    """What the application says of one provider: never part of a Request.

    Attributes:
        programs: the program to start and its fixed arguments, None for the one on PATH.
        keep: names of variables to let through.
        variables: variables to set.
        base: what passes of the environment, see `base_environment`.
        known: `base` with `variables`: what an adapter may rely on.
    """

    def __init__(
        self,
        adapter: Adapter,
        environ: Mapping[str, str],
        programs: Sequence[str] | None,
        keep: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self.programs = programs
        self.keep = tuple(keep)
        self.variables = dict(variables)
        self.base = base_environment(environ, (*adapter.variables, *self.keep))
        self.known = {**self.base, **self.variables}


class Run(Generic[Data]):
    """A run under way: an async iterator of events, then `completion`.

    It is made by `Supervisor.stream`. One task reads it. Asking for the next event is a checkpoint when
    it has to be waited for.
    """

    def __init__(
        self,
        request: Request[Data],
        adapter: Adapter,
        trusted: Trusted,
        found: Sequence[str],
        state_dir: str,
        containment: Containment,
    ) -> None:
        self.request = request
        self._adapter = adapter
        self._trusted = trusted
        self._containment: Containment = containment
        self._life = Life(state_dir, request.timeouts, request.limits)
        self._launch = adapter.plan(request, self._life.home.places, trusted.known, found)
        self._decoder = adapter.decoder(request, trusted.known)
        self._framer = Framer(request.limits.line_bytes)
        self._accumulator = Accumulator(request, optional_as_null=self._launch.optional_as_null)
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
        return self._life.leftovers

    async def open(self, *, reap_first: bool) -> None:
        """Start the CLI.

        Raises:
            SupervisorError: it does not start. `dispose` removes what was made.
        """
        environ = child_environment(
            self._trusted.base,
            self._launch.environment,
            self._trusted.keep,
            self._trusted.variables,
            temporary=self._life.home.places.temporary,
            run_id=self._life.home.run_id,
        )
        try:
            program = await self._life.prepare(
                self._adapter,
                self._trusted.programs,
                environ,
                self._containment,
                reap_first=reap_first,
            )
            self._argv = shown_argv(program, self._launch)
            started = await self._life.open(self._launch, program, environ)
        finally:
            self._life.opened()
        self._spawned = trio.current_time()
        if not started:
            raise as_error(self._cause or failure("supervisor.closed"))

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
        at = datetime.now(UTC)
        for line in lines:
            if isinstance(line, Dropped):
                self._dropped_lines += 1
                self._dropped_bytes += line.size
                self._accumulator.line_lost("output.line")
                told = f"A line of {line.size} bytes was over the limit and is dropped."
                self._take(Notice(code="line_dropped", message=told))
                continue
            for value in read_objects(line):
                if isinstance(value, Unrecognized):
                    if line.lstrip().startswith(b"{"):  # an event, cut or mixed with another
                        self._accumulator.line_lost("protocol.truncated")
                    self._take(value)
                else:
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
            self._finish(Failed(error=as_error(fact, self._partial(verdict, ended))))

    def _finish(self, end: Done | Failed) -> None:
        self._end = end
        self._pending.append(end)

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
