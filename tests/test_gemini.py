"""How gemini is started, and what its recorded output means."""

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

from supervisor.adapters.gemini import ADAPTER, GeminiDecoder
from supervisor.model.adapter import Surroundings
from supervisor.model.completion import Exit
from supervisor.model.conversation import Image
from supervisor.model.errors import AuthError, RequestError
from supervisor.model.events import Unrecognized
from supervisor.model.launch import Launch, Places
from supervisor.model.request import Request
from supervisor.protocol.accumulate import Accumulator, End
from supervisor.protocol.asked import asked
from supervisor.protocol.decode import encodable, read_objects
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.supported import check_supported
from tests.fakes import RECORDINGS
from tests.test_decode import JSON
from tests.test_schema import Verdict

if TYPE_CHECKING:
    from supervisor.model.events import Record

PLACES = Places(
    run_id="0123456789ab",
    work="/p/work",
    files="/p/files",
    state="/p/state",
    temporary="/p/tmp",
)
KEY = {"HOME": "/home/user", "GEMINI_API_KEY": "made-up"}
PNG = Image(data=b"\x89PNG\r\n\x1a\n...", media_type="image/png")
SERVER = {"command": "server", "args": ["--quiet"]}
NOT_COMPARED = ("version", "exit_code", "signal", "schema", "tool_used")
CASES = sorted(path.parent.name for path in RECORDINGS.glob("gemini/*/expect.json"))


def question(prompt: str = "What is it?", **given: Any) -> Request[Any]:
    request = Request(provider="gemini", prompt=prompt, **given)
    check_supported(request, ADAPTER)
    return asked(request, ADAPTER.capabilities, None)


def plan(
    prompt: str = "What is it?", environ: dict[str, str] | None = None, **given: Any
) -> Launch:
    around = Surroundings(places=PLACES, environ=KEY if environ is None else environ)
    return ADAPTER.plan(question(prompt, **given), around)


def written(launch: Launch) -> dict[str, bytes]:
    return {f"{file.place}/{file.name}": file.content for file in launch.files}


def settings(launch: Launch) -> dict[str, Any]:
    return json.loads(written(launch)["state/.gemini/settings.json"])


# ---- planning


def test_a_plain_question() -> None:
    launch = plan()
    assert launch.arguments == snapshot(
        (
            "-o",
            "stream-json",
            "--approval-mode",
            "plan",
            "-e",
            "none",
            "--allowed-mcp-server-names",
            "none",
            "-m",
            "pro",
        )
    )
    assert launch.environment == snapshot(
        {
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "NO_BROWSER": "true",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "GEMINI_API_KEY": "made-up",
            "GOOGLE_API_KEY": "",
            "GEMINI_CLI_HOME": "/p/state",
        }
    )
    assert launch.stdin == b"What is it?"
    assert launch.polite == "TERM"
    assert launch.loaded == ()
    assert set(written(launch)) == snapshot(
        {"state/.gemini/settings.json", "work/.gemini/.env", "work/.geminiignore"}
    )
    assert written(launch)["work/.geminiignore"] == b"*\n"
    assert settings(launch) == snapshot(
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "maxAttempts": 1},
            "advanced": {"ignoreLocalEnv": True},
            "tools": {"core": [], "useRipgrep": False},
            "skills": {"enabled": False},
            "hooksConfig": {"enabled": False},
            "experimental": {"enableAgents": False},
            "context": {"includeDirectoryTree": False, "memoryBoundaryMarkers": []},
            "model": {"disableLoopDetection": True},
        }
    )


def test_everything_that_a_request_can_ask() -> None:
    launch = plan(system="Be brief.\n", model="gemini-3", max_turns=2, mcp_config={"srv_1": SERVER})
    assert launch.arguments[6:] == ("-m", "gemini-3")
    assert launch.model == "gemini-3"
    files = written(launch)
    assert files["files/system.md"] == b"Be brief.\n"
    assert launch.environment["GEMINI_SYSTEM_MD"] == "/p/files/system.md"
    assert settings(launch)["model"] == {"disableLoopDetection": True, "maxSessionTurns": 2}
    assert settings(launch)["mcpServers"] == {"srv_1": SERVER}
    rules = tomllib.loads(files["state/.gemini/policies/servers.toml"].decode())
    assert rules["rule"] == [
        {"toolName": "*", "mcpName": "srv_1", "decision": "allow", "priority": 500}
    ]


def test_a_workspace_is_read_by_four_tools_and_is_not_the_working_directory() -> None:
    launch = plan(access="read", workspace="/home/user/a b")
    assert launch.arguments[-2:] == ("--include-directories", "/home/user/a b")
    assert settings(launch)["tools"]["core"] == [
        *("read_file", "list_directory", "glob", "grep_search")
    ]
    assert settings(launch)["context"]["includeDirectoryTree"] is True
    assert settings(launch)["model"] == {"disableLoopDetection": False}
    assert launch.loaded == ("GEMINI.md of the workspace",)


def test_pictures_lie_in_the_working_directory_and_are_named_first() -> None:
    other = Image(data=b"\xff\xd8\xff...", media_type="image/jpeg")
    launch = plan("/What is it?", images=(PNG, other))
    files = written(launch)
    assert files["work/image-1.png"] == PNG.data
    assert files["work/image-2.jpg"] == other.data
    assert files["work/.geminiignore"] == b"*\n!/image-1.png\n!/image-2.jpg\n"
    head, _, prompt = launch.stdin.decode().partition("\n\n")
    assert head.endswith(": @image-1.png @image-2.jpg")
    assert prompt == "/What is it?"


def test_a_schema_stands_behind_the_prompt() -> None:
    launch = plan(schema=Verdict)
    prompt, _, rest = launch.stdin.decode().partition("\n\n")
    assert prompt == "What is it?"
    words, _, schema = rest.partition("\n")
    assert "one JSON value and nothing else" in words
    assert json.loads(schema) == Verdict.model_json_schema()


def test_no_word_of_a_schema_is_taken_for_a_file() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "pattern": "^.+@/etc"}}}
    said = plan(schema=schema).stdin.decode()
    assert "@" not in said
    assert json.loads(said.rpartition("\n")[2]) == schema


@pytest.mark.parametrize(
    "prompt",
    [
        *("-x", "--help", "/help me", "@/etc/hostname", "a\r\n b ", "\ufeffx", "!ls", "say @ x"),
        *("ask @codebase_investigator", "a@b.c", "//x", "@../../etc/passwd", "@src/main.py"),
    ],
)
@pytest.mark.parametrize("schema", [None, Verdict])
def test_the_prompt_is_data(prompt: str, schema: Any) -> None:
    launch = plan(prompt, schema=schema)
    assert prompt not in launch.arguments
    assert prompt.encode() in launch.stdin
    assert not launch.stdin.startswith(b"/")
    if schema is None:
        assert launch.stdin.strip() == prompt.encode().strip()


TREE = {"access": "read", "workspace": "/home/user/tree"}


@pytest.mark.parametrize(
    ("prompt", "given"),
    [
        ("list @./ please", {}),
        ("list @/p/work please", {}),
        ("list @//p/work/ please", {}),
        ("list @x/../ please", {}),
        (r"list @x/.\./ please", {}),
        ("@/home/user/tree/main.py", TREE),
        ("@/elsewhere/link", TREE),
        ("@../tree/main.py", TREE),
        ("see @srv:mem://x", {"mcp_config": {"srv": SERVER}}),
        ("mail a@b.c", {"images": (PNG,)}),
        ("@first", {"images": (PNG,)}),
        ("see @a\n@b", {"images": (PNG,)}),
        (r"see @a\ b", {"images": (PNG,)}),
    ],
)
def test_a_word_that_would_be_expanded_is_refused(prompt: str, given: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        plan(prompt, **given)
    assert caught.value.code == "request.unsupported"


@pytest.mark.parametrize(
    ("prompt", "given"),
    [
        ("explain @main.py and @./main.py and @app.route", TREE),
        ("see @other:mem://x", {"mcp_config": {"srv": SERVER}}),
        ("see the @media rule and @a @b", {"images": (PNG,)}),
        ("say a \\@x", {"images": (PNG,)}),
    ],
)
def test_other_words_with_at_are_text(prompt: str, given: dict[str, Any]) -> None:
    assert prompt.encode() in plan(prompt, **given).stdin


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"access": "write", "workspace": "/w"}, "request.unsupported"),
        ({"billing": "subscription"}, "request.unsupported"),
        ({"effort": "low"}, "request.unsupported"),
        ({"keep_session": True}, "request.unsupported"),
        ({"login": "work"}, "request.unsupported"),
        ({"system": "Use ${AvailableTools}."}, "request.unsupported"),
        ({"system": "Use ${read_file_ToolName}."}, "request.unsupported"),
        ({"access": "read", "workspace": "/home/a,b"}, "request.unsupported"),
        ({"access": "read", "workspace": "/home/a "}, "request.unsupported"),
        ({"schema": {"type": "string"}}, "request.unsupported"),
        ({"prompt": "é" * 4_194_305}, "request.too_large"),
        ({"prompt": "x" * 8_388_600, "schema": {"type": "object"}}, "request.too_large"),
        (
            {"images": (Image(data=PNG.data + bytes(20 * 1024 * 1024), media_type="image/png"),)},
            "request.too_large",
        ),
    ],
)
def test_what_the_cli_cannot_honour_is_refused_before_the_start(
    given: dict[str, Any], code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        plan(**given)
    assert caught.value.code == code


def test_the_largest_prompt_passes() -> None:
    assert len(plan("é" * 4_194_304).stdin) == 8 * 1024 * 1024


@pytest.mark.parametrize("environ", [{"HOME": "/h"}, {"GEMINI_API_KEY": "", "GOOGLE_API_KEY": ""}])
def test_without_a_key_nothing_is_started(environ: dict[str, str]) -> None:
    with pytest.raises(AuthError) as caught:
        plan(environ=environ)
    assert caught.value.code == "auth.required"
    assert 'Supervisor(keep={"gemini": ["GEMINI_API_KEY"]})' in caught.value.hint


def test_another_name_of_the_key_does_too() -> None:
    launch = plan(environ={"GOOGLE_API_KEY": "made-up"})
    assert launch.environment["GEMINI_API_KEY"] == "made-up"
    both = plan(environ={"GOOGLE_API_KEY": "other", "GEMINI_API_KEY": "made-up"})
    assert both.environment["GEMINI_API_KEY"] == "made-up"
    assert both.environment["GOOGLE_API_KEY"] == ""


@pytest.mark.parametrize(
    ("code", "stderr", "outcome"),
    [
        (0, "Warning: stdin input truncated to 8388608 bytes.", "request.too_large"),
        (0, "Ripgrep is not available. Falling back to GrepTool.", None),
        (1, "an error that nobody has seen", None),
        (130, "", "protocol.truncated"),
        (17, "  status: 529\n", "provider.overloaded"),
        (173, "RetryableQuotaError: x\n  retryDelayMs: 7500,\n  status: 429", "limit.rate"),
        (173, "TerminalQuotaError: x", "limit.usage"),
        (248, "", "provider.error"),
    ],
)
def test_the_cause_of_an_end_without_a_result(code: int, stderr: str, outcome: str | None) -> None:
    fact = ADAPTER.diagnose(Exit(code=code, signal=None, ended_by_us=False), stderr)
    assert (fact and fact.code) == outcome
    if fact is not None and fact.code == "limit.rate":
        assert fact.retry_after == 7.5


# ---- reading


@dataclass(kw_only=True)
class Reading:
    """A stream read to its end."""

    accumulator: Accumulator
    decoder: GeminiDecoder
    records: list[Record] = field(default_factory=list)


def read(stdout: bytes, **given: Any) -> Reading:
    request = question(billing="any", **given)
    decoder = ADAPTER.decoder(request, Surroundings(places=PLACES, environ=KEY))
    reading = Reading(accumulator=Accumulator(request, optional_as_null=False), decoder=decoder)
    framer = Framer(request.limits.line_bytes)
    for line in [*framer.feed(stdout), *framer.finish()]:
        assert not isinstance(line, Dropped)
        for value in read_objects(line):
            if isinstance(value, Unrecognized):
                reading.records.append(value)
            else:
                reading.records += decoder.record(value, len(line), datetime.now(UTC))
    for record in reading.records:
        reading.accumulator.take(record)
    return reading


def recorded(case: str, name: str) -> bytes:
    path = RECORDINGS / "gemini" / case / name
    return path.read_bytes() if path.exists() else b""


def said(event: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**event, **more}).encode() + b"\n"


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_run_means_what_it_meant(case: str) -> None:
    expected = json.loads(recorded(case, "expect.json"))
    reading = read(
        recorded(case, "stdout"), schema={"type": "object"} if expected["schema"] else None
    )
    kept = reading.accumulator
    used = any(record.kind == "tool_started" for record in reading.records)
    assert used == expected["tool_used"]
    kept.violation = None  # recordings of agent runs use tools, and still have an outcome
    name = expected["signal"]
    number = None if name is None else int(getattr(signal, name))
    exit_ = Exit(code=expected["exit_code"], signal=number, ended_by_us=False)
    diagnosis = ADAPTER.diagnose(exit_, recorded(case, "stderr").decode("utf-8", "replace"))
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


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("c-stream", "started text_delta*3 text usage turn_ended"),
        (
            "d-agent-two-tools",
            "started tool_started*2 tool_finished*2 text_delta*3 text usage turn_ended",
        ),
        ("e-401", "started turn_ended"),
        ("e-503-att2", "started notice"),
        ("c-loop-detected", "started notice turn_ended"),
        ("e-cut-end-att1", "started text_delta notice usage turn_ended"),
        (
            "d-agent-max-turns",
            "started text_delta*3 text tool_started tool_finished"
            " tool_started tool_finished usage turn_ended",
        ),
    ],
)
def test_the_order_of_events(case: str, kinds: str) -> None:
    expected: list[str] = []
    for word in kinds.split():
        kind, _, times = word.partition("*")
        expected += [kind] * int(times or 1)
    assert [record.kind for record in read(recorded(case, "stdout")).records] == expected


@pytest.mark.parametrize("case", [c for c in CASES if recorded(c, "stdout")])
def test_no_error_carries_what_the_server_said(case: str) -> None:
    """A gateway's page may hold anything, and a server's sentence a part of the key."""
    foreign = (
        "API Error",
        "fake",
        "http",
        "<html",
        "credential",
        "permission",
        "exhausted",
        "/run",
    )
    for record in read(recorded(case, "stdout")).records:
        if record.kind in ("notice", "turn_ended"):
            fact = getattr(record, "failure", None)
            words = f"{fact.message} {fact.hint}" if fact else getattr(record, "message", "")
            words = words.replace("The server refused the CLI's credentials.", "")
            assert not [each for each in foreign if each in words]


def test_the_time_to_wait_is_read_from_the_error() -> None:
    turn = read(recorded("e-429-perminute-full", "stdout")).accumulator.turn
    assert turn is not None
    assert turn.failure is not None
    assert turn.failure.retry_after == 3.0


INIT = {"type": "init", "session_id": "s", "model": "auto"}
ANSWER = {"type": "message", "role": "assistant", "content": "Yes.", "delta": True}
PART = {"total_tokens": 134, "input_tokens": 120, "output_tokens": 9, "cached": 50, "input": 70}
SMALL = {"total_tokens": 20, "input_tokens": 19, "output_tokens": 1, "cached": 0, "input": 19}
WHOLE = {"total_tokens": 154, "input_tokens": 139, "output_tokens": 10, "cached": 50, "input": 89}
GOOD = {"type": "result", "status": "success", "stats": {**PART, "models": {"big": PART}}}


def outcome(stdout: bytes) -> str:
    kept = read(stdout).accumulator
    exit_ = Exit(code=0, signal=None, ended_by_us=False)
    fact = kept.settle(End(exit=exit_)).failure
    return "ok" if fact is None else fact.code


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (said(INIT) + said(ANSWER) + said(GOOD), "ok"),
        (said(INIT) + said(ANSWER), "protocol.truncated"),
        (said(INIT) + said(GOOD), "protocol.empty"),
        (said(INIT) + said(ANSWER, content=" \n") + said(GOOD), "protocol.empty"),
        (said(INIT) + said(ANSWER) + said(GOOD, stats={}), "protocol.empty"),
        (said(INIT) + said(ANSWER) + said(GOOD, stats=PART), "protocol.empty"),
        (said(INIT) + said(ANSWER) + said(GOOD, status="paused"), "protocol.truncated"),
        (said(INIT) + said(ANSWER) + said(GOOD, status=None), "protocol.truncated"),
    ],
)
def test_success_needs_a_text_a_model_and_the_word(stdout: bytes, expected: str) -> None:
    assert outcome(stdout) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"severity": "warning", "message": "never seen"}, "ok"),
        ({"severity": "error", "message": "never seen"}, "protocol.truncated"),
        ({"severity": "warning", "message": "Loop detected, stopping"}, "protocol.truncated"),
        ({"severity": "error", "message": "Maximum session turns exceeded"}, "answer.max_turns"),
    ],
)
def test_an_error_event_spoils_a_result_that_claims_success(
    error: dict[str, Any], expected: str
) -> None:
    assert outcome(said(INIT) + said(ANSWER) + said({"type": "error"}, **error) + said(GOOD)) == (
        expected
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"error": {"code": 429, "message": "slow"}}]', "limit.rate"),
        ('{"error": {"code": 400, "message": "request a quota increase"}}]', "model.error"),
        ("Quota exceeded, limit: 0, check your plan]\nrequest a quota increase", "limit.usage"),
        ("nobody knows]", "protocol.truncated"),  # here without an exit code to ask
        ("", "protocol.truncated"),
    ],
)
def test_an_error_of_the_api_is_told_by_its_status(message: str, expected: str) -> None:
    error = {"type": "unknown", "message": f"[API Error: {message}"}
    assert outcome(said(INIT) + said({**GOOD, "status": "error", "error": error})) == expected


def test_the_usage_of_several_models_is_told_apart() -> None:
    stats = {**WHOLE, "models": {"big": PART, "small": SMALL}}
    kept = read(said(INIT, model="big") + said(ANSWER) + said(GOOD, stats=stats)).accumulator
    usage = kept.usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (89, 50, 10, 5)
    assert usage.cache_write is None
    assert {name: each.input for name, each in usage.by_model.items()} == {"big": 70, "small": 19}
    assert kept.model == "big"


def test_an_alias_is_no_model() -> None:
    assert read(said(INIT)).accumulator.model is None
    assert read(said(INIT) + said(ANSWER) + said(GOOD)).accumulator.model == "big"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('\n```\r\n{"a": "```"}\n  ``` \n', '{"a": "```"}'),
        ('Here:\n```json\n{"a": 1}\n```', 'Here:\n```json\n{"a": 1}\n```'),
        ('{"a": 1}{"a": 1}', '{"a": 1}{"a": 1}'),
    ],
)
def test_only_a_fence_around_everything_is_taken_off(text: str, taken: str) -> None:
    stdout = said(INIT) + said(ANSWER, content=text) + said(GOOD)
    assert read(stdout, schema={"type": "object"}).accumulator.text == taken
    assert read(stdout).accumulator.text == text


TYPES = st.sampled_from(
    [
        *("init", "message", "tool_use", "tool_result", "error", "result", "never_seen"),
        *("user", "assistant", "success", "warning", "FatalTurnLimitedError", "unknown"),
        '[API Error: {"error": {"code": 429}}]',
        "[API Error: [[[1]]]]",
        "Loop detected",
    ]
)
KEYS = st.sampled_from(
    [
        *("type", "role", "content", "status", "stats", "models", "total_tokens", "input_tokens"),
        *("output_tokens", "cached", "input", "error", "message", "severity", "tool_id"),
        *("tool_name", "parameters", "output", "session_id", "model", "delta"),
    ]
)
INSIDE = st.recursive(JSON | TYPES, lambda deep: st.dictionaries(KEYS, deep, max_size=4))
RECORD_LIKE = st.tuples(TYPES | JSON, st.dictionaries(KEYS, INSIDE)).map(
    lambda pair: {**pair[1], "type": pair[0]}
)


@given(st.lists(RECORD_LIKE, max_size=4))
def test_no_object_makes_the_decoder_raise(values: list[dict[str, Any]]) -> None:
    around = Surroundings(places=PLACES, environ=KEY)
    decoder = ADAPTER.decoder(question(schema={"type": "object"}), around)
    for value in values:
        for record in decoder.record(encodable(value), 10, datetime.now(UTC)):
            assert record.kind
    assert decoder.billing().payer in ("api_key", "unknown")


@given(st.text(st.sampled_from("@ab \n\t/.\\\"',[:é~")).filter(str.strip))
def test_every_prompt_is_refused_or_stands_unbroken(prompt: str) -> None:
    refusals: set[str] = set()
    for more in ({}, {"images": (PNG,)}, TREE):
        try:
            launch = plan(prompt, **more)
        except RequestError as error:
            refusals.add(error.code)
        else:
            assert prompt.encode() in launch.stdin
    assert refusals <= {"request.unsupported"}
