"""Tools as a decision: one schema of which every answer is a call of one tool, or the final answer.

It is sent and read like a schema of the caller's, so that each CLI's own way of structured output, the
rewriting for its dialect and the validation on our side hold for tools too. No CLI gets to call one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from supervisor.model.conversation import FinalAnswer, ToolCall
from supervisor.protocol.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.model.adapter import JsonObject
    from supervisor.model.conversation import Decision
    from supervisor.model.request import Request

# Where a schema defines, and what goes before its names: both may define the same one.
_DEFINITIONS = (("$defs", ""), ("definitions", "definitions."))


def decision_schema(request: Request[Any]) -> JsonObject:
    """The schema of a request that offers tools.

    Raises:
        RequestError: see `json_schema`.
    """
    definitions: JsonObject = {}
    branches: list[JsonObject] = []
    for number, tool in enumerate(request.tools):
        arguments = _moved(
            cast("Mapping[str, Any]", tool.parameters), f"tool_{number}", definitions
        )
        named = {"type": "string", "const": tool.name}
        branches.append(_closed({"tool": named, "arguments": arguments}, tool.description))
    answer: JsonObject = {"type": "string"}
    if request.schema is not None:
        answer = _moved(json_schema(request), "answer", definitions)
    branches.append(_closed({"answer": answer}, "The final answer, when no tool is to be called."))
    schema = _closed({"decision": {"anyOf": branches}}, "The one next step.")
    return {**schema, "$defs": definitions} if definitions else schema


def decision_prompt(request: Request[Any]) -> str:
    """What a prompt says of the tools, behind the caller's own text."""
    offered = "\n".join(f"- {json.dumps(tool.name)}: {tool.description}" for tool in request.tools)
    return (
        "Decide on the one next step. Either one of these tools is to be called, with arguments that"
        " fit its parameters, or you give the final answer. Do not call anything yourself: answer with"
        f" the decision alone. The tools:\n{offered}"
    )


def read_decision(value: Any) -> tuple[Decision, Any]:
    """The decision of an answer that fits `decision_schema`, and the final answer's content.

    The content is None for a call.
    """
    step: JsonObject = value["decision"]
    if "tool" in step:
        return ToolCall(name=step["tool"], arguments=step["arguments"]), None
    return FinalAnswer(), step["answer"]


def _closed(properties: JsonObject, description: str) -> JsonObject:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(schema: Mapping[str, Any], name: str, definitions: JsonObject) -> JsonObject:
    """Put a schema and what it defines among another's definitions; gives its reference."""
    # With a name of its own it would be a document of its own, and no reference would lead out of it.
    outer = {key: part for key, part in schema.items() if key not in ("$id", "$schema")}
    for key, before in _DEFINITIONS:
        for each, definition in outer.pop(key, {}).items():
            definitions[f"{name}.{before}{each}"] = _redirected(definition, name)
    definitions[name] = _redirected(outer, name)
    return {"$ref": f"#/$defs/{name}"}


def _redirected(part: Any, name: str) -> Any:
    if isinstance(part, list):
        return [_redirected(item, name) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    inside = cast("JsonObject", part)
    moved = {key: _redirected(item, name) for key, item in inside.items()}
    reference = inside.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = _new_reference(reference, name)
    return moved


def _new_reference(reference: str, name: str) -> str:
    for key, before in _DEFINITIONS:
        head = f"#/{key}/"
        if reference.startswith(head):
            return f"#/$defs/{name}.{before}{reference.removeprefix(head)}"
    return f"#/$defs/{name}{reference.removeprefix('#')}"
