"""The Anthropic Messages API: the form of its answers, and what its requests say."""

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
from supervisor.model_server.script import CallTool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from supervisor.model_server.script import FailStream, StructuredAnswer, Usage

_STRUCTURED_TOOL = "StructuredOutput"
_SIGNATURE = "bG9vcGJhY2s="


def user_text(body: JsonObject) -> Iterator[str]:
    """Give every text part of the user's turns, as sent."""
    for message in objects(body.get("messages")):
        if message.get("role") == "user":
            yield from _texts(message.get("content"))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for block in objects(content):
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            yield text


def _error(status: int, error_type: str, message: str, details: Mapping[str, object]) -> JsonObject:
    error = {"type": error_type, "message": message, **details}
    return {"type": "error", "error": error}


def _structured(step: StructuredAnswer, call: Call) -> Turn:
    offered = {tool.get("name") for tool in objects(call.body.get("tools"))}
    if _STRUCTURED_TOOL in offered:
        return Turn(tool=CallTool(name=_STRUCTURED_TOOL, arguments=step.data), usage=step.usage)
    return Turn(text=json.dumps(step.data), usage=step.usage)


def _usage(usage: Usage, output: int) -> JsonObject:
    return {
        "input_tokens": usage.uncached,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "service_tier": "standard",
    }


def _whole(turn: Turn, call: Call) -> JsonObject:
    return {
        "id": call.id("msg"),
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": _blocks(turn, call),
        "stop_reason": _stop_reason(turn),
        "stop_sequence": None,
        "usage": _usage(turn.usage, turn.usage.output),
    }


def _stop_reason(turn: Turn) -> str:
    return turn.stop or ("tool_use" if turn.tool else "end_turn")


def _blocks(turn: Turn, call: Call) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": _SIGNATURE})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    if turn.tool is not None:
        blocks.append(_tool_use(turn.tool, call))
    return blocks


def _tool_use(tool: CallTool, call: Call) -> JsonObject:
    arguments = tool.arguments
    given = {"input": arguments} if isinstance(arguments, str) else dict(arguments)
    return {"type": "tool_use", "id": call.id("toolu"), "name": tool.name, "input": given}


def _events(turn: Turn, call: Call) -> list[JsonObject]:
    usage = _usage(turn.usage, turn.usage.output)
    opened: JsonObject = {**_whole(turn, call), "content": [], "stop_reason": None}
    # The vendor announces one output token at the start and the true count at the end.
    events: list[JsonObject] = [
        {"type": "message_start", "message": {**opened, "usage": _usage(turn.usage, 1)}}
    ]
    for index, block in enumerate(_blocks(turn, call)):
        events += _block_events(index, block)
    stop = {"stop_reason": _stop_reason(turn), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    events.append({"type": "message_stop"})
    return events


def _block_events(index: int, block: JsonObject) -> Iterator[JsonObject]:
    empty, deltas = _in_deltas(block)
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _in_deltas(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Split a block into the empty one that opens it and the deltas that fill it."""
    if block["type"] == "text":
        deltas: list[JsonObject] = [
            {"type": "text_delta", "text": piece} for piece in pieces(block["text"])
        ]
        return {**block, "text": ""}, deltas
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    arguments = json.dumps(block["input"])
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)]
    return {**block, "input": {}}, deltas


def _failed_event(step: FailStream, call: Call, position: int) -> JsonObject:
    return _failed_whole(step, call)[1]


def _failed_whole(step: FailStream, call: Call) -> tuple[int, JsonObject]:
    return 500, _error(500, step.code, step.message, {})


DIALECT = Dialect(
    request_id_header="request-id",
    error=_error,
    structured=_structured,
    whole=_whole,
    events=_events,
    failed_event=_failed_event,
    failed_whole=_failed_whole,
    kind=event_type,
    frame=typed_event,
    opening="message_start",
    text_delta="content_block_delta",
    block_end="content_block_stop",
)
