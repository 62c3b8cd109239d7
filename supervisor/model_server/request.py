"""One received HTTP request, and what can be read from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from supervisor.model_server import anthropic, responses

if TYPE_CHECKING:
    from collections.abc import Mapping

Protocol: TypeAlias = Literal["anthropic", "responses"]
"""The two model APIs: Anthropic Messages and OpenAI Responses."""

_MODEL_PATHS: dict[str, Protocol] = {"/v1/messages": "anthropic", "/v1/responses": "responses"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request as the server received it.

    ``path`` is the request target with its query. ``headers`` has lower-case names; a repeated
    header is one value joined by ``", "``. ``body`` is empty when it was too large to be read.
    ``json`` is the body when that is a JSON object, otherwise ``None``. ``protocol`` is ``None``
    for everything that is not the model endpoint of one of the two APIs. ``at`` is the time of
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
    def is_model_call(self) -> bool:
        """Whether this request takes a step of the script: a readable call of a model endpoint."""
        return self.protocol is not None and self.json is not None


def protocol_of(method: str, path: str) -> Protocol | None:
    """Name the model API that a request line belongs to, ``None`` when it belongs to neither."""
    return _MODEL_PATHS.get(path.partition("?")[0]) if method == "POST" else None


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
    read = anthropic.user_text if request.protocol == "anthropic" else responses.user_text
    return tuple(read(request.json))
