"""The real CLIs, started bare, complete a turn against the scripted model endpoint."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor.model_server import (
    CallTool,
    FailStream,
    Http,
    ModelServer,
    Say,
    StructuredAnswer,
    serve_model,
    text_sent,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_cli

PROMPT = 'Say "hellö" <exactly> so.\n\tIt\'s a test: \\n \U0001f600'
SECONDS = 60
DATA = {"name": "Zoë", "count": 3}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
CLAUDE_FLAGS = (
    *("-p", "--output-format", "stream-json", "--verbose", "--tools", ""),
    *("--strict-mcp-config", "--setting-sources", "", "--no-session-persistence"),
)
CODEX_FLAGS = (
    *("exec", "--json", "--ephemeral", "--skip-git-repo-check", "-s", "read-only"),
    *("-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "shell_snapshot"),
    *("-c", 'model_provider="loopback"'),
)

GEMINI_MODEL = "gemini-2.5-pro"
GEMINI_FLAGS = ("-o", "stream-json", "--approval-mode", "plan", "-m", GEMINI_MODEL)
GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "maxAttempts": 1},
}
GROK_FLAGS = ("--verbatim", "--output-format", "streaming-json", "--max-turns", "3")


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


async def run(command: list[str], env: dict[str, str], cwd: Path, status: int = 0) -> list[Any]:
    """Run a CLI to its end with the prompt on its stdin; give its events."""
    with trio.fail_after(SECONDS):
        done = await trio.run_process(
            command,
            env=env,
            cwd=cwd,
            stdin=PROMPT.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == status, (done.stdout.decode(), done.stderr.decode())
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


async def run_claude(program: Path, server: ModelServer, home: Path, *flags: str) -> Any:
    """Run claude; give its result event."""
    env = environment(
        home,
        ANTHROPIC_BASE_URL=server.url,
        ANTHROPIC_API_KEY="made-up-key",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
    events = await run([str(program), *CLAUDE_FLAGS, *flags], env, home)
    (result,) = [event for event in events if event["type"] == "result"]
    return result


async def run_codex(program: Path, server: ModelServer, home: Path, *flags: str) -> list[Any]:
    """Run codex; give its events."""
    provider = (
        'model_providers.loopback={name="loopback",wire_api="responses",env_key="LOOPBACK_KEY",'
        f'base_url="{server.url}/v1",request_max_retries=0,stream_max_retries=0}}'
    )
    command = [str(program), *CODEX_FLAGS, "-c", provider, "-C", str(home), *flags, "-"]
    env = environment(home, CODEX_HOME=str(home / ".codex"), LOOPBACK_KEY="made-up-key")
    return await run(command, env, home)


async def run_gemini(
    program: Path, server: ModelServer, home: Path, status: int = 0
) -> tuple[str, Any]:
    """Run gemini; give the text it showed and its result event."""
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(GEMINI_SETTINGS))
    env = environment(
        home,
        TMPDIR=str(home),
        GEMINI_CLI_HOME=str(home),
        GEMINI_API_KEY="made-up-key",
        GOOGLE_GEMINI_BASE_URL=server.url,
        GEMINI_CLI_TRUST_WORKSPACE="true",
        GEMINI_CLI_NO_RELAUNCH="true",
    )
    events = await run([str(program), *GEMINI_FLAGS], env, home, status)
    shown = [event["content"] for event in events if event.get("role") == "assistant"]
    assert events[-1]["type"] == "result"
    return "".join(shown), events[-1]


async def run_grok(
    program: Path, server: ModelServer, home: Path, *flags: str, status: int = 0, **more: str
) -> list[Any]:
    """Run grok; give its events."""
    prompt = home / "prompt"
    prompt.write_text(PROMPT)
    command = [str(program), "--prompt-file", str(prompt), *GROK_FLAGS, "--cwd", str(home), *flags]
    env = environment(
        home,
        TMPDIR=str(home),
        GROK_HOME=str(home / ".grok"),
        XAI_API_KEY="made-up-key",
        GROK_XAI_API_BASE_URL=f"{server.url}/v1",
        GROK_DISABLE_AUTOUPDATER="1",
        GROK_TELEMETRY_ENABLED="0",
        **{"GROK_TURN_SUMMARY": "0", **more},
    )
    return await run(command, env, home, status)


def joined(events: list[Any], kind: str) -> str:
    return "".join(event["data"] for event in events if event["type"] == kind)


def answer(events: list[Any]) -> str:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


def assert_one_request_with_the_prompt(server: ModelServer) -> None:
    (request,) = server.model_requests
    assert any(PROMPT in part for part in text_sent(request)), text_sent(request)


async def test_claude_says_the_text(claude: Path, home: Path) -> None:
    async with serve_model([Say(text="hello ✓")]) as server:
        result = await run_claude(claude, server, home)
    assert (result["is_error"], result["result"]) == (False, "hello ✓")
    assert result["usage"]["input_tokens"] == 11
    assert result["usage"]["cache_creation_input_tokens"] == 100
    assert result["usage"]["cache_read_input_tokens"] == 1000
    assert result["usage"]["output_tokens"] == 47
    assert_one_request_with_the_prompt(server)
    assert server.model_requests[0].headers["x-api-key"] == "made-up-key"


async def test_claude_answers_with_structure(claude: Path, home: Path) -> None:
    async with serve_model([StructuredAnswer(data=DATA)]) as server:
        result = await run_claude(claude, server, home, "--json-schema", json.dumps(SCHEMA))
    assert (result["is_error"], result["structured_output"]) == (False, DATA)
    assert_one_request_with_the_prompt(server)


async def test_codex_says_the_text(codex: Path, home: Path) -> None:
    async with serve_model([Say(text="hello ✓")]) as server:
        events = await run_codex(codex, server, home)
    assert answer(events) == "hello ✓"
    assert events[-1]["type"] == "turn.completed"
    usage = events[-1]["usage"]
    assert (usage["input_tokens"], usage["cached_input_tokens"]) == (1111, 1000)
    assert usage["cache_write_input_tokens"] == 100
    assert (usage["output_tokens"], usage["reasoning_output_tokens"]) == (47, 20)
    assert_one_request_with_the_prompt(server)
    assert server.model_requests[0].headers["authorization"] == "Bearer made-up-key"


async def test_codex_answers_with_structure(codex: Path, home: Path) -> None:
    schema = home / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    async with serve_model([StructuredAnswer(data=DATA)]) as server:
        events = await run_codex(codex, server, home, "--output-schema", str(schema))
    assert json.loads(answer(events)) == DATA
    assert events[-1]["type"] == "turn.completed"
    (request,) = server.model_requests
    assert request.json is not None
    assert request.json["text"]["format"]["schema"] == SCHEMA
    assert_one_request_with_the_prompt(server)


async def test_gemini_says_the_text(gemini_0_61_0: Path, home: Path) -> None:
    async with serve_model([Say(text="hello ✓", thinking="let me see")]) as server:
        text, result = await run_gemini(gemini_0_61_0, server, home)
    assert (result["status"], text) == ("success", "hello ✓")
    stats = result["stats"]["models"][GEMINI_MODEL]
    assert (stats["input_tokens"], stats["cached"], stats["input"]) == (1111, 1000, 111)
    assert (stats["output_tokens"], stats["total_tokens"]) == (27, 1158)
    assert_one_request_with_the_prompt(server)
    assert server.model_requests[0].headers["x-goog-api-key"] == "made-up-key"


async def test_gemini_calls_a_tool(gemini_0_61_0: Path, home: Path) -> None:
    call = CallTool(name="list_directory", arguments={"dir_path": "."}, text="Looking. ")
    async with serve_model([call, Say(text="done")]) as server:
        text, result = await run_gemini(gemini_0_61_0, server, home)
    assert (result["status"], text) == ("success", "Looking. done")
    assert result["stats"]["tool_calls"] == 1
    assert len(server.model_requests) == 2


async def test_gemini_meets_an_error(gemini_0_61_0: Path, home: Path) -> None:
    step = Http(status=401, error_type="UNAUTHENTICATED", message="who are you")
    async with serve_model([step]) as server:
        _, result = await run_gemini(gemini_0_61_0, server, home, status=401 % 256)
    assert result["status"] == "error"
    assert "who are you" in result["error"]["message"]
    assert_one_request_with_the_prompt(server)


async def test_gemini_meets_an_error_inside_the_stream(gemini_0_61_0: Path, home: Path) -> None:
    step = FailStream(code="UNAVAILABLE", message="busy", after_text="partial")
    async with serve_model([step]) as server:
        text, result = await run_gemini(gemini_0_61_0, server, home, status=503 % 256)
    assert (result["status"], text) == ("error", "partial")
    assert "busy" in result["error"]["message"]


async def test_grok_says_the_text(grok_1_0_41: Path, home: Path) -> None:
    async with serve_model([Say(text="hello ✓", thinking="let me see")]) as server:
        events = await run_grok(grok_1_0_41, server, home)
    assert joined(events, "text") == "hello ✓"
    assert joined(events, "thought") == "let me see"
    assert (events[-1]["type"], events[-1]["stopReason"]) == ("end", "end_turn")
    usage = events[-1]["usage"]
    # It takes what was written to the cache for plain input.
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (111, 1000)
    assert (usage["output_tokens"], usage["reasoning_tokens"]) == (47, 20)
    assert_one_request_with_the_prompt(server)
    assert server.model_requests[0].headers["authorization"] == "Bearer made-up-key"


async def test_the_side_calls_of_grok_take_no_step(grok_1_0_41: Path, home: Path) -> None:
    async with serve_model([Say(text="hello"), Say(text="no")]) as server:
        events = await run_grok(grok_1_0_41, server, home, GROK_TURN_SUMMARY="1")
    assert joined(events, "text") == "hello"
    assert events[-1]["usage"]["total_tokens"] == 1158
    purposes = {request.purpose for request in server.requests}
    assert purposes == {None, "answer", "title", "summary"}
    assert_one_request_with_the_prompt(server)


async def test_grok_answers_with_structure(grok_1_0_41: Path, home: Path) -> None:
    async with serve_model([StructuredAnswer(data=DATA)]) as server:
        events = await run_grok(grok_1_0_41, server, home, "--json-schema", json.dumps(SCHEMA))
    assert events[-1]["structuredOutput"] == DATA
    assert_one_request_with_the_prompt(server)


async def test_grok_meets_an_error(grok_1_0_41: Path, home: Path) -> None:
    step = Http(status=401, error_type="unauthenticated", message="who are you")
    async with serve_model([step]) as server:
        events = await run_grok(grok_1_0_41, server, home, status=1)
    assert events[-1]["type"] == "error"
    assert "who are you" in events[-1]["message"]
    assert_one_request_with_the_prompt(server)
