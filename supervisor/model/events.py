"""What a run tells while it goes on, and the records that a decoder adds for the accumulator.

A consumer sees `Event`s only. `TurnEnded` and `ErrorReported` are the CLI's own word on how its turn
went: they decide the end of the run together with how the process ended, and are not handed on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import JsonValue

    from supervisor.model.completion import Completion, Cost, Usage
    from supervisor.model.errors import Failure, SupervisorError

Credential = Literal["login", "api_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The CLI has started a turn.

    Attributes:
        session_id, model, cli_version: None where the CLI does not say.
        tools: names of the tools that the model is offered, None where the CLI does not say.
        credential: what the CLI says it will pay with, None where it does not say.
        evidence: the CLI's own words for `credential`.
        loaded: what else the CLI says that it loaded, None where it does not say.
    """

    session_id: str | None = None
    model: str | None = None
    cli_version: str | None = None
    tools: tuple[str, ...] | None = None
    credential: Credential | None = None
    evidence: str | None = None
    loaded: tuple[str, ...] | None = None
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of text for display. It is not final: a CLI that retries may send it again."""

    text: str
    parent: str | None = None
    kind: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A whole message of the model; `parent` is the tool call of the sub-agent that wrote it."""

    text: str
    parent: str | None = None
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """Reasoning that the CLI chose to show; a piece of it where the stream brings pieces."""

    text: str
    parent: str | None = None
    kind: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The model called a tool; `id` pairs it with its `ToolFinished`."""

    id: str
    name: str
    input: JsonValue = None
    parent: str | None = None
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call ended; `ok` is None where the CLI does not say."""

    id: str
    ok: bool | None
    output: str | None = None
    parent: str | None = None
    kind: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanged:
    """The CLI says that it changed a file."""

    path: str
    change: Literal["add", "update", "delete", "unknown"]
    kind: Literal["file_changed"] = "file_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported:
    """The CLI's counters for the turn."""

    usage: Usage
    kind: Literal["usage"] = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """The state of a usage window.

    Attributes:
        status: the CLI's own word, e.g. "allowed", "allowed_warning", "rejected".
        window: the CLI's name for it, e.g. "five_hour".
        used: share that is used up, 0.0 to 1.0, None where it does not say.
        resets_at: when it starts anew, None where it does not say.
    """

    status: str
    window: str | None = None
    used: float | None = None
    resets_at: datetime | None = None
    kind: Literal["rate_limit"] = "rate_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something worth knowing that does not end the run, in a sentence of ours.

    Attributes:
        code: what kind: "retry", "fallback", "warning", "line_dropped", "status", "repair".
        message: one sentence.
        attempt, attempts: which retry of how many, where the CLI says.
        status: HTTP status behind it, where the CLI says.
    """

    code: Literal["retry", "fallback", "warning", "line_dropped", "status", "repair"]
    message: str
    attempt: int | None = None
    attempts: int | None = None
    status: int | None = None
    kind: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecognized:
    """A line that is no event we know. It is counted and never fatal.

    Attributes:
        type: the record's own type, None where the line is no JSON object.
        size: bytes of the line.
    """

    type: str | None
    size: int
    kind: Literal["unrecognized"] = "unrecognized"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The one terminal event of a good run."""

    completion: Completion[Any]
    kind: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The one terminal event of a failed run."""

    error: SupervisorError
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The CLI's own terminal record of a turn; the last one of a run counts.

    Attributes:
        failure: None for a good end with a good stop reason.
        text: the whole answer, None where the record does not carry it.
        data: the structured answer; `has_data` tells a JSON null from none at all.
        usage, cost: of the turn, as far as reported.
        model: the model that answered, where the record names it.
    """

    failure: Failure | None
    text: str | None = None
    data: JsonValue = None
    has_data: bool = False
    usage: Usage | None = None
    cost: Cost | None = None
    model: str | None = None
    kind: Literal["turn_ended"] = field(default="turn_ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReported:
    """An error that the CLI reported and may still recover from."""

    failure: Failure
    kind: Literal["error_reported"] = "error_reported"


Progress = (
    Started
    | TextDelta
    | Text
    | Reasoning
    | ToolStarted
    | ToolFinished
    | FileChanged
    | UsageReported
    | RateLimit
    | Notice
    | Unrecognized
)
Event = Progress | Done | Failed
"""What a consumer sees: any number of the first group, then exactly one `Done` or `Failed`."""

Record = Progress | TurnEnded | ErrorReported
"""What a decoder makes of a line."""
