"""One received HTTP request, and what can be read from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from supervisor.model_server import anthropic, gemini, responses
from supervisor.model_server.answer import Call
from supervisor.model_server.side_calls import Purpose, purpose_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Protocol: TypeAlias = Literal["anthropic", "gemini", "responses"]
"""The three model APIs: Anthropic Messages, Gemini ``generateContent`` and OpenAI Responses."""

_MODEL_PATHS: dict[str, Protocol] = {
    "/v1/messages": "anthropic",
    "/v1/responses": "responses",
    "/responses": "responses",
}
_USER_TEXT = {
    "anthropic": anthropic.user_text,
    "gemini": gemini.user_text,
    "responses": responses.user_text,
}
_NO_MODEL = "loopback-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request as the server received it.

    ``path`` is the request target with its query. ``headers`` has lower-case names; a repeated
    header is one value joined by ``", "``. ``body`` is empty when it was too large to be read.
    ``json`` is the body when that is a JSON object, otherwise ``None``. ``protocol`` is ``None``
    for everything that is not the model endpoint of one of the three APIs. ``at`` is the time of
    arrival in seconds since the server started, on the clock of the trio run.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    json: dict[str, Any] | None
    protocol: Protocol | None
    at: float

    @property
    def purpose(self) -> Purpose | None:
        """What this model call is for; ``None`` when it is no readable call of a model endpoint.

        Only an ``answer`` takes a step of the script and stands in ``server.model_requests``.
        """
        if self.protocol is None or self.json is None:
            return None
        return purpose_of(self.headers, self.json)


def protocol_of(method: str, path: str) -> Protocol | None:
    """Name the model API that a request line belongs to, ``None`` when it belongs to none."""
    if method != "POST":
        return None
    found = gemini.endpoint(path)
    if found is not None:
        return None if found[1] == "count" else "gemini"
    return _MODEL_PATHS.get(path.partition("?")[0])


def call_of(request: ModelRequest, serial: int) -> Call:
    """Read what a model call asks. ``serial`` is to be another one for every call."""
    body = request.json or {}
    found = gemini.endpoint(request.path)
    if found is not None:
        return Call(body=body, model=found[0], streamed=found[1] == "stream", serial=serial)
    model = body.get("model")
    return Call(
        body=body,
        model=model if isinstance(model, str) else _NO_MODEL,
        streamed=body.get("stream") is True,
        serial=serial,
    )


def parse_body(body: bytes) -> dict[str, Any] | None:
    """Parse a request body; ``None`` when it is not a JSON object."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else None


def text_sent(request: ModelRequest) -> tuple[str, ...]:
    """Return every text part of the user's turns in a model request, in the order sent.

    A part is given exactly as sent, so a prompt stands unbroken in the request when one part
    contains it. System prompts, tool results and the model's own turns are left out; text that
    the CLI itself adds to a user's turn is not. Empty for a request that is no model call.
    """
    if request.json is None or request.protocol is None:
        return ()
    return tuple(_USER_TEXT[request.protocol](request.json))
