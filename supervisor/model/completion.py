"""What a good end gives, and what a bad one still has to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from supervisor.model.request import Data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from supervisor.model.conversation import Decision
    from supervisor.model.errors import Failure
    from supervisor.model.launch import EffortSource
    from supervisor.model.request import Effort

Payer = Literal["subscription", "api_key", "unknown"]
"""Who pays: the plan of a login, an API key's account, or nobody knows."""

Mode = Literal["scope", "loop", "pidns", "group"]
"""How the processes of a run are contained.

scope, loop, pidns: below a guardian, whose end proves that nothing is left. group: a session and
process group of their own, then a sweep of known descendants and of processes with the run's mark.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, in disjoint parts. None means that the CLI did not report it, never zero.

    Attributes:
        input: input tokens that no cache served and none stored.
        cache_read: input tokens that a cache served.
        cache_write: input tokens that were stored in a cache.
        output: output tokens, without reasoning where the CLI tells the two apart.
        reasoning: output tokens spent on reasoning.
        by_model: the same for each model that took part, where the CLI reports it.
        cumulative: the counters hold earlier turns of a resumed session too (codex).
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    by_model: Mapping[str, Usage] = field(default_factory=dict[str, "Usage"])
    cumulative: bool = False

    @property
    def total_input(self) -> int | None:
        """All input tokens; None unless each of the three parts is known."""
        parts = (self.input, self.cache_read, self.cache_write)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the run cost in USD as the CLI reports it: an estimate from list prices, not a bill."""

    reported_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """Who paid, and how we know.

    Attributes:
        payer: "unknown" where nothing proves either.
        evidence: the fact that it rests on, in the CLI's own terms.
    """

    payer: Payer
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """What a CLI says of its login, without a network: a hint, since a token may be dead.

    Attributes:
        state: "unknown" where the CLI cannot be asked, or does not say.
        payer: who would pay for a run with that login.
        evidence: the fact that it rests on, in the CLI's own terms.
    """

    state: Literal["signed_in", "signed_out", "unknown"]
    payer: Payer
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds from the call. None where the thing never came.

    Attributes:
        spawn: until the CLI was started.
        first_event: until its first event.
        first_text: until the first text of the answer.
        total: until its processes and files were gone.
    """

    spawn: float
    first_event: float | None
    first_text: float | None
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the CLI's own process ended.

    Attributes:
        code: its exit code, or None when a signal ended it.
        signal: the signal that ended it, or None.
        ended_by_us: whether we had signalled it before it ended.
    """

    code: int | None
    signal: int | None
    ended_by_us: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A process of the run that was still alive after the CLI's own process, and was killed."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """How the run was cleaned up.

    Attributes:
        mode: the containment that was in force.
        proven: whether the kernel confirmed that no process is left. Mode `group` proves nothing.
        weakness: why no stronger mode is in force, None if nothing stronger is to be had anywhere.
        killed: what had to be killed.
        seconds: how long ending the processes and removing the files took.
        dropped_bytes: bytes of the lines that were over their limit.
        leftovers: what could not be cleaned, one plain sentence each; empty as a rule.
        cpu_seconds: processor time of the CLI and of the descendants that it waited for; None where
            nobody measured it.
        peak_bytes: the largest memory that one of them had; None where nobody measured it.
    """

    mode: Mode
    proven: bool
    weakness: str | None = None
    killed: tuple[Killed, ...] = ()
    seconds: float
    dropped_bytes: int = 0
    leftovers: tuple[str, ...] = ()
    cpu_seconds: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """What was there when a run failed: never an answer.

    Attributes:
        text: the text so far, "" if none.
        usage, cost, session_id, model: as far as the CLI had reported them.
        exit: how the CLI's process ended, None if it was never started.
        cleanup: how the run was cleaned up, None if nothing was started.
        warnings: what else was noticed.
        argv: the command line, with secrets replaced.
    """

    text: str = ""
    usage: Usage | None = None
    cost: Cost | None = None
    session_id: str | None = None
    model: str | None = None
    exit: Exit | None = None
    cleanup: Cleanup | None = None
    warnings: tuple[Failure, ...] = ()
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Generic[Data]):
    """The good end of a run.

    Attributes:
        text: the answer as text; with a schema, its JSON as the CLI gave it.
        data: the answer as an instance of the request's schema (a plain dict, list, … where the
            schema is a dict); None without a schema, and when a tool is to be called.
        decision: what the model decided on, where the request offers tools; None otherwise.
        usage: None where the CLI reported none.
        cost: None where the CLI reports none (codex).
        billing: who paid, and how we know.
        model: what the CLI says answered; None where it never says (codex).
        session_id: the CLI's own id of the conversation.
        effort: the level that was sent, or None if the CLI's default was left in force.
        effort_source: where that level is from.
        login: the name of the login that was used, None for the CLI's own.
        loaded: what the CLI says that it loaded beside the request (servers, plugins, memory files),
            and what is known to be loaded whatever it is told; None where nothing tells.
        attempts: how many starts of the CLI it took; 2 after a repair. `usage`, `cost` and the
            total latency are of both together.
        exit: how the CLI's process ended; its code may be other than 0 after a good end.
        warnings: what was noticed and did not spoil the answer.
        provider, cli_version: who ran it; the version where the CLI's events name it.
        argv: the command line, with secrets replaced.
        metadata: the request's, untouched.
    """

    text: str
    data: Data
    decision: Decision | None
    usage: Usage | None
    cost: Cost | None
    billing: Billing
    model: str | None
    session_id: str | None
    effort: Effort | None
    effort_source: EffortSource | None
    login: str | None
    loaded: tuple[str, ...] | None
    attempts: int
    latency: Latency
    exit: Exit
    cleanup: Cleanup
    warnings: tuple[Failure, ...]
    provider: str
    cli_version: str | None
    argv: tuple[str, ...]
    metadata: Mapping[str, JsonValue]


AnyCompletion = Completion[Any]
