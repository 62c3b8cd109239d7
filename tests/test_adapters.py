"""How each CLI is started, and what its recorded output means."""

from __future__ import annotations

import json
import signal
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from supervisor import AuthError, Exit, RequestError, SupervisorError, provider_names, register
from supervisor.adapters import find_adapter
from supervisor.adapters.claude import Claude
from supervisor.model.adapter import FoundFile, Surroundings
from supervisor.model.events import Unrecognized
from supervisor.model.launch import Launch, Places
from supervisor.protocol.accumulate import Accumulator, End
from supervisor.protocol.asked import asked
from supervisor.protocol.checks import check_request
from supervisor.protocol.decode import encodable, read_objects
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.supported import check_supported
from tests.fakes import RECORDINGS, ask
from tests.test_decode import JSON
from tests.test_schema import Verdict

if TYPE_CHECKING:
    from supervisor.model.adapter import Decoder
    from supervisor.model.events import Record

PLACES = Places(
    run_id="0123456789ab",
    work="/p/work",
    files="/p/files",
    state="/p/state",
    temporary="/p/tmp",
)
OURS = ("claude", "codex")
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NOT_COMPARED = ("version", "exit_code", "signal", "schema", "tool_used")
CASES = sorted(
    str(path.parent.relative_to(RECORDINGS))
    for name in OURS
    for path in (RECORDINGS / name).glob("*/expect.json")
)


def around(environ: dict[str, str] | None = None, **known: Any) -> Surroundings:
    environ = {"HOME": "/home/user"} if environ is None else environ
    return Surroundings(places=PLACES, environ=environ, **known)


def plan(
    provider: str, environ: dict[str, str] | None = None, found: Any = (), **request: Any
) -> Launch:
    adapter = find_adapter(provider)
    own = ask(provider=provider, **request)
    check_request(own)
    check_supported(own, adapter)
    return adapter.plan(asked(own, adapter.capabilities, None), around(environ, found=found))


# ---- planning


def test_a_plain_claude_question() -> None:
    launch = plan("claude", prompt="What is it?")
    assert launch.arguments == snapshot(
        (
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
            "--tools",
            "",
            "--strict-mcp-config",
            "--setting-sources",
            "",
            "--no-session-persistence",
        )
    )
    assert launch.environment == snapshot(
        {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
            "CLAUDE_CODE_MAX_RETRIES": "3",
            "API_TIMEOUT_MS": "120000",
            "XDG_RUNTIME_DIR": "/p/tmp",
            "CLAUDE_CODE_TMPDIR": "/p/tmp",
        }
    )
    assert launch.stdin == b"What is it?"
    assert launch.tidy == snapshot(
        ("/home/user/.claude/projects/-p-work", "/home/user/.claude/projects/-p-work/memory")
    )


def test_a_plain_codex_question() -> None:
    launch = plan("codex", prompt="What is it?")
    assert launch.arguments == snapshot(
        (
            "exec",
            "--json",
            "--ephemeral",
            "--skip-git-repo-check",
            "--ignore-user-config",
            "--ignore-rules",
            "-s",
            "read-only",
            "-C",
            "/p/work",
            "--disable",
            "shell_tool",
            "--disable",
            "unified_exec",
            "--disable",
            "code_mode_host",
            "--disable",
            "view_image",
            "--disable",
            "image_generation",
            "--disable",
            "apps",
            "--disable",
            "plugins",
            "--disable",
            "remote_plugin",
            "--disable",
            "tool_suggest",
            "--disable",
            "skill_search",
            "--disable",
            "sleep_tool",
            "--disable",
            "multi_agent",
            "--disable",
            "goals",
            "--disable",
            "hooks",
            "--disable",
            "shell_snapshot",
            "--disable",
            "unbounded_connection_retries",
            "-c",
            'web_search="disabled"',
            "-c",
            "agents.enabled=false",
            "-c",
            "project_doc_max_bytes=0",
            "-c",
            "skills.bundled.enabled=false",
            "-c",
            "skills.include_instructions=false",
            "-c",
            "analytics.enabled=false",
            "-c",
            "skills.config=[]",
            "-",
        )
    )
    assert launch.environment == {}
    assert launch.stdin == b"What is it?"
    assert launch.polite == "INT"


def test_everything_that_a_request_can_ask_of_claude() -> None:
    launch = plan("claude", system="Be brief.", model="opus", effort="max", schema=Verdict)
    assert launch.arguments[11:-1] == snapshot(
        (
            "--system-prompt-file",
            "/p/files/system.txt",
            "--model",
            "opus",
            "--effort",
            "max",
            "--json-schema",
        )
    )
    assert json.loads(launch.arguments[-1]) == Verdict.model_json_schema()
    assert [(file.name, file.content) for file in launch.files] == [("system.txt", b"Be brief.")]


def test_everything_that_a_request_can_ask_of_codex() -> None:
    launch = plan("codex", system='Say "é\n".', model="m", effort="ultra", schema=Verdict)
    text = " ".join(launch.arguments)
    assert '-c model_reasoning_effort="ultra"' in text
    assert '-c developer_instructions="Say \\"é\\n\\"."' in text
    assert text.endswith("--output-schema /p/files/schema.json -m m -")
    (file,) = launch.files
    assert json.loads(file.content)["required"] == ["answer", "confidence"]


@pytest.mark.parametrize("provider", OURS)
@pytest.mark.parametrize(
    "prompt", ["-x", "--help", "resume", "/help me", "@/etc/hostname", "a\r\n b "]
)
def test_the_prompt_is_data(provider: str, prompt: str) -> None:
    launch = plan(provider, prompt=prompt)
    assert prompt not in launch.arguments
    assert prompt.encode() in launch.stdin
    assert launch.stdin.strip() == prompt.encode().strip()
    if provider == "claude":
        assert not launch.stdin.startswith(b"/")


def test_a_byte_order_mark_at_the_head_of_a_codex_prompt_survives() -> None:
    assert plan("codex", prompt="\ufeffx").stdin == "\n\ufeffx".encode()


@pytest.mark.parametrize(
    ("provider", "given", "code"),
    [
        ("claude", {"effort": "ultra"}, "request.unsupported"),
        ("claude", {"prompt": "x" * 10_000_001}, "request.too_large"),
        ("claude", {"schema": {"type": "object", "title": "x" * 140_000}}, "request.too_large"),
        ("claude", {"schema": {"type": "string"}}, "request.unsupported"),
        ("codex", {"prompt": "é" * 1_048_577}, "request.too_large"),
        ("codex", {"system": "x" * 140_000}, "request.too_large"),
        ("codex", {"schema": {"type": "object"}}, "request.unsupported"),
    ],
)
def test_what_a_cli_cannot_honour_is_refused_before_the_start(
    provider: str, given: dict[str, Any], code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        plan(provider, **given)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("provider", "key"), [("claude", "ANTHROPIC_API_KEY"), ("codex", "CODEX_API_KEY")]
)
def test_a_key_that_would_pay_is_refused_before_the_start(provider: str, key: str) -> None:
    with pytest.raises(AuthError) as caught:
        plan(provider, {"HOME": "/h", key: "made-up"})
    assert caught.value.code == "auth.api_key_in_use"
    plan(provider, {"HOME": "/h", key: ""})
    plan(provider, {"HOME": "/h", key: "made-up"}, billing="api_key")


def test_the_users_skills_are_switched_off_one_by_one() -> None:
    codex = find_adapter("codex")

    def skills(environ: dict[str, str], **request: Any) -> list[str]:
        wanted = codex.looks_for(ask(**request), environ)
        return [each.folder for each in wanted if each.name == "SKILL.md" and each.deep]

    assert skills({"HOME": "/h"}) == ["/h/.agents/skills", "/h/.codex/skills"]
    assert skills({"HOME": "/h", "CODEX_HOME": "/c"}) == ["/h/.agents/skills", "/c/skills"]
    assert skills({"HOME": "/h"}, hermetic="strict") == ["/h/.agents/skills"]
    paths = ('/h/a "b"/SKILL.md', "/h/é/SKILL.md")
    launch = plan("codex", {}, found=tuple(FoundFile(path=path) for path in paths))
    setting = next(word for word in launch.arguments if word.startswith("skills.config"))
    assert tomllib.loads(setting)["skills"]["config"] == [
        {"path": '/h/a "b"/SKILL.md', "enabled": False},
        {"path": "/h/é/SKILL.md", "enabled": False},
    ]


def test_the_native_binary_behind_a_launcher() -> None:
    claude, codex = find_adapter("claude"), find_adapter("codex")
    package = "/n/node_modules/@anthropic-ai"
    assert claude.natives(f"{package}/claude-code/bin/claude.exe", "x86_64")[0] == (
        f"{package}/claude-code-linux-x64/claude"
    )
    package = "/n/node_modules/@openai"
    assert codex.natives(f"{package}/codex/bin/codex.js", "aarch64")[0] == (
        f"{package}/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex"
    )
    for adapter in (claude, codex):
        assert adapter.natives("/usr/bin/tool", "x86_64") == ()
        assert adapter.natives(f"{package}/codex/bin/codex.js", "riscv64") == ()


# ---- reading


@dataclass(kw_only=True)
class Reading:
    """A stream read to its end."""

    accumulator: Accumulator
    decoder: Decoder
    records: list[Record] = field(default_factory=list)


def read(provider: str, stdout: bytes, **given: Any) -> Reading:
    request = ask(provider=provider, billing="any", **given)
    decoder = find_adapter(provider).decoder(request, around())
    reading = Reading(accumulator=Accumulator(request, optional_as_null=False), decoder=decoder)
    framer = Framer(request.limits.line_bytes)
    for line in [*framer.feed(stdout), *framer.finish()]:
        assert not isinstance(line, Dropped)
        for value in read_objects(line):
            if isinstance(value, Unrecognized):
                reading.records.append(value)
            else:
                reading.records += decoder.record(value, len(line), AT)
    for record in reading.records:
        reading.accumulator.take(record)
    return reading


def ended(expected: dict[str, Any]) -> Exit:
    name = expected["signal"]
    number = None if name is None else int(getattr(signal, name))
    return Exit(code=expected["exit_code"], signal=number, ended_by_us=False)


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_run_means_what_it_meant(case: str) -> None:
    folder = RECORDINGS / case
    expected = json.loads((folder / "expect.json").read_text())
    stdout, stderr = (
        path.read_bytes() if (path := folder / name).exists() else b""
        for name in ("stdout", "stderr")
    )
    provider = case.split("/")[0]
    reading = read(provider, stdout, schema={"type": "object"} if expected["schema"] else None)
    kept = reading.accumulator
    used = kept.violation
    assert (used is not None and used.code == "policy.tool_used") == expected["tool_used"]
    kept.violation = None  # recordings of agent runs use tools, and still have an outcome
    exit_ = ended(expected)
    diagnosis = find_adapter(provider).diagnose(exit_, stderr.decode("utf-8", "replace"))
    verdict = kept.settle(End(exit=exit_, diagnosis=diagnosis))
    fact, usage, text = verdict.failure, kept.usage, verdict.text
    assert {
        "outcome": "ok" if fact is None else fact.code,
        "status": None if fact is None else fact.status,
        "resets_at": fact.resets_at.isoformat() if fact and fact.resets_at else None,
        "text": text if len(text) < 200 else f"{len(text)} characters",
        "model": kept.model,
        "payer": reading.decoder.billing().payer,
        "usage": usage
        and [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning],
        "unrecognized": sum(record.kind == "unrecognized" for record in reading.records),
    } == {name: expected[name] for name in expected if name not in NOT_COMPARED}
    if expected["version"] and kept.started and kept.started.cli_version:
        assert kept.started.cli_version == expected["version"]


@pytest.mark.parametrize(
    "case",
    [
        "claude/c-stream-partial",
        "claude/v332-b-schema-stream",
        "claude/c-stream-thinking-partial",
        "claude/e-401-r1",
        "claude/d-agent-subagent",
        "codex/c1-events-matrix",
        "codex/e01-401",
        "codex/m00-ws-404",
    ],
)
def test_the_order_of_events(case: str) -> None:
    reading = read(case.split("/")[0], (RECORDINGS / case / "stdout").read_bytes())
    kinds = [record.kind for record in reading.records]
    assert kinds == ORDERS[case]


ORDERS: dict[str, list[str]] = snapshot(
    {
        "claude/c-stream-partial": [
            "started",
            "notice",
            "text_delta",
            "text_delta",
            "text_delta",
            "text",
            "usage",
            "turn_ended",
        ],
        "claude/v332-b-schema-stream": ["started", "usage", "turn_ended"],
        "claude/c-stream-thinking-partial": [
            "started",
            "notice",
            "reasoning",
            "reasoning",
            "text_delta",
            "text_delta",
            "text_delta",
            "text",
            "usage",
            "turn_ended",
        ],
        "claude/e-401-r1": ["started", "notice", "error_reported", "usage", "turn_ended"],
        "claude/d-agent-subagent": [
            "started",
            "tool_started",
            "notice",
            "notice",
            "notice",
            "tool_finished",
            "text",
            "usage",
            "turn_ended",
        ],
        "codex/c1-events-matrix": [
            "started",
            "notice",
            "reasoning",
            "text",
            "notice",
            "tool_started",
            "tool_finished",
            "tool_started",
            "tool_finished",
            "file_changed",
            "file_changed",
            "tool_started",
            "tool_finished",
            "tool_started",
            "tool_finished",
            "notice",
            "text",
            "notice",
            "usage",
            "turn_ended",
        ],
        "codex/e01-401": [
            "started",
            "notice",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "error_reported",
            "turn_ended",
        ],
        "codex/m00-ws-404": [
            "started",
            "notice",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "error_reported",
            "notice",
            "text",
            "usage",
            "turn_ended",
        ],
    }
)


@pytest.mark.parametrize("case", [c for c in CASES if (RECORDINGS / c / "stdout").exists()])
def test_no_error_carries_what_the_server_said(case: str) -> None:
    """A 401 of one vendor quotes the head of the key; a gateway's page may hold anything."""
    provider = case.split("/")[0]
    reading = read(provider, (RECORDINGS / case / "stdout").read_bytes())
    for record in reading.records:
        if record.kind in ("notice", "error_reported", "turn_ended"):
            fact = getattr(record, "failure", None)
            said = f"{fact.message} {fact.hint}" if fact else getattr(record, "message", "")
            assert not {"fake", "sk-", "http", "<html"} & set(said.replace("/", " ").split())
            assert "127.0.0.1" not in said


TYPES = st.sampled_from(
    [
        *("system", "assistant", "user", "stream_event", "rate_limit_event", "result"),
        *("thread.started", "item.started", "item.completed", "error", "turn.completed"),
        *("turn.failed", "never_seen"),
    ]
)
KEYS = st.sampled_from(
    [
        *("subtype", "message", "content", "event", "delta", "usage", "modelUsage", "is_error"),
        *("rate_limit_info", "resetsAt", "item", "type", "text", "id", "error", "result"),
        *("num_turns", "stop_reason", "parent_tool_use_id", "api_error_status", "changes"),
        *("structured_output", "apiKeySource", "tools", "kind"),
    ]
)
RECORD_LIKE = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={},
).flatmap(
    lambda head: st.dictionaries(KEYS, st.dictionaries(KEYS, JSON | TYPES, max_size=4) | JSON).map(
        lambda rest: {**rest, **head}
    )
)


@pytest.mark.parametrize("provider", OURS)
@given(st.lists(RECORD_LIKE, max_size=4))
def test_no_object_makes_a_decoder_raise(provider: str, values: list[dict[str, Any]]) -> None:
    decoder = find_adapter(provider).decoder(ask(provider=provider), around())
    for value in values:
        for record in decoder.record(encodable(value), 10, datetime.now(UTC)):
            assert record.kind
    assert decoder.billing().payer in ("subscription", "api_key", "unknown")


# ---- the registry


def test_the_adapters_are_found_without_a_list() -> None:
    assert set(OURS) <= set(provider_names())
    for name in OURS:
        assert find_adapter(name).kind == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("claud", "Did you mean 'claude'?"),
        ("claude_code", 'Use "claude".'),
        ("qwen", "never a CLI"),
        ("xyz", "The providers are"),
        ("__init__", "The providers are"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_adapter(name)
    assert caught.value.code == "provider.not_found"
    assert hint in caught.value.hint


def test_an_adapter_can_be_registered_and_taken_back() -> None:
    class Mine(Claude):
        kind = "mine"

    undo = register(Mine())
    try:
        assert find_adapter("mine").kind == "mine"
        with pytest.raises(SupervisorError) as caught:
            register(Mine())
        assert caught.value.code == "config.invalid"
    finally:
        undo()
        undo()
    assert "mine" not in provider_names()
