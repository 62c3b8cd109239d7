"""From a step of the script to the planned answer of one request, without touching a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, assert_never

from supervisor.model_server import anthropic, gemini, responses
from supervisor.model_server.answer import (
    Answer,
    Call,
    Dialect,
    JsonObject,
    Turn,
    encode,
    json_answer,
)
from supervisor.model_server.script import (
    CallTool,
    CutStream,
    FailStream,
    Http,
    Say,
    Silence,
    Step,
    StructuredAnswer,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.model_server.request import Protocol

_DIALECTS: dict[Protocol, Dialect] = {
    "anthropic": anthropic.DIALECT,
    "gemini": gemini.DIALECT,
    "responses": responses.DIALECT,
}
_JSON = (("content-type", "application/json"),)
_EVENT_STREAM = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
)


def plan(step: Step, protocol: Protocol, call: Call) -> Answer:
    """Plan the answer of ``step`` to one model call, with the vendor's request id as a header."""
    dialect = _DIALECTS[protocol]
    answer = _plan(step, call, dialect)
    given = {name.lower() for name, _ in answer.headers}
    if dialect.request_id_header is None or dialect.request_id_header in given:
        return answer
    request_id = (dialect.request_id_header, call.id("req"))
    return replace(answer, headers=(*answer.headers, request_id))


def error_answer(protocol: Protocol | None, status: int, error_type: str, message: str) -> Answer:
    """Plan an error answer in the form of an API; without one, in Anthropic's."""
    dialect = _DIALECTS[protocol or "anthropic"]
    return json_answer(status, dialect.error(status, error_type, message, {}))


def _plan(step: Step, call: Call, dialect: Dialect) -> Answer:
    match step:
        case Say() | StructuredAnswer() | CallTool():
            delay = step.chunk_delay if isinstance(step, Say) else 0.0
            return _good(_turn(step, call, dialect), call, dialect, delay)
        case Http():
            body = dialect.error(step.status, step.error_type, step.message, step.details)
            return json_answer(step.status, body, tuple(step.headers.items()))
        case FailStream():
            return _failed(step, call, dialect)
        case CutStream():
            ending = "whole" if step.how == "end" else step.how
            return _broken(step.after_text, call, dialect, ending, step.block_done)
        case Silence():
            if step.after_text is None:
                return Answer(status=None, ending="silence")
            return _broken(step.after_text, call, dialect, "silence")
        case Unreadable():
            headers = (("content-type", step.content_type),)
            return Answer(headers=headers, chunks=(step.body,))
        case _:
            assert_never(step)


def _turn(step: Say | StructuredAnswer | CallTool, call: Call, dialect: Dialect) -> Turn:
    if isinstance(step, Say):
        return Turn(text=step.text, thinking=step.thinking, stop=step.stop, usage=step.usage)
    if isinstance(step, CallTool):
        return Turn(text=step.text, tool=step, usage=step.usage)
    return dialect.structured(step, call)


def _good(turn: Turn, call: Call, dialect: Dialect, delay: float) -> Answer:
    if not call.streamed:
        return json_answer(200, dialect.whole(turn, call))
    return replace(_stream(dialect.events(turn, call), dialect), chunk_delay=delay)


def _failed(step: FailStream, call: Call, dialect: Dialect) -> Answer:
    if not call.streamed:
        status, body = dialect.failed_whole(step, call)
        return json_answer(status, body)
    events = _text_events(step.after_text, call, dialect, dialect.text_delta)
    events = [*events, dialect.failed_event(step, call, len(events))]
    return replace(_stream(events, dialect), chunk_delay=dialect.failure_delay)


def _broken(
    text: str,
    call: Call,
    dialect: Dialect,
    ending: Literal["whole", "close", "reset", "silence"],
    block_done: bool = False,
) -> Answer:
    if not call.streamed:
        body = encode(dialect.whole(Turn(text=text), call))
        half = (body[: len(body) // 2],)
        # Chunked, because a length announced and not kept would turn the clean end into a cut.
        return Answer(headers=_JSON, chunks=half, chunked=True, ending=ending)
    last = dialect.block_end if block_done else dialect.text_delta
    return replace(_stream(_text_events(text, call, dialect, last), dialect), ending=ending)


def _text_events(text: str | None, call: Call, dialect: Dialect, last: str) -> list[JsonObject]:
    """Take the events of a text answer up to the last one called ``last``, or the opening."""
    events = dialect.events(Turn(text=text), call)
    kinds = [dialect.kind(event) for event in events]
    final = last if last in kinds else dialect.opening
    return events[: len(kinds) - kinds[::-1].index(final)] if final else []


def _stream(events: Sequence[JsonObject], dialect: Dialect) -> Answer:
    chunks = [dialect.frame(event) for event in events]
    return Answer(headers=_EVENT_STREAM, chunks=chunks, chunked=True)
