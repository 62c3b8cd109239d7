"""What can be told about a request before anything is planned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from supervisor.model.conversation import AssistantTurn, ToolTurn, UserTurn
from supervisor.model.errors import as_error, failure
from supervisor.model.request import (
    MAX_ANSWER,
    MIB,
    Access,
    BillingPolicy,
    Effort,
    Hermetic,
    ServiceTier,
)
from supervisor.protocol.schema_check import check_schema, check_tools
from supervisor.protocol.transcript import split, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.model.conversation import Message
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Request


def check_request(request: Request[Any]) -> None:
    """Refuse what no CLI could be given.

    Raises:
        RequestError: `request.invalid` or `request.too_large`, naming the field.
    """
    _check_question(request)
    for name in ("system", "model", "workspace", "resume", "login"):
        text = getattr(request, name)
        if text is not None:
            _check_text(name, text)
            if not text.strip():
                raise _invalid(f"The field {name} is empty.", f"Give {name} a value or leave it.")
            if name != "system" and text.startswith("-"):
                raise _invalid(f"The field {name} begins with a dash.", "Give the name itself.")
    for name, words in _CHOICES.items():
        value = getattr(request, name)
        if value not in words and (value is not None or name not in _OPTIONAL):
            raise _invalid(
                f"There is no such {name}: {value!r}.", f"Use one of {', '.join(map(str, words))}."
            )
    _check_turns(request)
    check_schema(request)
    check_tools(request)
    _check_servers(request)
    _check_limits(request)
    _check_size(request)


_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "effort": get_args(Effort),
    "service_tier": get_args(ServiceTier),
    "access": get_args(Access),
    "billing": get_args(BillingPolicy),
    "hermetic": get_args(Hermetic),
    "repair": (0, 1),
}
_OPTIONAL = ("effort", "service_tier", "billing")
_SIGNATURES: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def _check_question(request: Request[Any]) -> None:
    _check_text("prompt", request.prompt)
    if request.messages:
        if request.prompt:
            raise _invalid("The request has a prompt and messages.", "Give one of the two.")
        _check_messages(request.messages)
    elif not request.prompt.strip():
        raise _invalid("The prompt is empty.", "Put the question into prompt, or into messages.")
    images = [*request.images]
    for turn in request.messages:
        images += turn.images if isinstance(turn, UserTurn) else ()
    for number, image in enumerate(images):
        heads = _SIGNATURES.get(image.media_type)
        if heads is None:
            raise _invalid(
                f"Image {number} is of the kind {image.media_type!r}.",
                f"Use one of {', '.join(_SIGNATURES)}.",
            )
        # A CLI was seen to answer without a word on a picture that it could not read.
        if not image.data.startswith(heads):
            raise _invalid(
                f"Image {number} is no {image.media_type}.", "Give the bytes of the picture's file."
            )


def _check_messages(messages: Sequence[Message]) -> None:
    for place, text in texts(messages):
        _check_text(place, text)
    turns = [turn for turn in messages if turn.role != "system"]
    if not turns or turns[-1].role not in ("user", "tool"):
        raise _invalid(
            "The messages do not end with a user's turn or a tool's result.",
            "Put the question at the end.",
        )
    calls: set[str] = set()
    for number, turn in enumerate(messages):
        if isinstance(turn, AssistantTurn):
            ids = [call.id for call in turn.calls]
            if calls & set(ids) or len(set(ids)) < len(ids):
                raise _invalid(
                    f"messages[{number}] uses the id of a call again.", "Give it its own."
                )
            calls.update(ids)
        elif isinstance(turn, ToolTurn) and turn.call_id not in calls:
            raise _invalid(
                f"messages[{number}] is the result of a call that no turn before it made.",
                "Give call_id the id of an earlier call.",
            )


def _check_turns(request: Request[Any]) -> None:
    turns = cast("object", request.max_turns)
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
        raise _invalid(f"max_turns is {turns!r}.", "Give a whole number of at least 1.")
    if (request.access == "none") != (request.workspace is None):
        raise _invalid(
            f"access={request.access!r} and workspace={request.workspace!r} do not go together.",
            'Give a workspace with access="read" or "write", and none otherwise.',
        )
    if request.workspace is not None and not request.workspace.startswith("/"):
        raise _invalid("The workspace is no absolute path.", "Give the whole path.")


def _check_servers(request: Request[Any]) -> None:
    for name, server in (request.mcp_config or {}).items():
        _check_text("mcp_config", name)
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or not isinstance(server, Mapping):
            raise _invalid(
                f"mcp_config[{name!r}] is no server.",
                "Give each server a name of letters, digits, _ and -, and a mapping of its settings.",
            )
        try:
            json.dumps(dict(server), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise _invalid(f"mcp_config[{name!r}] is no JSON.", "Use JSON values only.") from error


def _check_size(request: Request[Any]) -> None:
    spoken = request.prompt if not request.messages else split(request.messages)[1]
    size = len(spoken.encode())
    if size > request.limits.prompt:
        raise as_error(
            failure(
                "request.too_large",
                f"The prompt has {size} bytes, and the limit is {request.limits.prompt}.",
                hint="Send less, or raise Limits(prompt=...).",
            )
        )


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise _invalid(f"The field {name} is {type(text).__name__} and no text.", "Give a str.")
    if "\0" in text:
        raise _invalid(f"The field {name} holds a NUL character.", "Take the NUL characters out.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(
            f"The field {name} holds a lone surrogate at character {error.start}.",
            "Decode the text with errors='replace' where it was read.",
        ) from None


def _check_limits(request: Request[Any]) -> None:
    timeouts, limits = request.timeouts, request.limits
    for name in ("start", "idle", "tool", "total", "linger", "grace", "drain"):
        seconds: object = getattr(timeouts, name)
        if seconds is None and name not in ("linger", "grace", "drain"):
            continue
        if not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise _invalid(
                f"The time limit {name} is {seconds!r}.", f"Give Timeouts({name}=...) seconds >= 0."
            )
    for name in ("prompt", "answer", "line", "stdout", "stderr_tail"):
        size: object = getattr(limits, name)
        if (size is not None or name != "line") and (not isinstance(size, int) or size <= 0):
            raise _invalid(
                f"The size limit {name} is {size!r}.", f"Give Limits({name}=...) bytes > 0."
            )
    if limits.answer > MAX_ANSWER:
        raise _invalid(
            f"The limit of the answer is {limits.answer} bytes.",
            f"Give Limits(answer=...) at most {MAX_ANSWER}.",
        )
    if limits.line_bytes < 2 * limits.answer + MIB:
        raise _invalid(
            "The limit of a line is too small for the limit of the answer.",
            "Give Limits(line=...) at least 2 * answer + 1 MiB, or lower Limits(answer=...).",
        )


def _invalid(message: str, hint: str) -> SupervisorError:
    return as_error(failure("request.invalid", message, hint=hint))
