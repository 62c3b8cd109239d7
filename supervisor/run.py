"""A run: one start of a CLI, and a second one where the answer missed its schema."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

import trio

from supervisor.model.errors import SupervisorError, as_error
from supervisor.model.events import Done, Event, Failed, Notice
from supervisor.model.request import Data
from supervisor.protocol.asked import repaired
from supervisor.protocol.usage import summed_cost, summed_usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from supervisor.attempt import Attempt
    from supervisor.model.completion import Completion, Partial
    from supervisor.model.errors import Failure
    from supervisor.model.request import Request

_REPAIRABLE = ("answer.schema", "answer.not_json")


class Run(Generic[Data]):
    """A run under way: an async iterator of events, then `completion`.

    It is made by `Supervisor.stream`. One task reads it. Asking for the next event is a checkpoint when
    it has to be waited for.

    Attributes:
        request: what was asked.
        notices: how many `Notice` events came so far.
    """

    def __init__(
        self,
        request: Request[Data],
        first: Attempt[Data],
        prepare: Callable[[Request[Data]], Awaitable[Attempt[Data]]],
    ) -> None:
        self.request = request
        self.notices = 0
        self._attempts = [first]
        self._prepare = prepare
        self._nursery: trio.Nursery | None = None
        self._pending: deque[Event] = deque()
        self._lost: Partial | None = None
        self._closed: Failure | None = None
        self._end: Done | Failed | None = None
        self._began = trio.current_time()

    # ---- for the consumer

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the last one is `Done` or `Failed`."""
        if self._pending:
            return self._pending.popleft()
        if self._end is not None:
            raise StopAsyncIteration
        event = await anext(self._attempts[-1])
        if isinstance(event, Notice):
            self.notices += 1
        if isinstance(event, Failed) and self._may_repair(event):
            return await self._repair(event)
        if isinstance(event, (Done, Failed)):
            self._end = event = self._summed(event)
        return event

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
    def end(self) -> Done | Failed | None:
        """The terminal event, None before it came."""
        return self._end

    @property
    def started(self) -> bool:
        """Whether the CLI was started."""
        return self._attempts[0].spawned

    @property
    def kept(self) -> Completion[Data] | Partial:
        """What there is of the run, whether it has ended or not."""
        if isinstance(self._end, Done):
            return self._end.completion
        kept = None if self._end is None else self._end.error.partial
        return kept or self._attempts[-1].partial()

    @property
    def failure(self) -> Failure | None:
        """Why there is no answer: the error, or that it was closed before anybody read it."""
        if isinstance(self._end, Failed):
            return self._end.error.failure
        return self._closed if self._end is None else None

    @property
    def login(self) -> str | None:
        """The name of the login that is used, None for the CLI's own."""
        return self._attempts[0].login

    @property
    def attempts(self) -> int:
        """How many times the CLI was to be started."""
        return len(self._attempts)

    @property
    def seconds(self) -> float:
        """How long ago the run was made."""
        return trio.current_time() - self._began

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What could not be cleaned."""
        return tuple(left for attempt in self._attempts for left in attempt.leftovers)

    async def open(self, *, reap_first: bool) -> None:
        """Start the CLI. See `Attempt.open`."""
        await self._attempts[0].open(reap_first=reap_first)

    def serve(self, nursery: trio.Nursery) -> None:
        """Start the side tasks."""
        self._nursery = nursery
        self._attempts[-1].serve(nursery)

    async def abort(self, cause: Failure) -> None:
        """End the run from another task. Its reader gets `cause` as the terminal event."""
        self._closed = cause
        await self._attempts[-1].abort(cause)

    async def dispose(self) -> None:
        """Leave the run: nothing of it stays."""
        for attempt in self._attempts:
            await attempt.dispose()

    # ---- the second round

    def _may_repair(self, event: Failed) -> bool:
        return (
            self.request.repair == 1
            and len(self._attempts) == 1
            and self._closed is None
            and event.error.code in _REPAIRABLE
        )

    async def _repair(self, event: Failed) -> Event:
        """Start the second round; what was spent on the first is kept."""
        error, kept = event.error, event.error.partial
        self._lost = kept
        # Only a session that the CLI keeps can be gone on with.
        keeps = self.request.keep_session or self.request.resume is not None
        session = kept.session_id if kept is not None and keeps else None
        text = "" if kept is None else kept.text
        try:
            attempt = await self._prepare(repaired(self.request, text, error.failure, session))
            self._attempts.append(attempt)
            if self._closed is not None:
                raise as_error(self._closed)
            await attempt.open(reap_first=False)
        except SupervisorError as second:
            self._end = Failed(error=as_error(second.failure, kept))
            return self._end
        assert self._nursery is not None
        attempt.serve(self._nursery)
        self.notices += 1
        return Notice(
            code="repair", message="The answer missed its schema; the model is asked once more."
        )

    def _summed(self, event: Done | Failed) -> Done | Failed:
        """The terminal event of the last round, with what the first one cost."""
        first = self._lost
        if first is None:
            return event
        if isinstance(event, Failed):
            kept = event.error.partial
            if kept is not None:
                kept = replace(
                    kept,
                    usage=summed_usage(first.usage, kept.usage),
                    cost=summed_cost(first.cost, kept.cost),
                )
            return Failed(error=as_error(event.error.failure, kept))
        done = event.completion
        return Done(
            completion=replace(
                done,
                attempts=2,
                usage=summed_usage(first.usage, done.usage),
                cost=summed_cost(first.cost, done.cost),
                latency=replace(done.latency, total=self.seconds),
                metadata=self.request.metadata,
            )
        )
