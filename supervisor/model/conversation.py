"""Turns of a conversation, images, and tools that a model may decide to call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture, as the bytes of its file. They reach the CLI as a private file or inside its input."""

    data: bytes
    media_type: MediaType


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the application that the model may decide to call. Nothing here calls it.

    Attributes:
        name: letters, digits, "_" and "-", at most 64.
        description: what it does and when to call it, for the model.
        parameters: JSON Schema of its arguments, an object at the root.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model decided on. `id` pairs it with a `ToolTurn`; ours are "call_1"."""

    name: str
    arguments: Mapping[str, Any]
    id: str = "call_1"
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAnswer:
    """The decision to call nothing: the answer itself is in `Completion.text` and `.data`."""

    kind: Literal["final_answer"] = "final_answer"


Decision = ToolCall | FinalAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTurn:
    """Instructions; they join `Request.system`."""

    text: str
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """What the user said."""

    text: str
    images: tuple[Image, ...] = ()
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantTurn:
    """What the model said, and the calls that it decided on."""

    text: str = ""
    calls: tuple[ToolCall, ...] = field(default=())
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTurn:
    """What a call of the turn before gave."""

    call_id: str
    text: str
    ok: bool = True
    role: Literal["tool"] = "tool"


Message = SystemTurn | UserTurn | AssistantTurn | ToolTurn
