"""The real CLIs, started bare, complete a turn against the scripted model endpoint."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor.model_server import ModelServer, Say, StructuredAnswer, serve_model, text_sent

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


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


async def run(command: list[str], env: dict[str, str], cwd: Path) -> list[Any]:
    """Run a CLI to its good end with the prompt on its stdin; give its events."""
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
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
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
