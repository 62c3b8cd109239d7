"""What can go wrong, as one tree.

SupervisorError
├── RequestError      the caller must change the request, the schema or the configuration
├── CliError          the CLI is missing, does not start, or does not know a flag
├── AuthError         somebody must sign in, or a key must go
├── LimitError        a rate, a usage window or credits are used up
├── ModelError        the model or its server refused, failed or cannot be reached
├── RunTimeout        one of our own limits of time ran out
├── OutputError       one of our own limits of size was passed
├── ProtocolError     the CLI's output proves no answer, or it died without one
├── PolicyError       the run did what its request does not allow
├── AnswerError       the turn ended well, and the answer cannot be used
├── ClosedError       the supervisor was closed
├── CleanupError      something could not be cleaned
└── InternalError     a defect of this library

A `Failure` is the fact; the exception carries it. Decisions are made about facts, in pure code,
and become an exception at the border only. Messages are our own sentences: never a CLI's stderr,
never a server's body, never model text, since all three may hold secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from supervisor.model.completion import Partial

Code = Literal[
    "request.invalid",
    "request.unsupported",
    "request.too_large",
    "config.invalid",
    "provider.not_found",
    "supervisor.closed",
    "cli.not_found",
    "cli.not_runnable",
    "cli.unsupported_version",
    "cli.bad_flag",
    "cli.needs_terminal",
    "auth.required",
    "auth.expired",
    "auth.race",
    "auth.api_key_in_use",
    "limit.rate",
    "limit.usage",
    "limit.credits",
    "model.unavailable",
    "model.context",
    "model.refused",
    "model.error",
    "provider.overloaded",
    "provider.error",
    "network",
    "timeout.start",
    "timeout.idle",
    "timeout.tool",
    "timeout.total",
    "output.line",
    "output.stdout",
    "output.answer",
    "protocol.truncated",
    "protocol.no_result",
    "protocol.empty",
    "process.exit",
    "process.signal",
    "policy.tool_used",
    "policy.denied",
    "answer.not_json",
    "answer.schema",
    "answer.max_turns",
    "answer.max_tokens",
    "disk.full",
    "cleanup.incomplete",
    "internal",
]
"""The stable codes. A code never changes its meaning; new ones may be added."""

CODES: tuple[Code, ...] = get_args(Code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One thing that went wrong, as plain facts.

    Attributes:
        code: stable name of the kind.
        message: one sentence of ours on what happened.
        hint: one sentence on what to do next.
        retryable: whether the same request may succeed later without a change by anybody.
        status: HTTP status that the CLI reported, where it reported one.
        retry_after: seconds to wait that the server asked for, where it did.
        resets_at: aware time at which a usage limit ends, where the CLI told it exactly.
    """

    code: Code
    message: str
    hint: str
    retryable: bool
    status: int | None = None
    retry_after: float | None = None
    resets_at: datetime | None = None


class SupervisorError(Exception):
    """Base of all errors of this library.

    Attributes:
        failure: the fact.
        partial: text, usage, cost and session that were there when the run failed; None where
            nothing had been started.
    """

    def __init__(self, failure: Failure, partial: Partial | None = None) -> None:
        super().__init__(failure, partial)
        self.failure = failure
        self.partial = partial

    def __str__(self) -> str:
        return f"{self.failure.message} [{self.failure.code}]"

    def __repr__(self) -> str:
        """Without `partial`, which holds text of the model: a repr ends up in logs."""
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def code(self) -> Code:
        return self.failure.code

    @property
    def message(self) -> str:
        return self.failure.message

    @property
    def hint(self) -> str:
        return self.failure.hint

    @property
    def retryable(self) -> bool:
        return self.failure.retryable

    @property
    def retry_after(self) -> float | None:
        return self.failure.retry_after

    @property
    def resets_at(self) -> datetime | None:
        return self.failure.resets_at


class RequestError(SupervisorError):
    """The caller must change the request, the schema or the configuration."""


class CliError(SupervisorError):
    """The CLI is missing, does not start, or does not know a flag."""


class AuthError(SupervisorError):
    """Somebody must sign in, or a key must go."""


class LimitError(SupervisorError):
    """A rate, a usage window or credits are used up: see `retry_after` and `resets_at`."""


class ModelError(SupervisorError):
    """The model or its server refused, failed or cannot be reached."""


class RunTimeout(SupervisorError):
    """One of our own limits of time ran out."""


class OutputError(SupervisorError):
    """One of our own limits of size was passed."""


class ProtocolError(SupervisorError):
    """The CLI's output proves no answer, or the CLI died without one."""


class PolicyError(SupervisorError):
    """The run did what its request does not allow."""


class AnswerError(SupervisorError):
    """The turn ended well, and the answer cannot be used."""


class ClosedError(SupervisorError):
    """The supervisor was closed before or during the run."""


class CleanupError(SupervisorError):
    """Something could not be cleaned; the message names it."""


class InternalError(SupervisorError):
    """A defect of this library."""


@dataclass(frozen=True, slots=True)
class _Kind:
    error: type[SupervisorError]
    retryable: bool
    message: str
    hint: str


_KINDS: Mapping[Code, _Kind] = {
    "request.invalid": _Kind(
        RequestError, False, "The request is not valid.", "Change the request as the message says."
    ),
    "request.unsupported": _Kind(
        RequestError,
        False,
        "The provider cannot honour a part of the request.",
        "Leave that part out, or choose another provider.",
    ),
    "request.too_large": _Kind(
        RequestError,
        False,
        "The request is larger than the CLI bears.",
        "Send less, or choose a provider with a higher limit.",
    ),
    "config.invalid": _Kind(
        RequestError,
        False,
        "The configuration of the supervisor is not valid.",
        "Change the argument of Supervisor(...) that the message names.",
    ),
    "provider.not_found": _Kind(
        RequestError,
        False,
        "There is no such provider.",
        "Use one of the names that the message gives, or register an adapter.",
    ),
    "supervisor.closed": _Kind(
        ClosedError,
        False,
        "The supervisor is closed.",
        "Make a new Supervisor; a closed one starts nothing more.",
    ),
    "cli.not_found": _Kind(
        CliError,
        False,
        "The CLI is not installed where it was looked for.",
        "Install the CLI, put it on PATH, or name it with Supervisor(programs=...).",
    ),
    "cli.not_runnable": _Kind(
        CliError,
        False,
        "The CLI was found and cannot be started.",
        "Start it once by hand and repair what it says; the file may be half installed.",
    ),
    "cli.unsupported_version": _Kind(
        CliError,
        False,
        "This version of the CLI cannot be driven.",
        "Install a CLI version inside the tested range.",
    ),
    "cli.bad_flag": _Kind(
        CliError,
        False,
        "The CLI does not know one of the flags that it was started with.",
        "Install a CLI version inside the tested range.",
    ),
    "cli.needs_terminal": _Kind(
        CliError,
        False,
        "The CLI asks for a terminal.",
        "Check that programs=... names the CLI itself and no interactive wrapper.",
    ),
    "auth.required": _Kind(
        AuthError,
        False,
        "The CLI is not signed in.",
        "Sign in with the CLI by hand, once, as the user who runs this program.",
    ),
    "auth.expired": _Kind(
        AuthError,
        False,
        "The server refused the CLI's credentials.",
        "Sign in again with the CLI by hand, or replace the key that it was given.",
    ),
    "auth.race": _Kind(
        AuthError,
        True,
        "The login was refreshed by another process at the same moment.",
        "Try again; start the first run alone when a login is near its end.",
    ),
    "auth.api_key_in_use": _Kind(
        AuthError,
        False,
        'The run would be billed to an API key, and billing="subscription" was asked for.',
        'Remove the key from where the CLI finds it, or ask for billing="api_key".',
    ),
    "limit.rate": _Kind(
        LimitError, True, "The server limits the rate of requests.", "Wait, then try again."
    ),
    "limit.usage": _Kind(
        LimitError,
        False,
        "The usage limit of the plan is reached.",
        "Wait until the limit resets, or use another login or provider.",
    ),
    "limit.credits": _Kind(
        LimitError,
        False,
        "The account has no credits left, or its plan does not include this.",
        "Add credits or change the plan with the vendor.",
    ),
    "model.unavailable": _Kind(
        ModelError,
        False,
        "The model does not exist, or this account may not use it.",
        "Name another model, or none to take the CLI's default.",
    ),
    "model.context": _Kind(
        ModelError,
        False,
        "The request does not fit into the model's context.",
        "Send less, or name a model with a larger context.",
    ),
    "model.refused": _Kind(
        ModelError, False, "The model refused to answer.", "Change the prompt or the model."
    ),
    "model.error": _Kind(
        ModelError,
        False,
        "The server refused the request.",
        "Compare the request with what the model supports.",
    ),
    "provider.overloaded": _Kind(
        ModelError, True, "The model's server is overloaded.", "Wait, then try again."
    ),
    "provider.error": _Kind(
        ModelError, True, "The model's server failed.", "Try again; see the vendor's status page."
    ),
    "network": _Kind(
        ModelError,
        True,
        "The CLI cannot reach its server, or the connection broke.",
        "Check the network, the proxy and the certificates of the machine.",
    ),
    "timeout.start": _Kind(
        RunTimeout,
        True,
        "The CLI printed nothing within the time limit for the start.",
        "Raise Timeouts(start=...), or start the CLI once by hand to see what it waits for.",
    ),
    "timeout.idle": _Kind(
        RunTimeout,
        True,
        "The CLI made no progress within the idle limit.",
        "Try again, or raise Timeouts(idle=...).",
    ),
    "timeout.tool": _Kind(
        RunTimeout,
        True,
        "A tool call did not end within its time limit.",
        "Raise Timeouts(tool=...), or ask for less in one step.",
    ),
    "timeout.total": _Kind(
        RunTimeout,
        True,
        "The run did not end within its total time limit.",
        "Raise Timeouts(total=...), or ask for less in one run.",
    ),
    "output.line": _Kind(
        OutputError,
        False,
        "A line of the CLI's output was over the limit, and no result followed.",
        "Raise Limits(line=...).",
    ),
    "output.stdout": _Kind(
        OutputError,
        False,
        "The CLI printed more than the limit for one run.",
        "Raise Limits(stdout=...).",
    ),
    "output.answer": _Kind(
        OutputError, False, "The answer is over the limit.", "Raise Limits(answer=...)."
    ),
    "protocol.truncated": _Kind(
        ProtocolError,
        True,
        "The CLI's output ended before the turn did.",
        "Try again; what had come is in the error's partial.",
    ),
    "protocol.no_result": _Kind(
        ProtocolError,
        True,
        "The CLI ended without any event that could be read.",
        "Check the CLI's version against the tested range.",
    ),
    "protocol.empty": _Kind(
        ProtocolError,
        True,
        "The turn ended well and holds no answer.",
        "Try again, or change the prompt.",
    ),
    "process.exit": _Kind(
        ProtocolError,
        False,
        "The CLI failed without saying why in its event stream.",
        "Start the CLI once by hand with the command line in the error's partial.",
    ),
    "process.signal": _Kind(
        ProtocolError,
        True,
        "The CLI was killed by a signal that this library did not send.",
        "Look for the kernel's out-of-memory killer or an operator's hand.",
    ),
    "policy.tool_used": _Kind(
        PolicyError,
        False,
        "The CLI used a tool, and the request allows none.",
        "Report the CLI version: answer mode must leave it no tool.",
    ),
    "policy.denied": _Kind(
        PolicyError,
        False,
        "The CLI gave up because a tool was denied to the model.",
        "Allow what the task needs, or say in the prompt that it is not needed.",
    ),
    "answer.not_json": _Kind(
        AnswerError,
        False,
        "A schema was asked for and the answer is not JSON.",
        "Try a model that follows schemas; the text is in the error's partial.",
    ),
    "answer.schema": _Kind(
        AnswerError,
        False,
        "The answer does not fit the schema.",
        "Loosen the schema or say in the prompt what is wanted; see the error's partial.",
    ),
    "answer.max_turns": _Kind(
        AnswerError, False, "The run used up its turns.", "Allow more turns, or ask for less."
    ),
    "answer.max_tokens": _Kind(
        AnswerError,
        False,
        "The answer was cut at the model's output limit.",
        "Ask for a shorter answer; what had come is in the error's partial.",
    ),
    "disk.full": _Kind(
        InternalError,
        True,
        "There is no room left on the disk for the run's private files.",
        "Make room, or name another state_dir.",
    ),
    "cleanup.incomplete": _Kind(
        CleanupError,
        False,
        "Something of a run could not be cleaned.",
        "End or remove what the message names by hand.",
    ),
    "internal": _Kind(
        InternalError,
        False,
        "This library met a state that it does not expect.",
        "Report it, with the versions of the library and of the CLI.",
    ),
}


def failure(
    code: Code,
    message: str | None = None,
    *,
    hint: str | None = None,
    status: int | None = None,
    retry_after: float | None = None,
    resets_at: datetime | None = None,
) -> Failure:
    """The fact for `code`; message and hint default to the sentences of the table."""
    kind = _KINDS[code]
    return Failure(
        code=code,
        message=message or kind.message,
        hint=hint or kind.hint,
        retryable=kind.retryable,
        status=status,
        retry_after=retry_after,
        resets_at=resets_at,
    )


def as_error(fact: Failure, partial: Partial | None = None) -> SupervisorError:
    """The exception of the right class for a fact."""
    return _KINDS[fact.code].error(fact, partial)


def about(fact: Failure, subject: str) -> Failure:
    """The same fact with its subject named first, e.g. the provider."""
    return replace(fact, message=f"{subject}: {fact.message}")
