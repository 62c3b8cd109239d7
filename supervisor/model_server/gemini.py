"""The Gemini API (``generateContent``): the form of its answers, and what its requests say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from supervisor.model_server.answer import Call, Dialect, JsonObject, Turn, encode, objects, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from supervisor.model_server.script import CallTool, FailStream, StructuredAnswer, Usage

_ENDPOINT = re.compile(r"/v1(?:beta)?/models/([^/:?]+):(\w+)(?:\?(.*))?")
_SIGNATURE = "bG9vcGJhY2s="
# The vendor's client library knows an error only when it reads it apart from the text before it.
_FAILURE_DELAY = 0.1
_FINISH = {"end_turn": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
# The HTTP status that belongs to a name of google.rpc.Code, where it is not 500.
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def endpoint(target: str) -> tuple[str, Literal["whole", "stream", "count"]] | None:
    """Read a request target: the model and what is asked of it; ``None`` for any other target.

    A stream that is not asked for as server-sent events (``alt=sse``) is a JSON list at the
    vendor; no CLI asks for it, so that is no endpoint here.
    """
    found = _ENDPOINT.fullmatch(target)
    if found is None:
        return None
    model, method, query = found.groups(default="")
    if method == "streamGenerateContent" and "alt=sse" in query.split("&"):
        return model, "stream"
    if method == "generateContent":
        return model, "whole"
    return (model, "count") if method == "countTokens" else None


def user_text(body: JsonObject) -> Iterator[str]:
    """Give every text part of the user's turns, as sent."""
    for content in objects(body.get("contents")):
        # A single turn may leave its role out; it is the user's then.
        if content.get("role", "user") == "user":
            yield from _texts(content.get("parts"))


def _texts(parts: Any) -> Iterator[str]:
    for part in objects(parts):
        text = part.get("text")
        if isinstance(text, str):
            yield text


def _error(status: int, error_type: str, message: str, details: Mapping[str, object]) -> JsonObject:
    return {"error": {"code": status, "message": message, "status": error_type, **details}}


def _structured(step: StructuredAnswer, call: Call) -> Turn:
    return Turn(text=json.dumps(step.data), usage=step.usage)


def _usage(usage: Usage) -> JsonObject:
    prompt = usage.uncached + usage.cache_write + usage.cache_read
    thoughts = min(usage.reasoning, usage.output)
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + usage.output,
    }


def _response(parts: list[JsonObject], call: Call) -> JsonObject:
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "index": 0}],
        "modelVersion": call.model,
        "responseId": call.id("resp"),
    }


def _ended(parts: list[JsonObject], turn: Turn, call: Call) -> JsonObject:
    response = _response(parts, call)
    stop = turn.stop or "end_turn"
    response["candidates"][0]["finishReason"] = _FINISH.get(stop, stop.upper())
    response["usageMetadata"] = _usage(turn.usage)
    return response


def _whole(turn: Turn, call: Call) -> JsonObject:
    text = [] if turn.text is None else [turn.text]
    return _ended(_parts(text, turn), turn, call)


def _events(turn: Turn, call: Call) -> list[JsonObject]:
    parts = _parts(pieces(turn.text or ""), turn)
    events = [_response([part], call) for part in parts]
    return [*events, _ended([{"text": ""}], turn, call)]


def _parts(texts: list[str], turn: Turn) -> list[JsonObject]:
    parts: list[JsonObject] = []
    if turn.thinking is not None:
        parts.append({"text": turn.thinking, "thought": True})
    parts += [{"text": text} for text in texts]
    if turn.tool is not None:
        parts.append(_function_call(turn.tool))
    return parts


def _function_call(tool: CallTool) -> JsonObject:
    arguments = tool.arguments
    given = {"input": arguments} if isinstance(arguments, str) else dict(arguments)
    call = {"name": tool.name, "args": given}
    return {"functionCall": call, "thoughtSignature": _SIGNATURE}


def _kind(event: JsonObject) -> str:
    """Name an event by what it brings; the API itself gives its events no names."""
    candidate = event["candidates"][0]
    if "finishReason" in candidate:
        return "finish"
    part = candidate["content"]["parts"][0]
    return "text" if "text" in part and "thought" not in part else "other"


def _frame(event: JsonObject) -> bytes:
    if "error" in event:
        # The vendor's own client library knows an error only as bare JSON between the events.
        return encode(event)
    return b"data: " + encode(event) + b"\r\n\r\n"


def _failed_event(step: FailStream, call: Call, position: int) -> JsonObject:
    return _failed_whole(step, call)[1]


def _failed_whole(step: FailStream, call: Call) -> tuple[int, JsonObject]:
    status = _HTTP_STATUS.get(step.code, 500)
    return status, _error(status, step.code, step.message, {})


DIALECT = Dialect(
    request_id_header=None,
    error=_error,
    structured=_structured,
    whole=_whole,
    events=_events,
    failed_event=_failed_event,
    failed_whole=_failed_whole,
    kind=_kind,
    frame=_frame,
    opening=None,
    text_delta="text",
    block_end="text",
    failure_delay=_FAILURE_DELAY,
)
