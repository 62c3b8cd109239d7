"""Records in, and at the end of the process one verdict.

Success needs positive evidence: the CLI's own terminal record for the turn, a good stop reason, and an
answer. An exit code proves nothing: codex's launcher was seen to exit 0 after its native child was
killed, and claude to exit 1 after a good result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from supervisor.model.errors import Failure, failure
from supervisor.model.events import (
    ErrorReported,
    Reasoning,
    Started,
    Text,
    TextDelta,
    ToolStarted,
    TurnEnded,
    UsageReported,
)
from supervisor.protocol.answer import read_outcome

if TYPE_CHECKING:
    from supervisor.model.completion import Cost, Exit, Usage
    from supervisor.model.conversation import Decision
    from supervisor.model.errors import Code
    from supervisor.model.events import Progress, Record
    from supervisor.model.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run came to its end, as far as the process layer can tell.

    Attributes:
        exit: of the CLI's own process.
        cause: the limit of ours, or the close, that ended it; None if it ended by itself.
        diagnosis: the cause that the adapter read from standard error.
        dropped: how many lines were over the limit.
    """

    exit: Exit
    cause: Failure | None = None
    diagnosis: Failure | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run gave: an answer, or a failure with what was there."""

    failure: Failure | None
    text: str
    data: Any
    warnings: tuple[Failure, ...]
    decision: Decision | None = None


class Accumulator:
    """Keeps what a run has told so far, and judges it at the end."""

    def __init__(
        self, request: Request[Any], own: Request[Any] | None = None, *, optional_as_null: bool
    ) -> None:
        """For a request as `asked` makes it, and the caller's `own` where that is another."""
        self._request = request
        self._own = request if own is None else own
        self._may_use_tools = request.access != "none" or request.mcp_config is not None
        self._optional_as_null = optional_as_null
        self._text = ""
        self._deltas: list[str] = []
        self._delta_size = 0
        self._reported: Failure | None = None
        self._lost: Code | None = None
        self.turn: TurnEnded | None = None
        self.started: Started | None = None
        self.events = 0
        self.usage: Usage | None = None
        self.violation: Failure | None = None
        """A breach that must end the run at once."""

    def line_lost(self, code: Code) -> None:
        """A line that may have held the answer could not be read: `code` says why."""
        if self.turn is None:  # what comes after the turn's end is no answer
            self._lost = code

    def take(self, record: Record) -> Progress | None:
        """Note a record; gives back what the consumer shall see of it."""
        self.events += 1
        if isinstance(record, TurnEnded):
            self.turn = record
            self.usage = record.usage or self.usage
            self._bound(record.text or "")
            return None
        if isinstance(record, ErrorReported):
            self._reported = record.failure
            self._deltas, self._delta_size = [], 0  # a repeated request says it all again
            return None
        if isinstance(record, Started):
            self.started = record
            self._check_payer(record)
        elif isinstance(record, UsageReported):
            self.usage = record.usage
        elif isinstance(record, ToolStarted):
            self._reported = None
            if not self._may_use_tools:
                self.violation = self.violation or failure("policy.tool_used")
        elif isinstance(record, Reasoning):
            self._reported = None  # the repeated request has got through
        elif isinstance(record, (Text, TextDelta)) and record.parent is None:
            self._reported = None
            self._take_text(record)
        return record

    @property
    def text(self) -> str:
        """The text so far: the turn's answer, else the pieces of an unfinished message, else the last
        whole one."""
        if self.turn is not None and self.turn.text is not None:
            return self.turn.text
        return "".join(self._deltas) or self._text

    @property
    def model(self) -> str | None:
        named = self.turn.model if self.turn is not None else None
        return named or (self.started.model if self.started is not None else None)

    @property
    def cost(self) -> Cost | None:
        return self.turn.cost if self.turn is not None else None

    def settle(self, end: End) -> Verdict:
        """The verdict, once the process has ended and all its output was taken."""
        if self.violation is not None:
            return self._failed(self.violation)
        if end.cause is not None and end.cause.code == "supervisor.closed":
            return self._failed(end.cause)
        if self.turn is None:
            return self._without_turn(end)
        if self.turn.failure is not None:
            return self._failed(self.turn.failure, *_present(end.cause))
        return self._good_turn(end)

    def _take_text(self, record: Text | TextDelta) -> None:
        if isinstance(record, Text):
            self._text, self._deltas, self._delta_size = record.text, [], 0
            self._lost = None
            self._bound(record.text)
        else:
            self._deltas.append(record.text)
            self._delta_size += len(record.text.encode())
            if self._delta_size > self._request.limits.answer:
                self.violation = self.violation or failure("output.answer")

    def _bound(self, text: str) -> None:
        limit = self._request.limits.answer
        # A character has at most four bytes, so most texts need no encoding to be measured.
        if len(text) * 4 > limit and len(text.encode()) > limit:
            self.violation = self.violation or failure("output.answer")

    def _check_payer(self, started: Started) -> None:
        if self._request.billing == "subscription" and started.credential == "api_key":
            self.violation = failure(
                "auth.api_key_in_use",
                "The CLI says that it bills an API key"
                f' ({started.evidence}), and billing="subscription" was asked for.',
            )
        elif self._request.billing == "api_key" and started.credential == "login":
            self.violation = failure(
                "auth.required",
                f'The CLI says that it uses no API key ({started.evidence}), and billing="api_key"'
                " was asked for.",
                hint="Let the key through with Supervisor(keep=...), or change billing.",
            )

    def _good_turn(self, end: End) -> Verdict:
        turn, text = self.turn, self.text
        assert turn is not None
        warnings = (*_present(end.cause), *_present(_odd_exit(end.exit)))
        if turn.text is None and self._lost is not None:
            # The last message may be the line that was lost; what came before it is no answer.
            return self._failed(failure(self._lost), *warnings)
        if self._request.schema is not None and (turn.has_data or text.strip()):
            answer, misfit = read_outcome(
                self._own,
                self._request,
                text,
                turn.data,
                has_data=turn.has_data,
                optional_as_null=self._optional_as_null,
            )
            return Verdict(
                failure=misfit,
                text=text if answer.text is None else answer.text,
                data=answer.data,
                decision=answer.decision,
                warnings=warnings,
            )
        if not text.strip():
            return self._failed(failure("protocol.empty"), *warnings)
        return Verdict(failure=None, text=text, data=None, warnings=warnings)

    def _without_turn(self, end: End) -> Verdict:
        """The first specific cause wins: error events, our limit, standard error, exit code."""
        if self._reported is not None:
            return self._failed(self._reported, *_present(end.cause))
        found = end.cause or end.diagnosis
        if found is not None:
            return self._failed(found)
        if end.dropped:
            return self._failed(failure("output.line"))
        if end.exit.signal is not None and not end.exit.ended_by_us:
            named = (
                f"The CLI was killed by signal {end.exit.signal}, which this library did not send."
            )
            return self._failed(failure("process.signal", named))
        if self.started is not None or self.text:
            return self._failed(failure("protocol.truncated"))
        if end.exit.code in (126, 127):
            named = f"What was started cannot start the CLI: exit code {end.exit.code}."
            return self._failed(failure("cli.not_runnable", named))
        if end.exit.code:
            named = f"The CLI ended with exit code {end.exit.code} and without a result."
            return self._failed(failure("process.exit", named))
        return self._failed(failure("protocol.no_result"))

    def _failed(self, fact: Failure, *warnings: Failure) -> Verdict:
        return Verdict(failure=fact, text=self.text, data=None, warnings=warnings)


def _odd_exit(ended: Exit) -> Failure | None:
    if ended.ended_by_us or (not ended.code and ended.signal is None):
        return None
    how = f"signal {ended.signal}" if ended.code is None else f"exit code {ended.code}"
    fact = failure("process.exit", f"The CLI ended with {how} after a good answer.")
    return replace(fact, hint="Nothing needs to be done for this answer.")


def _present(fact: Failure | None) -> tuple[Failure, ...]:
    return () if fact is None else (fact,)
