"""What a person sees of a run: one line an event on standard error, the answer on standard output."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text as Styled

from supervisor.model.events import (
    Done,
    Failed,
    FileChanged,
    Notice,
    RateLimit,
    Reasoning,
    Started,
    Text,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Unrecognized,
    UsageReported,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.status import Status

    from supervisor.model.completion import Completion, Usage
    from supervisor.model.errors import SupervisorError
    from supervisor.model.events import Event


class View:
    """Shows events as they come. On anything but a terminal it shows nothing but errors."""

    def __init__(self, provider: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._provider = provider
        self._began = time.monotonic()
        self._text = ""
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(f"{self._provider} starts …")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, event: Event) -> None:
        """One event. The text of the answer is shown as it grows, and printed at the end only."""
        if self._status is None:
            return
        if isinstance(event, (Text, TextDelta)):
            self._text = event.text if isinstance(event, Text) else self._text + event.text
            tail = " ".join(self._text.split())[-60:]
            self._status.update(Styled(f"{self._clock()} {tail}"))
            return
        line = describe(event)
        if line is not None:
            self._console.print(Styled(f"{self._clock()} ", style="dim") + line)
        if isinstance(event, Reasoning):
            self._status.update(Styled(f"{self._clock()} {self._provider} thinks …"))

    def fail(self, error: SupervisorError) -> None:
        """An error as one sentence, and what to do next."""
        self._console.print(Styled("error: ", style="bold red") + Styled(str(error)))
        self._console.print(Styled("hint:  ", style="bold") + Styled(error.hint))

    def finish(self, completion: Completion) -> None:
        """The facts about a good end."""
        if self._console.is_terminal:
            self._console.print(Styled(summary(completion), style="dim"))

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:6.1f}s"


def describe(event: Event) -> Styled | None:
    """One line for an event, or None for one that a person need not see."""
    match event:
        case Started():
            known = [event.model, event.cli_version and f"version {event.cli_version}"]
            return Styled("started  ", style="green") + ", ".join(k for k in known if k)
        case Notice(code="status"):
            return None
        case Notice():
            many = f" ({event.attempt} of {event.attempts})" if event.attempt else ""
            return Styled(f"{event.code:8} ", style="yellow") + event.message + many
        case ToolStarted():
            return Styled("tool     ", style="cyan") + event.name
        case ToolFinished():
            return Styled("tool     ", style="cyan") + ("done" if event.ok else "failed")
        case FileChanged():
            return Styled("file     ", style="cyan") + f"{event.change} {event.path}"
        case RateLimit():
            until = f" until {event.resets_at:%d %b %H:%M %Z}" if event.resets_at else ""
            return (
                Styled("limit    ", style="yellow") + f"{event.window or ''} {event.status}{until}"
            )
        case UsageReported():
            return Styled("usage    ", style="green") + tokens(event.usage)
        case Unrecognized():
            return Styled("unknown  ", style="yellow") + f"{event.type or 'a line of text'}"
        case Text() | TextDelta() | Reasoning() | Done() | Failed():
            return None


def tokens(usage: Usage) -> str:
    """Counters in words; what was not reported is not there."""
    parts = {
        "input": usage.input,
        "from cache": usage.cache_read,
        "to cache": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count is not None)


def summary(completion: Completion) -> str:
    """The facts about a good end, in one line."""
    cost = completion.cost
    facts = [
        completion.provider,
        completion.model,
        f"{completion.latency.total:.1f} s",
        f"paid by {completion.billing.payer}",
        cost and f"list price {cost.reported_usd:.4f} USD",
        f"{len(completion.warnings)} warnings" if completion.warnings else None,
    ]
    return " · ".join(fact for fact in facts if fact)
