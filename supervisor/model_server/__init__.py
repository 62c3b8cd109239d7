"""A scripted model endpoint on loopback: the vendor's side of a coding-agent CLI, without a vendor.

It speaks the Anthropic Messages API, the OpenAI Responses API and the Gemini API, streamed and
not, as far as ``claude``, ``codex``, ``grok`` and ``gemini`` need them to finish a turn. What it
answers is a script of steps::

    async with serve_model([Say(text="hello")]) as server:
        environment["ANTHROPIC_BASE_URL"] = server.url

It needs only ``trio`` and ``h11`` and stands apart from the rest of the package.
"""

from supervisor.model_server.request import ModelRequest, Protocol, text_sent
from supervisor.model_server.script import (
    CallTool,
    CutStream,
    FailStream,
    Http,
    Say,
    Script,
    Silence,
    Step,
    StructuredAnswer,
    Unreadable,
    Usage,
)
from supervisor.model_server.server import ModelServer, serve_model
from supervisor.model_server.side_calls import Purpose

__all__ = [
    "CallTool",
    "CutStream",
    "FailStream",
    "Http",
    "ModelRequest",
    "ModelServer",
    "Protocol",
    "Purpose",
    "Say",
    "Script",
    "Silence",
    "Step",
    "StructuredAnswer",
    "Unreadable",
    "Usage",
    "serve_model",
    "text_sent",
]
