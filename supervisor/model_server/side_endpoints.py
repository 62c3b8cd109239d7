"""The endpoints beside the model: what a CLI asks of a vendor before and between its model calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.model_server import gemini
from supervisor.model_server.answer import Answer, JsonObject, json_answer
from supervisor.model_server.plan import error_answer

if TYPE_CHECKING:
    from supervisor.model_server.request import ModelRequest, Protocol

_MODEL = "loopback-model"
_MODEL_CREATED = "2026-01-01T00:00:00Z"
_COUNTED_TOKENS = 42


def side_answer(request: ModelRequest) -> Answer:
    """Answer a request that is no model call; with status 404 when nothing is known of it."""
    path = request.path.partition("?")[0]
    match request.method, path:
        case "HEAD", _:
            return Answer(status=200 if path == "/" else 404)
        case "POST", "/v1/messages/count_tokens":
            return json_answer(200, {"input_tokens": _COUNTED_TOKENS})
        case "POST", _ if gemini.endpoint(path):
            return json_answer(200, {"totalTokens": _COUNTED_TOKENS})
        case "GET", "/v1/models" if not _is_grok(request):
            anthropic = "anthropic-version" in request.headers
            return json_answer(200, _anthropic_models() if anthropic else _openai_models())
        case _ if request.headers.get("upgrade", "").lower() == "websocket":
            return error_answer("responses", 426, "upgrade_refused", "no WebSocket here")
        case _:
            message = f"no such endpoint: {request.method} {path}"
            return error_answer(_nearest(request), 404, "not_found_error", message)


def _is_grok(request: ModelRequest) -> bool:
    # A list of models replaces the ones grok was built with, and it speaks another API to those.
    return request.headers.get("user-agent", "").startswith("grok")


def _nearest(request: ModelRequest) -> Protocol:
    """Guess the API that an unknown request is meant for."""
    if "anthropic-version" in request.headers:
        return "anthropic"
    google = request.path.startswith("/v1beta/") or "x-goog-api-key" in request.headers
    return "gemini" if google else "responses"


def _anthropic_models() -> JsonObject:
    model = {"id": _MODEL, "type": "model", "display_name": "Loopback"}
    model["created_at"] = _MODEL_CREATED
    return {"data": [model], "has_more": False, "first_id": _MODEL, "last_id": _MODEL}


def _openai_models() -> JsonObject:
    model = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "loopback"}
    return {"object": "list", "data": [model]}
