"""The application's callbacks, called when nothing of a run is left."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from supervisor.model.events import Done
from supervisor.model.reports import Diagnostic, UsageReport
from supervisor.protocol.usage import reported

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisor.run import Run

    Report = TypeVar("Report", UsageReport, Diagnostic)

_LOG = logging.getLogger("supervisor")
_BOUND = 10.0
"""Seconds that one callback may take: it runs while a run is being left, also under cancellation."""


class Reports:
    """Calls the callbacks, one after the other for one run, and knows which still run."""

    def __init__(
        self,
        on_usage: Callable[[UsageReport], Awaitable[object]] | None,
        on_diagnostic: Callable[[Diagnostic], Awaitable[object]] | None,
    ) -> None:
        self._on_usage = on_usage
        self._on_diagnostic = on_diagnostic
        self._told: weakref.WeakSet[Run[Any]] = weakref.WeakSet()
        self._sending = 0
        self._idle = trio.Event()

    async def send(self, run: Run[Any]) -> None:
        """Tell of a run that is over, once. Never raises; shielded and bounded."""
        if run in self._told or (self._on_usage is None and self._on_diagnostic is None):
            return
        self._told.add(run)
        self._sending += 1
        try:
            usage = usage_report(run)
            if self._on_usage is not None and usage is not None:
                await _call(self._on_usage, usage)
            if self._on_diagnostic is not None:
                await _call(self._on_diagnostic, diagnostic(run))
        finally:
            self._sending -= 1
            if not self._sending:
                self._idle.set()
                self._idle = trio.Event()

    async def settle(self) -> None:
        """Wait until no callback runs any more. Bounded, since each of them is."""
        while self._sending:
            await self._idle.wait()


def usage_report(run: Run[Any]) -> UsageReport | None:
    """What a run used; None where the CLI reported nothing."""
    kept = run.kept
    if kept.usage is None and kept.cost is None:
        return None
    return UsageReport(
        provider=run.request.provider,
        login=run.login,
        model=kept.model,
        counters={} if kept.usage is None else reported(kept.usage),
        cost_usd=None if kept.cost is None else kept.cost.reported_usd,
        metadata=run.request.metadata,
    )


def diagnostic(run: Run[Any]) -> Diagnostic:
    """How a run went."""
    fact, ended = run.failure, run.kept.exit
    return Diagnostic(
        provider=run.request.provider,
        status="done" if isinstance(run.end, Done) else "left" if fact is None else "failed",
        code=None if fact is None else fact.code,
        exit_code=None if ended is None else ended.code,
        signal=None if ended is None else ended.signal,
        notices=run.notices,
        attempts=run.attempts,
        seconds=run.seconds,
        metadata=run.request.metadata,
    )


async def _call(callback: Callable[[Report], Awaitable[object]], report: Report) -> None:
    with trio.move_on_after(_BOUND, shield=True) as scope:
        try:
            await callback(report)
        except Exception as error:
            # The message is left out: it may hold anything.
            _LOG.warning("a callback failed with %s", type(error).__name__)
    if scope.cancelled_caught:
        _LOG.warning("a callback was ended after %g seconds", _BOUND)
