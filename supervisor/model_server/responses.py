"""The OpenAI Responses API: the form of its answers, and what its requests say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from supervisor.model_server.answer import (
    Call,
    Dialect,
    JsonObject,
    Turn,
    event_type,
    objects,
    pieces,
    typed_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from supervisor.model_server.script import CallTool, FailStream, StructuredAnswer, Usage

_CREATED_AT = 1_767_225_600
_REFUSAL = "refusal"
_INCOMPLETE = {"max_tokens": "max_output_tokens"}
_COMPLETE = (None, "end_turn", _REFUSAL)


def user_text(body: JsonObject) -> Iterator[str]:
    """Give every text part of the user's turns, as sent."""
    given = body.get("input")
    if isinstance(given, str):
        yield given
    for item in objects(given):
        if item.get("type", "message") == "message" and item.get("role") == "user":
            yield from _texts(item.get("content"))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in objects(content):
        text = part.get("text")
        if part.get("type") == "input_text" and isinstance(text, str):
            yield text


def _error(status: int, error_type: str, message: str, details: Mapping[str, object]) -> JsonObject:
    error = {"message": message, "type": error_type, "param": None, "code": error_type}
    return {"error": {**error, **details}}


def _structured(step: StructuredAnswer, call: Call) -> Turn:
    return Turn(text=json.dumps(step.data), usage=step.usage)


def _usage(usage: Usage) -> JsonObject:
    given = usage.uncached + usage.cache_write + usage.cache_read
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": given + usage.output,
    }


def _response(call: Call, status: str) -> JsonObject:
    return {
        "id": call.id("resp"),
        "object": "response",
        "created_at": _CREATED_AT,
        "status": status,
        "model": call.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _whole(turn: Turn, call: Call) -> JsonObject:
    ended = {"output": _items(turn, call), "usage": _usage(turn.usage)}
    if turn.stop in _COMPLETE:
        return {**_response(call, "completed"), **ended}
    details = {"reason": _INCOMPLETE.get(turn.stop, turn.stop)}
    return {**_response(call, "incomplete"), **ended, "incomplete_details": details}


def _items(turn: Turn, call: Call) -> list[JsonObject]:
    items: list[JsonObject] = []
    if turn.thinking is not None:
        items.append(_reasoning(turn.thinking, call))
    if turn.text is not None:
        items.append(_message(turn.text, turn.stop, call))
    if turn.tool is not None:
        items.append(_tool_call(turn.tool, call))
    return items


def _reasoning(text: str, call: Call) -> JsonObject:
    summary = [{"type": "summary_text", "text": text}]
    sealed = {"encrypted_content": "bG9vcGJhY2s="}
    return {"type": "reasoning", "id": call.id("rs"), "summary": summary, **sealed}


def _message(text: str, stop: str | None, call: Call) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    if stop == _REFUSAL:
        part = {"type": "refusal", "refusal": text}
    done = {"role": "assistant", "status": "completed", "content": [part]}
    return {"type": "message", "id": call.id("msg"), **done}


def _tool_call(tool: CallTool, call: Call) -> JsonObject:
    common = {"call_id": call.id("call"), "name": tool.name, "status": "completed"}
    if isinstance(tool.arguments, str):
        free = {"type": "custom_tool_call", "id": call.id("ctc"), "input": tool.arguments}
        return {**free, **common}
    arguments = json.dumps(tool.arguments)
    return {"type": "function_call", "id": call.id("fc"), "arguments": arguments, **common}


def _events(turn: Turn, call: Call) -> list[JsonObject]:
    opened = _response(call, "in_progress")
    events: list[JsonObject] = [
        {"type": "response.created", "response": opened},
        {"type": "response.in_progress", "response": opened},
    ]
    for index, item in enumerate(_items(turn, call)):
        events += _item_events(index, item)
    ended = _whole(turn, call)
    events.append({"type": f"response.{ended['status']}", "response": ended})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    field, inner = _INNER[item["type"]]
    empty: str | list[object] = "" if isinstance(item[field], str) else []
    opened = {**item, field: empty, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    for event in inner(item):
        yield {**event, "item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _message_events(item: JsonObject) -> Iterator[JsonObject]:
    part: JsonObject = item["content"][0]
    name = "output_text" if part["type"] == "output_text" else "refusal"
    field = "text" if name == "output_text" else "refusal"
    at = {"content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
    for piece in pieces(part[field]):
        yield {"type": f"response.{name}.delta", **at, "delta": piece}
    yield {"type": f"response.{name}.done", **at, field: part[field]}
    yield {"type": "response.content_part.done", **at, "part": part}


def _reasoning_events(item: JsonObject) -> Iterator[JsonObject]:
    part: JsonObject = item["summary"][0]
    at = {"summary_index": 0}
    name = "response.reasoning_summary"
    yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
    yield {"type": f"{name}_text.delta", **at, "delta": part["text"]}
    yield {"type": f"{name}_text.done", **at, "text": part["text"]}
    yield {"type": f"{name}_part.done", **at, "part": part}


def _function_events(item: JsonObject) -> Iterator[JsonObject]:
    name = "response.function_call_arguments"
    for piece in pieces(item["arguments"]):
        yield {"type": f"{name}.delta", "delta": piece}
    yield {"type": f"{name}.done", "arguments": item["arguments"]}


def _custom_events(item: JsonObject) -> Iterator[JsonObject]:
    name = "response.custom_tool_call_input"
    for piece in pieces(item["input"]):
        yield {"type": f"{name}.delta", "delta": piece}
    yield {"type": f"{name}.done", "input": item["input"]}


# Of each kind of item: the field that is empty when the item is announced, and what fills it.
_INNER = {
    "message": ("content", _message_events),
    "reasoning": ("summary", _reasoning_events),
    "function_call": ("arguments", _function_events),
    "custom_tool_call": ("input", _custom_events),
}


def _failed(step: FailStream, call: Call) -> JsonObject:
    error = {"code": step.code, "message": step.message}
    return {**_response(call, "failed"), "error": error}


def _failed_event(step: FailStream, call: Call, position: int) -> JsonObject:
    failed = {"type": "response.failed", "response": _failed(step, call)}
    return {**failed, "sequence_number": position}


def _failed_whole(step: FailStream, call: Call) -> tuple[int, JsonObject]:
    return 200, _failed(step, call)


DIALECT = Dialect(
    request_id_header="x-request-id",
    error=_error,
    structured=_structured,
    whole=_whole,
    events=_events,
    failed_event=_failed_event,
    failed_whole=_failed_whole,
    kind=event_type,
    frame=typed_event,
    opening="response.in_progress",
    text_delta="response.output_text.delta",
    block_end="response.output_item.done",
)
