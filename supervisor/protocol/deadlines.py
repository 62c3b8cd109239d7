"""How long the next wait may last, and which limit it would be that ends it.

Pure bookkeeping in seconds that were waited, so that the caller's own work between two events costs
nothing, and so that tests need no clock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from supervisor.model.events import (
    ErrorReported,
    Reasoning,
    Started,
    Text,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)

if TYPE_CHECKING:
    from supervisor.model.events import Record
    from supervisor.model.request import Timeouts

AFTER_FINAL_ERROR = 30.0
"""Seconds of silence after an error that no repeat will mend, such as a usage limit. codex was seen to
go silent for hours then."""

MADE_PROGRESS = (Text, TextDelta, Reasoning, ToolStarted, ToolFinished, ErrorReported, TurnEnded)
"""The records that show a run to be alive. Status lines do not: one CLI was seen to print a status
each second for as long as it hung."""

Limit = Literal["timeout.start", "timeout.idle", "timeout.tool", "timeout.total", "linger"]
"""The error that a limit ends the run with; after a terminal event it is none."""


class Deadlines:
    """Limits of one run. Tell it what happened; ask it how long to wait."""

    def __init__(self, timeouts: Timeouts, *, silent_while_thinking: bool) -> None:
        self._timeouts = timeouts
        self._idle = math.inf if silent_while_thinking else _seconds(timeouts.idle)
        self._waited = 0.0
        self._since_progress = 0.0
        self._since_end: float | None = None
        self._started = False
        self._tools: dict[str, float] = {}
        self._since_final_error: float | None = None

    def waited(self, seconds: float) -> None:
        """Our own wait took this long."""
        self._waited += seconds
        self._since_progress += seconds
        if self._since_end is not None:
            self._since_end += seconds
        if self._since_final_error is not None:
            self._since_final_error += seconds

    def first_byte(self) -> None:
        """The CLI printed something."""
        self._started = True

    def progress(self) -> None:
        """Text, reasoning, a tool or an error came: the idle limit starts anew."""
        self._since_progress = 0.0
        self._since_final_error = None

    def final_error(self) -> None:
        """The CLI reported an error that no repeat will mend: it should end soon."""
        self._since_final_error = 0.0

    def tool_started(self, name: str) -> None:
        """A tool call is open: it has its own limit, and silence is no hang."""
        self._tools[name] = self._waited

    def tool_finished(self, name: str) -> None:
        """A tool call has ended; one that nobody knows is passed over."""
        self._tools.pop(name, None)

    def turn_ended(self) -> None:
        """The CLI's terminal event came: the linger limit starts, or starts anew."""
        self._since_end = 0.0
        self._tools.clear()

    def turn_resumed(self) -> None:
        """A new turn began after a terminal event: the linger limit no longer runs."""
        self._since_end = None

    def total_left(self) -> float:
        """Seconds that are left of the whole run's limit; below 0 when it has passed."""
        return _seconds(self._timeouts.total) - self._waited

    def take(self, record: Record) -> None:
        """Note what a record means for the limits."""
        match record:
            case ToolStarted():
                self.tool_started(record.id)
            case ToolFinished():
                self.tool_finished(record.id)
            case TurnEnded():
                self.turn_ended()
            case Started():
                self.turn_resumed()
            case _:
                pass
        if isinstance(record, MADE_PROGRESS):
            self.progress()
        if isinstance(record, ErrorReported) and not record.failure.retryable:
            self.final_error()

    def next(self) -> tuple[float, Limit]:
        """Seconds until the first limit, at least 0 and perhaps infinite, and which it is."""
        limits: list[tuple[float, Limit]] = [
            (self.total_left(), "timeout.total"),
        ]
        if self._since_final_error is not None:
            # Also for a CLI that is silent while it thinks: it has nothing to think about any more.
            least = min(_seconds(self._timeouts.idle), AFTER_FINAL_ERROR)
            limits.append((least - self._since_final_error, "timeout.idle"))
        if self._since_end is not None:
            limits.append((self._timeouts.linger - self._since_end, "linger"))
        elif self._tools:
            oldest = self._waited - min(self._tools.values())
            limits.append((_seconds(self._timeouts.tool) - oldest, "timeout.tool"))
        elif self._started:
            limits.append((self._idle - self._since_progress, "timeout.idle"))
        else:
            limits.append((_seconds(self._timeouts.start) - self._waited, "timeout.start"))
        seconds, limit = min(limits)
        return max(0.0, seconds), limit


def _seconds(limit: float | None) -> float:
    return math.inf if limit is None else limit
