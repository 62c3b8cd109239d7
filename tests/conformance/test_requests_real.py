"""What a request can ask beside a prompt, with the real CLIs: what arrives at the model's server."""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor import (
    AssistantTurn,
    FinalAnswer,
    Image,
    Request,
    SupervisorError,
    Tool,
    ToolCall,
    UserTurn,
)
from supervisor.model_server import (
    CallTool,
    ModelRequest,
    Say,
    Step,
    StructuredAnswer,
    serve_model,
    text_sent,
)
from tests.conformance.test_answer_mode import SECONDS, Verdict, ask, stands_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from supervisor import Completion
    from tests.conformance.clis import RealCli

pytestmark = pytest.mark.real_cli


def png(side: int = 32) -> Image:
    """A picture of one colour; a CLI was seen to drop very small ones."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff\x80\0" * side) * side)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return Image(data=b"\x89PNG\r\n\x1a\n" + parts, media_type="image/png")


async def one(
    cli: RealCli, script: Any, request: Request[Any], **given: Any
) -> tuple[Completion[Any], list[ModelRequest]]:
    """A run's completion and the model requests that it made."""
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, cli.supervisor(server, **given) as supervisor:
            completion = await supervisor.run(request)
            return completion, list(server.model_requests)


async def test_a_picture_reaches_the_model(cli: RealCli) -> None:
    picture = png()
    prompt = "/help me: what is @/etc/hostname in the picture?"
    completion, (request,) = await one(
        cli, [Say(text="Orange.")], ask(cli, prompt, images=(picture,))
    )
    assert completion.text == "Orange."
    body = request.body.decode()
    assert base64.b64encode(picture.data).decode()[:200] in body or "image" in body
    assert stands_in(cli, request, prompt)


async def test_a_conversation_reaches_the_model(cli: RealCli) -> None:
    turns = (
        UserTurn(text="What is 6 x 7?"),
        AssistantTurn(text="42", calls=(ToolCall(name="check", arguments={"n": 42}, id="1"),)),
        UserTurn(text="Are you sure?"),
    )
    _, (request,) = await one(cli, [Say(text="Yes.")], ask(cli, "", messages=turns))
    (sent,) = [part for part in text_sent(request) if "6 x 7" in part]
    assert sent.index("6 x 7") < sent.index("42") < sent.index("Are you sure?")


NOTHING = [Say(text="This was not to be asked.")]
SEARCH = Tool(
    name="search",
    description="Looks things up.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


async def test_a_decision_comes_back_as_one(cli: RealCli) -> None:
    arguments: dict[str, Any] = {"query": "x"}
    if cli.provider in ("codex", "grok"):
        arguments["limit"] = None
    call = {"decision": {"tool": "search", "arguments": arguments}}
    completion, _ = await one(cli, [StructuredAnswer(data=call)], ask(cli, tools=(SEARCH,)))
    assert completion.decision == ToolCall(name="search", arguments={"query": "x"})
    final = {"decision": {"answer": "It is 7."}}
    completion, _ = await one(cli, [StructuredAnswer(data=final)], ask(cli, tools=(SEARCH,)))
    assert completion.decision == FinalAnswer()
    assert completion.text == "It is 7."


async def test_a_second_round_tells_what_was_wrong(cli: RealCli) -> None:
    # claude asks again by itself before it gives up on a schema.
    misses: list[Step] = [Say(text="I would rather not.")] * (2 if cli.provider == "claude" else 1)
    good = StructuredAnswer(data={"answer": "yes", "confidence": 0.5, "reason": None})
    completion, requests = await one(cli, [*misses, good], ask(cli, schema=Verdict, repair=1))
    assert completion.data == Verdict(answer="yes", confidence=0.5)
    assert completion.attempts == 2
    assert any("I would rather not." in part for part in text_sent(requests[-1]))
    assert completion.usage is not None
    assert completion.usage.output is not None
    assert completion.usage.output > 47 / 2


async def test_a_kept_session_is_gone_on_with(cli: RealCli, cell: Callable[[str], None]) -> None:
    if not cli.capabilities.sessions:
        with pytest.raises(SupervisorError) as caught:
            await one(cli, NOTHING, ask(cli, keep_session=True))
        cell("refused")
        assert caught.value.code == "request.unsupported"
        return
    first, _ = await one(cli, [Say(text="Noted.")], ask(cli, "Remember 42.", keep_session=True))
    assert first.session_id is not None
    request = ask(cli, "What was it?", resume=first.session_id)
    second, (sent, *_) = await one(cli, [Say(text="42.")], request)
    assert second.text == "42."
    assert second.session_id == first.session_id
    assert any("Remember 42." in part for part in text_sent(sent))
    assert second.usage is not None
    assert second.usage.cumulative == (cli.provider == "codex")


async def test_a_strict_run_hides_what_the_user_has(cli: RealCli) -> None:
    marker = "SECRET-OF-THE-USER"
    for folder in (".claude/CLAUDE.md", ".codex/AGENTS.md", ".grok/AGENTS.md", ".gemini/GEMINI.md"):
        path = cli.home / folder
        path.parent.mkdir(exist_ok=True)
        path.write_text(marker)
    completion, (request, *_) = await one(cli, [Say(text="Seen.")], ask(cli, hermetic="strict"))
    assert completion.text == "Seen."
    assert marker not in request.body.decode()
    # claude 2.1.332 brings plugins of its own, and names them.
    assert all(name.startswith("plugin cc-plugin-") for name in completion.loaded or ())


SERVER = """
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if "id" not in call:
        continue
    result = {}
    if call["method"] == "initialize":
        result = {"protocolVersion": call["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "toy", "version": "1"}}
    elif call["method"] == "tools/list":
        result = {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]}
    elif call["method"] == "tools/call":
        open(sys.argv[1], "w").close()
        result = {"content": [{"type": "text", "text": "five"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""


async def test_a_server_that_the_request_names_is_used(
    cli: RealCli, tmp_path: Path, cell: Callable[[str], None]
) -> None:
    called = tmp_path / "called"
    servers = {"toy": {"command": sys.executable, "args": ["-c", SERVER, str(called)]}}
    request = ask(cli, mcp_config=servers)
    if not cli.capabilities.mcp:
        with pytest.raises(SupervisorError) as caught:
            await one(cli, NOTHING, request)
        cell("refused")
        assert caught.value.code == "request.unsupported"
        return
    names = {"claude": "mcp__toy__add", "codex": "mcp__toy__add", "gemini": "mcp_toy_add"}
    script = [CallTool(name=names[cli.provider], arguments={}), Say(text="It is five.")]
    completion, _ = await one(cli, script, request)
    assert completion.text == "It is five."
    if cli.provider != "codex":  # its built-in name spaces for tools differ by model
        assert called.exists()


async def test_read_access_reads_and_does_not_write(
    cli: RealCli, tmp_path: Path, cell: Callable[[str], None]
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "note.txt").write_text("CONTENT-OF-THE-NOTE")
    (workspace / "CLAUDE.md").write_text("PROJECT-MEMORY")
    (workspace / "AGENTS.md").write_text("PROJECT-MEMORY")
    request = ask(cli, access="read", workspace=str(workspace))
    if "read" not in cli.capabilities.access:
        with pytest.raises(SupervisorError) as caught:
            await one(cli, NOTHING, request)
        cell("refused")
        assert caught.value.code == "request.unsupported"
        return
    note, written = str(workspace / "note.txt"), workspace / "written"
    reads: dict[str, list[Step]] = {
        "claude": [
            CallTool(name="Read", arguments={"file_path": note}),
            CallTool(name="Write", arguments={"file_path": str(written), "content": "x"}),
        ],
        "codex": [
            CallTool(name="exec_command", arguments={"cmd": f"cat {note}"}),
            CallTool(name="exec_command", arguments={"cmd": f"touch {written}"}),
        ],
        "gemini": [
            CallTool(name="read_file", arguments={"file_path": note}),
            CallTool(name="write_file", arguments={"file_path": str(written), "content": "x"}),
        ],
    }
    script = [*reads[cli.provider], Say(text="Read.")]
    model = {"model": "gpt-5.5"} if cli.provider == "codex" else {}
    completion, requests = await one(cli, script, Request(**{**_fields(request), **model}))
    assert completion.text == "Read."
    assert "CONTENT-OF-THE-NOTE" in requests[-1].body.decode()
    assert "PROJECT-MEMORY" not in requests[0].body.decode()
    assert not written.exists()


def _fields(request: Request[Any]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


async def test_who_is_signed_in_is_the_clis_own_word(cli: RealCli) -> None:
    async with cli.supervisor("http://127.0.0.1:9") as supervisor:
        found = await supervisor.sign_in(cli.provider)
    if cli.provider == "codex":
        assert found.state == "signed_out"
        login = {"auth_mode": "apikey", "OPENAI_API_KEY": "sk-made-up"}
        (cli.home / ".codex" / "auth.json").write_text(json.dumps(login))
        environ = {"PATH": os.environ["PATH"], "HOME": str(cli.home)}
        async with cli.supervisor("http://127.0.0.1:9", environ=environ) as supervisor:
            assert (await supervisor.sign_in("codex")).payer == "api_key"
            with pytest.raises(SupervisorError) as caught:
                await supervisor.run(ask(cli, billing="subscription"))
        assert caught.value.code == "auth.api_key_in_use"
    elif cli.provider == "claude":
        assert (found.state, found.payer) == ("signed_in", "api_key")
    else:
        assert found.state == "unknown"
