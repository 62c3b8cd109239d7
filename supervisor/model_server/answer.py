"""The parts between a step and the wire: a planned answer, and what an API dialect must supply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from supervisor.model_server.script import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from supervisor.model_server.script import CallTool, FailStream, StructuredAnswer

JsonObject: TypeAlias = dict[str, Any]
Headers: TypeAlias = Sequence[tuple[str, str]]

_TEXT_PIECES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to do on the connection for one request.

    ``status`` ``None`` sends nothing at all. ``chunks`` is the body as it is written, with
    ``chunk_delay`` seconds between two of them; ``chunked`` sends it in HTTP chunks, otherwise
    its length is announced. ``ending`` is what follows: ``whole`` ends the HTTP message,
    ``close`` and ``reset`` break the connection, ``silence`` waits until the client goes away.
    """

    status: int | None = 200
    headers: Headers = ()
    chunks: Sequence[bytes] = ()
    chunked: bool = False
    chunk_delay: float = 0.0
    ending: Literal["whole", "close", "reset", "silence"] = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The content of a good answer, without the form of any API."""

    text: str | None = None
    thinking: str | None = None
    tool: CallTool | None = None
    stop: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call: what it asks, and its number, which makes the ids of the answer unique.

    ``model`` is the model asked for, ``streamed`` whether the client wants server-sent events.
    """

    body: JsonObject
    model: str
    streamed: bool
    serial: int

    def id(self, prefix: str) -> str:
        """Make an id of this call, such as ``msg_loopback_000001``."""
        return f"{prefix}_loopback_{self.serial:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one API supplies.

    ``kind`` names an event of a stream and ``frame`` puts it into bytes. The three last fields
    name the events a stream can be cut behind; an API without an event that opens the stream has
    no ``opening``. ``request_id_header`` is ``None`` where the vendor sends none. In a stream
    that fails, ``failure_delay`` seconds pass between the events.
    """

    request_id_header: str | None
    error: Callable[[int, str, str, Mapping[str, object]], JsonObject]
    structured: Callable[[StructuredAnswer, Call], Turn]
    whole: Callable[[Turn, Call], JsonObject]
    events: Callable[[Turn, Call], list[JsonObject]]
    failed_event: Callable[[FailStream, Call, int], JsonObject]
    failed_whole: Callable[[FailStream, Call], tuple[int, JsonObject]]
    kind: Callable[[JsonObject], str]
    frame: Callable[[JsonObject], bytes]
    opening: str | None
    text_delta: str
    block_end: str
    failure_delay: float = 0.0


def json_answer(status: int, body: JsonObject, headers: Headers = ()) -> Answer:
    """Plan a JSON answer of announced length; a header given here replaces a default one."""
    given = {name.lower() for name, _ in headers}
    kind = () if "content-type" in given else (("content-type", "application/json"),)
    return Answer(status=status, headers=(*kind, *headers), chunks=(encode(body),))


def encode(body: JsonObject) -> bytes:
    """Encode JSON as ASCII, so that no text, not even a lone surrogate, can fail to be sent."""
    return json.dumps(body).encode("ascii")


def event_type(event: JsonObject) -> str:
    """Name an event by its own ``type``."""
    return event["type"]


def typed_event(event: JsonObject) -> bytes:
    """Encode one server-sent event, named after its ``type``."""
    return f"event: {event['type']}\n".encode() + b"data: " + encode(event) + b"\n\n"


def pieces(text: str) -> list[str]:
    """Split a text into a few deltas; an empty text has none."""
    size = max(1, -(-len(text) // _TEXT_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def objects(value: Any) -> list[JsonObject]:
    """Take the JSON objects of a received list; none when it is no list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
