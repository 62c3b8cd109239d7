"""What the caller asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel, JsonValue
    from typing_extensions import TypeVar

    from supervisor.model.conversation import Image, Message, Tool

    Data = TypeVar("Data", default=Any)
else:
    from typing import TypeVar

    Data = TypeVar("Data")

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
"""How much a model may think. Each adapter names the levels that its CLI has."""

ServiceTier = Literal["auto", "default", "flex", "fast", "priority"]
"""How fast the vendor is to serve. `fast` is sent as `priority`; `auto` and `default` send nothing."""

Access = Literal["none", "read", "write"]
"""What the CLI may touch: nothing, files of the workspace to read, or to write as well."""

Hermetic = Literal["default", "strict"]
"""How much of the user's own configuration is kept out: all that can be without moving the login, or
that too, by a private state folder into which the login is linked."""

BillingPolicy = Literal["subscription", "api_key", "any"]
"""Who may pay: the login's plan, an API key that the application named, or whoever it turns out."""

MIB = 1024 * 1024
MAX_ANSWER = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits of time in seconds; None means no limit.

    They count our own waits only: while the caller's code works between two events, no clock of
    ours runs. A run takes at most `total + grace + drain` and the bounded clean-up.

    Attributes:
        start: from the start of the CLI to its first byte on stdout.
        idle: without progress (text, reasoning, a tool event or an error event). It does not run
            for a CLI whose stream is silent while the model thinks (codex).
        tool: of one tool call. While one is open, the idle limit does not run.
        total: the whole run.
        linger: from the terminal event to the CLI's exit.
        grace: from the polite signal to SIGKILL.
        drain: for each read without a byte, after the CLI's exit.
    """

    start: float | None = 60.0
    idle: float | None = 240.0
    tool: float | None = 1800.0
    total: float | None = 600.0
    linger: float = 5.0
    grace: float = 3.0
    drain: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of size in bytes.

    Attributes:
        prompt: of the prompt, encoded as UTF-8. A CLI may bear less: see its adapter.
        answer: of the answer's text; at most 64 MiB.
        line: of one line of output; None takes the larger of 32 MiB and 2 * answer + 1 MiB. A
            longer line is dropped and noted.
        stdout: of the whole standard output of a run.
        stderr_tail: of the end of standard error that is kept to find a cause in.
    """

    prompt: int = 16 * MIB
    answer: int = 4 * MIB
    line: int | None = None
    stdout: int = 512 * MIB
    stderr_tail: int = 64 * 1024

    @property
    def line_bytes(self) -> int:
        """The limit of a line that is in force."""
        least = 2 * self.answer + MIB
        return max(32 * MIB, least) if self.line is None else self.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[Data]):
    """One question to one CLI.

    What a CLI cannot honour is refused with `request.unsupported` before the start, never dropped.

    Attributes:
        provider: name of the adapter, e.g. "claude" or "codex".
        prompt: what is asked. It reaches the model as data: no command in it runs, and no file
            that it names is attached.
        messages: a conversation instead of a prompt; its last turn is the user's or a tool's. A single
            user's turn reaches the model like a prompt; several are rendered to one, in a form that no
            turn's text can forge.
        system: instructions for the model. claude, gemini and grok take them in place of their own
            system prompt, codex and agy in addition to their own.
        model: the CLI's name for a model; None takes the CLI's default.
        schema: a pydantic model class, or a JSON Schema as a dict: the answer is then JSON that
            fits it, given as `Completion.data`.
        tools: the answer is then exactly one decision, in `Completion.decision`: a call of one of these
            with arguments that fit its parameters, or the final answer (which fits `schema` if given).
        images: shown beside the prompt.
        effort: how much the model may think; None takes the CLI's default.
        service_tier: see `ServiceTier`; None sends nothing.
        access: what the CLI may touch; "none" is answer mode.
        workspace: the directory that `access` speaks of; None for answer mode.
        max_turns: model requests that one run may take, where the CLI can count them.
        resume: a `Completion.session_id` to go on with; the CLI must have kept the session.
        keep_session: let the CLI store the session, so that it can be resumed.
        repair: 1 to ask once more, with the validation errors, when the answer misses the schema.
        mcp_config: MCP servers by name, each as the CLI's own configuration of one; None for none.
        login: name of one of `Supervisor(logins=...)`; None takes the CLI's own.
        hermetic: see `Hermetic`.
        timeouts, limits: bounds of time and size.
        billing: who may pay; None takes what `Supervisor(billing=...)` says, or "subscription", or
            "api_key" for a CLI that knows only keys. A run that would be billed to an API key against
            "subscription" is stopped with `auth.api_key_in_use`.
        metadata: the application's own notes, given back in `Completion.metadata` untouched.
    """

    provider: str
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    system: str | None = None
    model: str | None = None
    schema: type[Data] | Mapping[str, JsonValue] | None = None
    tools: tuple[Tool, ...] = ()
    images: tuple[Image, ...] = ()
    effort: Effort | None = None
    service_tier: ServiceTier | None = None
    access: Access = "none"
    workspace: str | None = None
    max_turns: int | None = None
    resume: str | None = None
    keep_session: bool = False
    repair: Literal[0, 1] = 0
    mcp_config: Mapping[str, JsonValue] | None = None
    login: str | None = None
    hermetic: Hermetic = "default"
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    billing: BillingPolicy | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])


def model_class(request: Request[Any]) -> type[BaseModel] | None:
    """The pydantic model of a request's schema, or None for a dict or no schema."""
    return request.schema if isinstance(request.schema, type) else None
