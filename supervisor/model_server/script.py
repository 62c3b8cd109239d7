"""The steps of a script: what the model endpoint answers to one model request.

Every step means the same in every API; where the APIs differ, the step says how. Steps are
checked when they are made, so that a script cannot fail in the middle of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from supervisor.model_server.request import ModelRequest


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?|")
_FRAMING = ("connection", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The token counts of one answer, in parts that do not overlap unless said.

    The parts are all different, so that a swapped or doubled one shows in a test
    (``n`` is the default):

    =============== ==== =============================== ======================== =============
    part            n    Anthropic                       Responses                Gemini
    =============== ==== =============================== ======================== =============
    ``uncached``    11   ``input_tokens``                only in the sum          in the sum
    ``cache_write`` 100  ``cache_creation_input_tokens`` ``….cache_write_tokens`` in the sum
    ``cache_read``  1000 ``cache_read_input_tokens``     ``….cached_tokens``      ``cached…``
    ``output``      47   ``output_tokens``               ``output_tokens``        see below
    ``reasoning``   20   not sent                        ``….reasoning_tokens``   ``thoughts…``
    =============== ==== =============================== ======================== =============

    ``reasoning`` is a part of ``output``. The Responses API counts all input in
    ``input_tokens``: 11 + 100 + 1000 = 1111, and ``total_tokens`` is 1158. Its parts stand in
    ``input_tokens_details`` and ``output_tokens_details``. The Gemini API does so too, in
    ``promptTokenCount`` (1111) and ``totalTokenCount`` (1158), with ``cachedContentTokenCount``
    (1000) and ``thoughtsTokenCount`` (20); its ``candidatesTokenCount`` leaves the thoughts out:
    47 - 20 = 27.
    """

    uncached: int = 11
    cache_write: int = 100
    cache_read: int = 1000
    output: int = 47
    reasoning: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Answer with text, after ``thinking`` (shown reasoning) when given.

    ``stop`` is the reason why the model stopped, in Anthropic's words, default ``end_turn``. The
    Responses API ends complete by default, answers ``refusal`` with a refusal part, and ends
    incomplete for any other word (``max_tokens`` becomes its own ``max_output_tokens``). The
    Gemini API ends with ``STOP`` by default, with ``MAX_TOKENS`` or ``SAFETY`` for ``max_tokens``
    and ``refusal``, and with any other word in capitals.
    ``usage`` is by default the documented numbers of :class:`Usage`. ``chunk_delay`` is the pause
    in seconds between the events of a stream, default none; without a stream it has no effect.
    """

    text: str
    thinking: str | None = None
    stop: str | None = None
    usage: Usage = field(default_factory=Usage)
    chunk_delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredAnswer:
    """Answer with a JSON object, in the way the request asked for structured output.

    Anthropic: a call of the tool ``StructuredOutput`` when the request offers one, otherwise the
    JSON as text. Responses and Gemini: the JSON as text. Raises ``TypeError`` or ``ValueError`` when
    ``data`` is not JSON.
    """

    data: Mapping[str, object]
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        json.dumps(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """Call one tool, after ``text`` when given.

    ``arguments`` is the JSON object of the call. A string calls a free-text tool of the Responses
    API (``custom_tool_call``); the others have none, and there the string is sent as the object
    ``{"input": …}``. Raises ``TypeError`` or ``ValueError`` when ``arguments`` is not JSON.
    """

    name: str
    arguments: Mapping[str, object] | str
    text: str | None = None
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        json.dumps(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Answer with an error status and the vendor's own error object.

    ``error_type`` is the vendor's name of the error; the Responses API gets it as ``type`` and as
    ``code``, the Gemini API as ``status`` beside ``code``, which is the HTTP status. ``headers``
    are added to the answer (``{"retry-after": "2"}``), ``details`` to the error object
    (``{"resets_at": 1893456000}``). Raises ``ValueError`` for a ``status`` outside 400 to 599 and
    for a header that HTTP does not allow or that frames the message, ``TypeError`` or
    ``ValueError`` when ``details`` is not JSON.
    """

    status: int
    error_type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError(f"an error status lies between 400 and 599, not at {self.status}")
        json.dumps(self.details)
        for name, value in self.headers.items():
            _check_header(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailStream:
    """Begin a good stream, then report an error inside it and end it.

    Anthropic: an ``error`` event with ``code`` as its type. Responses: ``response.failed`` with
    ``code``. Gemini: an error object with ``code`` as its ``status`` (``UNAVAILABLE``) and the
    HTTP status of that name, not framed as an event. ``after_text`` is streamed before it,
    default nothing. Without a stream, Anthropic answers with status 500, Gemini with the status
    of that name or 500, and Responses with a response of status ``failed``.
    """

    code: str
    message: str
    after_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStream:
    """Begin a good answer, then break it off before its terminal event.

    The cut comes after ``after_text``: inside the text block, or behind its end with
    ``block_done`` (Gemini marks no end of a text, so both are the same there). ``how`` is
    ``close`` (the connection is closed in the middle of the body), ``reset`` (the same with a TCP
    reset) or ``end`` (the HTTP body ends as it should, only the terminal event is missing).
    Without a stream, half of the JSON answer is sent.
    """

    after_text: str
    how: Literal["close", "reset", "end"] = "close"
    block_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Stop talking and keep the connection until the client goes away.

    Without ``after_text`` not even the HTTP headers come. With it, that text is streamed first
    (without a stream: half of the JSON answer).
    """

    after_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Answer with status 200 and a body that is no answer of the API, by default a web page.

    Raises ``ValueError`` for a ``content_type`` that is no header value.
    """

    body: bytes = b"<!doctype html><title>Sign in to the network</title>"
    content_type: str = "text/html"

    def __post_init__(self) -> None:
        _check_header("content-type", self.content_type)


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"no header of HTTP: {name!r}: {value!r}")
    if name.lower() in _FRAMING:
        raise ValueError(f"the header {name!r} is set by the server itself")


Step: TypeAlias = (
    Say | StructuredAnswer | CallTool | Http | FailStream | CutStream | Silence | Unreadable
)
"""What the endpoint answers to one model request."""

Script: TypeAlias = Sequence[Step] | Callable[["ModelRequest"], Step]
"""Steps, one for each model request in the order of arrival, the last one for all further ones;
or a function that chooses the step from the request, for runs in parallel."""
