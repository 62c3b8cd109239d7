"""How grok is started, and what its recorded output means.

The cases that begin with "plan-" are runs of the real CLI, started as the adapter plans it.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from supervisor.adapters.grok import ADAPTER, GrokDecoder
from supervisor.model.adapter import FoundFile, Surroundings, Wanted
from supervisor.model.completion import Billing, Cost, Exit, Usage
from supervisor.model.conversation import Image
from supervisor.model.errors import AuthError, RequestError
from supervisor.model.events import Started, ToolFinished, ToolStarted, TurnEnded, Unrecognized
from supervisor.model.launch import Launch, Places
from supervisor.protocol.accumulate import Accumulator, End, Verdict
from supervisor.protocol.asked import asked
from supervisor.protocol.checks import check_request
from supervisor.protocol.decode import encodable, read_objects
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.supported import check_supported
from tests.fakes import RECORDINGS, ask
from tests.test_decode import JSON
from tests.test_schema import Verdict as Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.model.events import Record

PLACES = Places(
    run_id="0123456789ab", work="/p/work", files="/p/files", state="/p/state", temporary="/p/tmp"
)
HOME = {"HOME": "/home/user"}
STATE = "/home/user/.grok"
KEY = {**HOME, "XAI_API_KEY": "made-up"}
AT = datetime(2026, 11, 1, tzinfo=UTC)
CASES = sorted(path.parent.name for path in (RECORDINGS / "grok").glob("*/expect.json"))
NOT_COMPARED = ("version", "exit_code", "signal", "schema")
SESSION = "0197c0de-0000-7000-8000-000000000001"
DONE = Exit(code=0, signal=None, ended_by_us=False)
FRAMED = "<user_message>\n{}\n</user_message>"


def around(environ: dict[str, str] | None = None, found: Iterable[FoundFile] = ()) -> Surroundings:
    return Surroundings(places=PLACES, environ=environ or HOME, found=tuple(found))


def plan(surroundings: Surroundings | None = None, **request: Any) -> Launch:
    own = ask(provider="grok", **request)
    check_request(own)
    check_supported(own, ADAPTER)
    return ADAPTER.plan(asked(own, ADAPTER.capabilities, None), surroundings or around())


def sent(launch: Launch) -> str:
    """What reaches the model, as far as it is the caller's."""
    files = "".join(file.content.decode() for file in launch.files)
    return files + "".join(launch.arguments[place] for place in launch.secrets)


# ---- planning


def test_a_plain_question() -> None:
    launch = plan(prompt="What is it?")
    assert launch.arguments == snapshot(
        (
            "--output-format",
            "streaming-json",
            "--disable-web-search",
            "--disallowed-tools",
            "run_terminal_cmd,kill_task,get_task_output,task,Agent,read_file,write,search_replace,"
            "list_dir,grep,todo_write,monitor,search_tool,use_tool,scheduler_create,"
            "scheduler_delete,scheduler_list,workflow,update_goal,enter_plan_mode,exit_plan_mode,"
            "ask_user_question,send_feedback,web_search,web_fetch,image_gen,image_edit,"
            "image_to_video,reference_to_video",
            "--session-id",
            "4e7a0bc0-48fc-5fb8-9027-469872d07547",
            "--verbatim",
            "--prompt-file",
            "/p/files/prompt.txt",
        )
    )
    assert launch.environment == snapshot(
        {
            "GROK_MAX_RETRIES": "0",
            "GROK_TURN_TRANSIENT_RETRY": "0",
            "GROK_TURN_SUMMARY": "0",
            "GROK_BACKEND_SEARCH": "0",
            "GROK_SUBAGENTS": "0",
            "GROK_WORKFLOWS": "0",
            "GROK_MEMORY": "0",
            "GROK_TELEMETRY_ENABLED": "0",
            "GROK_DISABLE_AUTOUPDATER": "1",
            "GROK_CLAUDE_AGENTS_ENABLED": "0",
            "GROK_CLAUDE_RULES_ENABLED": "0",
            "GROK_CLAUDE_SKILLS_ENABLED": "0",
            "GROK_CLAUDE_MCPS_ENABLED": "0",
            "GROK_CLAUDE_HOOKS_ENABLED": "0",
            "GROK_CURSOR_AGENTS_ENABLED": "0",
            "GROK_CURSOR_RULES_ENABLED": "0",
            "GROK_CURSOR_SKILLS_ENABLED": "0",
            "GROK_CURSOR_MCPS_ENABLED": "0",
            "GROK_CURSOR_HOOKS_ENABLED": "0",
            "GROK_HOME": "/p/state",
            "HOME": "/p/state",
            "GROK_AUTH_PATH": "/home/user/.grok/auth.json",
            "GROK_DISABLE_API_KEY_AUTH": "1",
        }
    )
    assert [(file.name, file.content) for file in launch.files] == [("prompt.txt", b"What is it?")]
    assert launch.stdin == b""
    assert launch.secrets == ()
    assert launch.logins == ()
    assert launch.loaded == ()
    assert launch.discard == ()
    assert not launch.optional_as_null
    assert launch.tidy == (
        "/tmp/sessions",
        "/tmp/sessions/4e7a0bc0-48fc-5fb8-9027-469872d07547",
    )


def test_everything_that_a_request_can_ask() -> None:
    launch = plan(model="grok-4.5", effort="xhigh", max_turns=3, system="-Be brief.", schema=Answer)
    text = " ".join(launch.arguments)
    assert "--max-turns 3 --model grok-4.5 --reasoning-effort xhigh --json-schema {" in text
    schema = json.loads(launch.arguments[launch.arguments.index("--json-schema") + 1])
    assert schema["required"] == ["answer", "confidence"]
    assert launch.optional_as_null
    assert launch.arguments[-1] == "--system-prompt-override=-Be brief."
    assert launch.secrets == (len(launch.arguments) - 1,)
    assert (launch.model, launch.effort, launch.effort_source) == ("grok-4.5", "xhigh", "request")


@pytest.mark.parametrize("prompt", ["-x", "--help", "resume", "a\r\nb", "\ufeffx", "x@/etc/hosts"])
def test_a_prompt_goes_by_a_file_as_it_is(prompt: str) -> None:
    launch = plan(prompt=prompt)
    assert launch.files[0].content == prompt.encode()
    assert prompt not in launch.arguments


@pytest.mark.parametrize(
    "prompt", ["/help me", "  /compact", "\n\t/context", "\ufeff/compact", " a ", "a\n", "\u00a0x"]
)
def test_a_command_and_blanks_at_the_ends_stand_between_lines_of_ours(prompt: str) -> None:
    assert plan(prompt=prompt).files[0].content == FRAMED.format(prompt).encode()


# Each was seen to attach the file with the real CLI, or may.
NAMING = [
    *("@/etc/hosts", "see @/etc/hosts", "see (@/etc/hosts", "a,@/etc/hosts b", "`@/etc/hosts` b"),
    *("@ /etc/hosts", "a @\n\n/etc/hosts b", "@@/etc/hosts", "@x@/etc/hosts", "é@/etc/hosts"),
    *("@../../etc/hosts", "@./a", "@a/../b", "\x01@/etc/hosts", "@\u3000/etc/hosts", "me@ /etc/x"),
    *("@/etc/hosts:1-9", "/compact @/etc/hosts", "@a\x1cb/../../x", "https://@/etc/hosts"),
]


@pytest.mark.parametrize("prompt", NAMING)
def test_a_prompt_that_names_a_file_goes_by_the_instructions(prompt: str) -> None:
    launch = plan(prompt=prompt)
    assert launch.arguments[-1] == f"--rules={FRAMED.format(prompt)}"
    assert launch.secrets == (len(launch.arguments) - 1,)
    assert b"@" not in launch.files[0].content
    launch = plan(prompt=prompt, system="Be brief.")
    told = f"--system-prompt-override=Be brief.\n\n{FRAMED.format(prompt)}"
    assert launch.arguments[-1] == told  # the CLI drops --rules beside it
    assert b"@" not in launch.files[0].content


@pytest.mark.parametrize(
    "prompt",
    ["@dataclass\nclass A: pass", "ask @alice", "me@example.com/x", "a @ b", "@", "@ b c/d", "a/b"],
)
def test_a_name_without_a_path_is_left_where_it_is(prompt: str) -> None:
    assert prompt in plan(prompt=prompt).files[0].content.decode()


def test_a_prompt_of_at_signs_is_looked_through_in_no_time() -> None:
    plan(prompt="@" * 4_000_000)
    plan(prompt="x " + "@a" * 2_000_000)
    plan(prompt="x " + "@ " * 2_000_000 + "x")


@given(st.text(st.sampled_from("@/. a\n\x1c\u00a0é-"), min_size=1).filter(str.strip))
def test_a_prompt_is_never_broken(prompt: str) -> None:
    launch = plan(prompt=prompt)
    assert prompt in sent(launch)
    for file in launch.files:
        text = file.content.decode()
        assert not re.search(r"(?<![0-9A-Za-z_])@[^\S\x1c-\x1f]*[^\s@]*/", text.replace("</", "<"))


IMAGE = Image(data=b"\x89PNG\r\n\x1a\nmade-up", media_type="image/png")


def test_images_go_beside_the_prompt() -> None:
    launch = plan(prompt="/compact", images=(IMAGE,))
    blocks = json.loads(launch.arguments[-1].removeprefix("--prompt-json="))
    assert blocks == [
        {"type": "text", "text": FRAMED.format("/compact")},
        {"type": "image", "data": "iVBORw0KGgptYWRlLXVw", "mimeType": "image/png"},
    ]
    assert "--prompt-file" not in launch.arguments
    assert launch.files == ()
    launch = plan(prompt="@/etc/hosts", images=(IMAGE,))
    assert len(launch.secrets) == 2
    assert "/etc/hosts" not in launch.arguments[-1]


LONG = "x" * 131_072


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"schema": {"type": "object", "title": LONG}}, "request.unsupported"),
        ({"schema": {"type": "string"}}, "request.unsupported"),
        (
            {"schema": {"type": "object", "properties": {"a": {"enum": [LONG]}}}},
            "request.too_large",
        ),
        ({"system": LONG}, "request.too_large"),
        ({"prompt": f"@/a {LONG}"}, "request.unsupported"),
        ({"prompt": "@/a", "system": LONG[:131_040]}, "request.unsupported"),
        ({"prompt": "@/a", "keep_session": True}, "request.unsupported"),
        ({"prompt": "@/a", "resume": SESSION}, "request.unsupported"),
        (
            {"images": (Image(data=IMAGE.data * 9_000, media_type="image/png"),)},
            "request.too_large",
        ),
        ({"prompt": LONG, "images": (IMAGE,)}, "request.too_large"),
        ({"resume": "a title"}, "request.invalid"),
        ({"resume": f"../{SESSION}"}, "request.invalid"),
        ({"access": "read", "workspace": "/w"}, "request.unsupported"),
        ({"effort": "max"}, "request.unsupported"),
        ({"mcp_config": {"a": {}}}, "request.unsupported"),
        ({"service_tier": "flex"}, "request.unsupported"),
        ({"hermetic": "strict", "keep_session": True}, "request.unsupported"),
    ],
)
def test_what_grok_cannot_honour_is_refused_before_the_start(
    given_: dict[str, Any], code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        plan(**given_)
    assert caught.value.code == code


def test_a_prompt_of_any_size_goes_by_a_file() -> None:
    assert len(plan(prompt="é" * 4_000_000).files[0].content) == 8_000_000


def test_the_session_of_a_run_is_its_own() -> None:
    def session(run: str) -> str:
        places = Places(run_id=run, work="/w", files="/f", state="/s", temporary="/t")
        request = asked(ask(provider="grok"), ADAPTER.capabilities, None)
        launch = ADAPTER.plan(request, Surroundings(places=places, environ=HOME))
        return launch.arguments[launch.arguments.index("--session-id") + 1]

    assert session("a") == session("a") != session("b")
    assert str(UUID(session("a"))) == session("a")


@pytest.mark.parametrize("given_", [{"keep_session": True}, {"resume": SESSION}])
def test_a_session_that_lasts_lies_in_the_users_own_folder(given_: dict[str, Any]) -> None:
    files = (f"{STATE}/auth.json", f"{STATE}/config.toml", f"{STATE}/AGENTS.md")
    launch = plan(around(found=[FoundFile(path=path) for path in files]), **given_)
    assert launch.environment["GROK_HOME"] == STATE
    assert launch.environment["GROK_AUTH_PATH"] == f"{STATE}/auth.json"
    assert "HOME" not in launch.environment
    assert launch.loaded[0] == f"{STATE}/AGENTS.md"
    assert {"hooks", "MCP servers"} < set(launch.loaded)
    assert ("--resume" in launch.arguments) == ("resume" in given_)
    assert ("--session-id" in launch.arguments) == ("resume" not in given_)


def test_where_the_users_files_lie() -> None:
    login = Wanted(folder=STATE, name="auth.json", deep=False)
    assert ADAPTER.looks_for(ask(), HOME) == (login,)
    lasting = ADAPTER.looks_for(ask(keep_session=True), HOME)
    assert lasting[1] == Wanted(folder=STATE, name="config.toml", read=True, deep=False)
    assert ADAPTER.login_files(HOME) == (f"{STATE}/auth.json",)
    moved = {**HOME, "GROK_HOME": "/g"}
    assert ADAPTER.login_files(moved) == ("/g/auth.json",)
    assert plan(around(moved)).environment["GROK_AUTH_PATH"] == "/g/auth.json"
    assert plan(around(moved), keep_session=True).environment["GROK_HOME"] == "/g"


# ---- who pays


@pytest.mark.parametrize("key", ["XAI_API_KEY", "GROK_CODE_XAI_API_KEY", "GROK_DEPLOYMENT_KEY"])
def test_a_key_that_might_pay_is_refused_before_the_start(key: str) -> None:
    with pytest.raises(AuthError) as caught:
        plan(around({**HOME, key: "made-up"}))
    assert caught.value.code == "auth.api_key_in_use"
    plan(around({**HOME, key: ""}))
    plan(around({**HOME, key: "made-up"}), billing="any")


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (b'[model.mine]\napi_key = "made-up"\n', True),
        (b'[model.mine]\nenv_key = "MINE"\n', True),
        (b'[model.mine]\nenv_key = "NOT_SET"\n', False),
        (b'[models]\ndefault = "grok-4.5"\n', False),
        (b"model = 7\n", False),
        (b"no TOML", False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_a_key_in_the_users_settings_is_refused(settings: bytes | None, refused: bool) -> None:
    found = [FoundFile(path=f"{STATE}/config.toml", content=settings)]
    surroundings = around({**HOME, "MINE": "made-up"}, found)
    plan(surroundings)  # these settings are out of reach then
    plan(surroundings, keep_session=True, billing="any")
    if refused:
        with pytest.raises(AuthError) as caught:
            plan(surroundings, keep_session=True)
        assert caught.value.code == "auth.api_key_in_use"
    else:
        plan(surroundings, keep_session=True)


def test_a_key_that_is_asked_for_pays_alone() -> None:
    for given_ in ({}, {"keep_session": True}):
        launch = plan(around(KEY), billing="api_key", **given_)
        assert launch.environment["GROK_AUTH_PATH"] == "/p/state/auth.json"  # there is none
        assert "GROK_DISABLE_API_KEY_AUTH" not in launch.environment
    with pytest.raises(AuthError) as caught:
        plan(billing="api_key")
    assert caught.value.code == "auth.required"


@pytest.mark.parametrize(
    ("billing", "environ", "login", "payer"),
    [
        ("subscription", HOME, True, "subscription"),
        ("api_key", KEY, True, "api_key"),
        ("any", HOME, True, "unknown"),
        ("any", KEY, True, "unknown"),
        ("any", KEY, False, "api_key"),
    ],
)
def test_who_pays(billing: Any, environ: dict[str, str], login: bool, payer: str) -> None:
    found = [FoundFile(path=f"{STATE}/auth.json")] if login else []
    decoder = ADAPTER.decoder(ask(billing=billing), around(environ, found))
    assert decoder.billing().payer == payer
    assert "made-up" not in decoder.billing().evidence


def test_the_native_binary_behind_the_launcher() -> None:
    package = "/n/node_modules/@xai-official/grok/bin"
    assert ADAPTER.natives(f"{package}/grok-bootstrap.js", "x86_64") == (f"{package}/grok-native",)
    assert ADAPTER.natives("/usr/bin/grok", "x86_64") == ()


# ---- reading


@dataclass(kw_only=True)
class Reading:
    """A stream read to its end."""

    accumulator: Accumulator
    decoder: GrokDecoder
    records: list[Record] = field(default_factory=list)


def read(stdout: bytes, **given_: Any) -> Reading:
    request = ask(provider="grok", billing="any", **given_)
    decoder = ADAPTER.decoder(request, around())
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


def settled(reading: Reading, ended: Exit = DONE, stderr: str = "") -> Verdict:
    diagnosis = ADAPTER.diagnose(ended, stderr)
    return reading.accumulator.settle(End(exit=ended, diagnosis=diagnosis))


def stream(*values: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def parts(case: str) -> tuple[bytes, str]:
    stdout, stderr = RECORDINGS / "grok" / case / "stdout", RECORDINGS / "grok" / case / "stderr"
    return (
        stdout.read_bytes() if stdout.exists() else b"",
        stderr.read_text() if stderr.exists() else "",
    )


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_run_means_what_it_meant(case: str) -> None:
    expected = json.loads((RECORDINGS / "grok" / case / "expect.json").read_text())
    stdout, stderr = parts(case)
    reading = read(stdout, schema={"type": "object"} if expected["schema"] else None)
    kept = reading.accumulator
    used = kept.violation
    kept.violation = None  # recordings of agent runs use tools, and still have an outcome
    name = expected["signal"]
    number = None if name is None else int(getattr(signal, name))
    ended = Exit(code=expected["exit_code"], signal=number, ended_by_us=False)
    verdict = settled(reading, ended, stderr)
    fact, usage, text = verdict.failure, kept.usage, verdict.text
    assert {
        "outcome": "ok" if fact is None else fact.code,
        "tool_used": used is not None and used.code == "policy.tool_used",
        "status": None if fact is None else fact.status,
        "resets_at": fact.resets_at.isoformat() if fact and fact.resets_at else None,
        "text": text if len(text) < 200 else f"{len(text)} characters",
        "model": kept.model,
        "payer": reading.decoder.billing().payer,
        "usage": usage
        and [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning],
        "unrecognized": sum(record.kind == "unrecognized" for record in reading.records),
    } == {key: expected[key] for key in expected if key not in NOT_COMPARED}


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        (
            "plan-ok-text",
            snapshot(
                [
                    "started",
                    "reasoning",
                    "text_delta",
                    "text_delta",
                    "text_delta",
                    "text_delta",
                    "text",
                    "usage",
                    "turn_ended",
                ]
            ),
        ),
        (
            "plan-tool-absent",
            snapshot(
                [
                    "started",
                    "tool_started",
                    "tool_finished",
                    "text_delta",
                    "text_delta",
                    "text_delta",
                    "text_delta",
                    "text",
                    "usage",
                    "turn_ended",
                ]
            ),
        ),
        (
            "plan-cut-mid-stream",
            snapshot(
                ["started", "text_delta", "text_delta", "text_delta", "text_delta", "turn_ended"]
            ),
        ),
        (
            "o2-permission-none-dangerous",
            snapshot(["started", "tool_started", "tool_finished", "usage", "turn_ended"]),
        ),
        ("m2-no-auth-stream", snapshot(["turn_ended"])),
    ],
)
def test_the_order_of_events(case: str, kinds: list[str]) -> None:
    assert [record.kind for record in read(parts(case)[0]).records] == kinds


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("plan-")])
def test_a_planned_run_offers_no_tool(case: str) -> None:
    for record in read(parts(case)[0]).records:
        if isinstance(record, Started):
            assert record.tools == ()
            assert record.session_id is not None


COMMANDS = {"type": "available_commands", "tools": [], "commands": ["compact"]}
SPENT = {
    "input_tokens": 10,
    "cache_read_input_tokens": 3,
    "output_tokens": 5,
    "reasoning_tokens": 2,
}


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "data": text} for text in texts]


def end(reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {"type": "end", "stopReason": reason, "sessionId": SESSION, "usage": SPENT, **more}


def error(message: str) -> bytes:
    return stream(COMMANDS, {"type": "error", "message": message})


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", None),
        ("max_tokens", "answer.max_tokens"),
        ("max_turn_requests", "answer.max_turns"),
        ("refusal", "model.refused"),
        ("cancelled", "protocol.truncated"),
        ("of_the_future", "protocol.truncated"),
        (None, "protocol.truncated"),
    ],
)
def test_only_a_known_stop_reason_is_a_good_end(reason: Any, code: str | None) -> None:
    fact = settled(read(stream(COMMANDS, *said("Hi"), end(reason)))).failure
    assert (fact and fact.code) == code


def test_the_text_is_that_of_the_last_response() -> None:
    usage = {"type": "usage", "usage": SPENT}
    spoken = stream(COMMANDS, *said("Let me", " see."), usage, *said("The ", "end."), usage, end())
    assert settled(read(spoken)).text == "The end."
    assert settled(read(stream(*said("Hi"), end()))).text == "Hi"


def test_an_end_without_a_model_is_no_answer() -> None:
    bare = {"type": "end", "stopReason": "end_turn", "sessionId": SESSION}
    fact = settled(read(stream(COMMANDS, *said("**Session ID:** x"), bare))).failure
    assert fact is not None
    assert fact.code == "protocol.empty"


def test_tokens_and_cost() -> None:
    models = {"grok-4.6": {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 3}}
    reading = read(stream(*said("x"), end(modelUsage=models, total_cost_usd=0.0125)))
    assert reading.accumulator.usage == Usage(
        input=10,
        cache_read=3,
        output=3,
        reasoning=2,
        by_model={"grok-4.6": Usage(input=10, cache_read=3, output=5)},
    )
    assert reading.accumulator.cost == Cost(reported_usd=0.0125)
    assert reading.accumulator.model == "grok-4.6"


def test_a_structured_answer_is_never_read_from_the_text() -> None:
    asked_ = {"schema": {"type": "object"}}
    glued = stream(*said('{"a":', '{"a":1}'), end(structuredOutput={"a": 1}))
    assert settled(read(glued, **asked_)).data == {"a": 1}
    for message, code in (
        ("model output was not valid JSON: x", "answer.not_json"),
        ("output does not match the required schema: x", "answer.schema"),
        ("invalid output schema: x", "request.unsupported"),
        ("something new", "answer.not_json"),
    ):
        missed = end(structuredOutput=None, structuredOutputError=message)
        fact = settled(read(stream(*said('{"a":1}'), missed), **asked_)).failure
        assert fact is not None
        assert fact.code == code


@pytest.mark.parametrize(
    ("message", "code", "status"),
    [
        ('Internal error: "something new"', "provider.error", None),
        ("Internal error: {", "provider.error", None),
        ("Internal error: []", "provider.error", None),
        ("", "provider.error", None),
        ('Internal error: {"message": "x", "http_status": 418}', "model.error", 418),
        ('Internal error: {"message": "x", "http_status": 503}', "provider.error", 503),
        # What a server says of its own field is not the CLI's word on the answer's end.
        (
            'Internal error: {"message": "max_tokens is wrong", "http_status": 400}',
            "model.error",
            400,
        ),
        ("subscription:weekly-limit: You hit your weekly limit.", "limit.usage", None),
        ("Some resource has been exhausted: Too many requests", "limit.rate", None),
        ("Couldn't create session: No space left on device", "disk.full", None),
    ],
)
def test_the_class_of_an_error(message: str, code: str, status: int | None) -> None:
    fact = settled(read(error(message))).failure
    assert fact is not None
    assert (fact.code, fact.status) == (code, status)


def test_a_limit_tells_when_it_ends() -> None:
    fact = settled(read(error("x: You hit your weekly limit. Resets in 2h"))).failure
    assert fact is not None
    assert fact.resets_at == datetime(2026, 11, 1, 2, tzinfo=UTC)
    fact = ADAPTER.diagnose(DONE, "Error: x: You hit your weekly limit. Resets in 2h\n")
    assert fact is not None
    assert (fact.code, fact.resets_at) == ("limit.usage", None)  # from when on is not known


def test_words_of_the_model_are_never_taken_for_an_error() -> None:
    words = "Not signed in. Unauthorized (401) API error (status 429): rate limit"
    assert settled(read(stream(COMMANDS, *said(words), end()))).failure is None


def test_what_a_tool_did() -> None:
    records = read(parts("c1-streaming-json")[0]).records
    calls = [record for record in records if isinstance(record, ToolStarted)]
    ends = [record for record in records if isinstance(record, ToolFinished)]
    assert [call.name for call in calls] == [
        "run_terminal_command",
        "write",
        "todo_write",
        "no_such_tool",
    ]
    assert [call.id for call in calls] == [each.id for each in ends]
    assert [each.ok for each in ends] == [False, True, True, False]  # exit code 3 at first
    assert ends[0].output == "out\nerr\n"


def test_a_shortened_conversation_is_told() -> None:
    records = read(stream(COMMANDS, {"type": "auto_compact_started"}, {"type": "of_the_future"}))
    assert [record.kind for record in records.records] == ["started", "notice", "unrecognized"]


@pytest.mark.parametrize("case", CASES)
def test_no_error_carries_what_the_cli_said(case: str) -> None:
    stdout, stderr = parts(case)
    facts = [ADAPTER.diagnose(DONE, stderr)]
    facts += [r.failure for r in read(stdout).records if isinstance(r, TurnEnded)]
    for fact in facts:
        sentence = f"{fact.message} {fact.hint}" if fact else ""
        for foreign in ("http:", "xa***", "grok-4", "boom", "http_status", "SuperGrok", "0197c0de"):
            assert foreign not in sentence


VALUES = st.sampled_from(
    [
        *("available_commands", "text", "thought", "usage", "tool_call", "tool_call_update", "end"),
        *("error", "plan", "max_turns_reached", "end_turn", "cancelled", "failed", "completed"),
        *('Internal error: {"message": 7}', "Internal error: " + "[" * 5000, "Error: x"),
    ]
)
KEYS = st.sampled_from(
    [
        *("type", "data", "tools", "usage", "stopReason", "structuredOutput", "modelUsage"),
        *("structuredOutputError", "message", "toolCallId", "toolName", "rawInput", "rawOutput"),
        *("content", "status", "exit_code", "num_turns", "total_cost_usd", "input_tokens"),
        *("output_tokens", "reasoning_tokens", "text"),
    ]
)
INNER = st.dictionaries(KEYS, st.dictionaries(KEYS, JSON | VALUES, max_size=4) | VALUES | JSON)
EVENTS = st.tuples(VALUES | JSON, INNER).map(lambda drawn: {**drawn[1], "type": drawn[0]})


@given(st.lists(EVENTS, max_size=4))
def test_no_object_makes_the_decoder_raise(values: list[Any]) -> None:
    billing = Billing(payer="unknown", evidence="none")
    decoder = GrokDecoder(session=SESSION, billing=billing)
    for value in values:
        for record in decoder.record(encodable(value), 10, AT):
            assert record.kind
    assert decoder.billing() is billing


@given(st.text())
def test_no_error_output_makes_the_diagnosis_raise(stderr: str) -> None:
    for text in (
        stderr,
        f"Error: {stderr}",
        f"error: {stderr}",
        f"Error: Internal error: {stderr}",
    ):
        ADAPTER.diagnose(Exit(code=2, signal=None, ended_by_us=False), text)
