"""Model calls that a CLI makes beside the one that answers its prompt, and what they are answered.

They come whenever the CLI likes, so they take no step of the script: a script would otherwise
have to know in which order they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from supervisor.model_server.script import CallTool, Say, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.model_server.script import Step

Purpose: TypeAlias = Literal["answer", "title", "summary"]
"""What a model call is for: the answer to a prompt, a title of the session, or a summary of the
turn. Only ``grok`` is known to make the two latter ones."""

_TITLE_TOOL = "session_title"
_SUMMARY_ID = "xai-turn-summary"
_TEXT = "Loopback session"
# Unlike the default in every part, so that a side call that is counted in shows in a test.
_USAGE = Usage(uncached=7, cache_write=0, cache_read=0, output=3, reasoning=0)


def purpose_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Purpose:
    """Tell what a readable model call is for."""
    if headers.get("x-grok-req-id", "").startswith(_SUMMARY_ID):
        return "summary"
    choice = body.get("tool_choice")
    forced = cast("dict[str, Any]", choice).get("name") if isinstance(choice, dict) else None
    return "title" if forced == _TITLE_TOOL else "answer"


def side_step(purpose: Purpose) -> Step:
    """Make the fixed good answer to a side call."""
    if purpose == "title":
        return CallTool(name=_TITLE_TOOL, arguments={_TITLE_TOOL: _TEXT}, usage=_USAGE)
    return Say(text=_TEXT, usage=_USAGE)
