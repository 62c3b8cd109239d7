"""How agy is started, and what its output means.

The fixtures are written by hand from public material: no binary could be had. The conversation, the
prompts and the times in them are made up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from supervisor.adapters.agy import ADAPTER, AgyDecoder
from supervisor.model.adapter import FoundFile, Surroundings, Wanted
from supervisor.model.completion import Exit, Usage
from supervisor.model.errors import AuthError, CliError, RequestError
from supervisor.model.events import TurnEnded, Unrecognized
from supervisor.model.launch import Launch, Places
from supervisor.model.request import Timeouts
from supervisor.protocol.accumulate import Accumulator, End, Verdict
from supervisor.protocol.decode import encodable, read_objects
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.supported import check_supported
from tests.fakes import RECORDINGS, ask
from tests.test_decode import JSON
from tests.test_schema import Verdict as Answer

if TYPE_CHECKING:
    from supervisor.model.events import Record

PLACES = Places(
    run_id="0123456789ab", work="/p/work", files="/p/files", state="/p/state", temporary="/p/tmp"
)
HOME = {"HOME": "/home/user"}
AT = datetime(2026, 11, 1, tzinfo=UTC)
CASES = sorted(path.parent.name for path in (RECORDINGS / "agy").glob("*/expect.json"))
NOT_COMPARED = ("version", "exit_code", "signal", "schema", "tool_used")
CONVERSATION = "3f0c6d1e-5a3b-4c1d-9e8f-0a1b2c3d4e5f"
DONE = Exit(code=0, signal=None, ended_by_us=False)


def around(
    version: str | None = "1.3.5",
    environ: dict[str, str] | None = None,
    settings: str | None = None,
) -> Surroundings:
    found = () if settings is None else (FoundFile(path="/s", content=settings.encode()),)
    return Surroundings(places=PLACES, environ=environ or HOME, found=found, version=version)


def plan(surroundings: Surroundings | None = None, **request: Any) -> Launch:
    given_billing = {"billing": "subscription", **request}
    return ADAPTER.plan(ask(provider="agy", **given_billing), surroundings or around())


# ---- planning


def test_a_plain_question() -> None:
    launch = plan(prompt="What is it?")
    assert launch.arguments == snapshot(
        (
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--disable-slash-commands",
            "--log-file",
            "/p/tmp/agy.log",
        )
    )
    assert launch.environment == snapshot(
        {
            "AGY_CLI_DISABLE_AUTO_UPDATE": "true",
            "AGY_CLI_HIDE_ACCOUNT_INFO": "true",
            "AGY_CLI_DISABLE_LATEX": "true",
            "BROWSER": "true",
        }
    )
    assert launch.stdin == b'{"event": "user", "message": {"content": "What is it?"}}\n'
    assert not launch.terminal
    assert launch.silent_while_thinking
    assert launch.polite == "TERM"
    assert launch.files == ()
    assert launch.loaded
    assert launch.warnings == ()


def test_everything_that_a_request_can_ask() -> None:
    launch = plan(model="gemini-3.8-flash", effort="low", resume=CONVERSATION, schema=Answer)
    text = " ".join(launch.arguments)
    assert f"--model gemini-3.8-flash --effort low --conversation {CONVERSATION}" in text
    assert launch.arguments[-2] == "--json-schema"
    assert json.loads(launch.arguments[-1]) == Answer.model_json_schema()
    assert (launch.model, launch.effort, launch.effort_source) == (
        "gemini-3.8-flash",
        "low",
        "request",
    )


@pytest.mark.parametrize(
    "prompt",
    [
        *("-x", "--help", "/help me", "/usage", "!ls", "@/etc/hostname", "look at @a/b.txt"),
        *("a\r\n b ", "\ufeffx", 'a "quote" \\ and \u2028', "é" * 200_000, '{"event":"user"}'),
    ],
)
def test_the_prompt_is_data(prompt: str) -> None:
    launch = plan(prompt=prompt)
    assert "--disable-slash-commands" in launch.arguments
    assert not any(prompt in argument for argument in launch.arguments if len(prompt) > 2)
    assert launch.stdin.count(b"\n") == 1  # one line is one turn
    assert json.loads(launch.stdin) == {"event": "user", "message": {"content": prompt}}


@pytest.mark.parametrize("version", ["1.0.16", "1.1.8", "1.1.14", "agy version 1.1.2 (linux)"])
def test_a_version_without_prompts_on_standard_input_is_refused(version: str) -> None:
    with pytest.raises(CliError) as caught:
        plan(around(version))
    assert caught.value.code == "cli.unsupported_version"


@pytest.mark.parametrize(
    ("version", "total", "limit"),
    [
        ("1.1.15", 600.0, "660s"),
        ("1.2.5", 0.5, "60s"),
        ("1.2.5", None, "24h"),
        ("1.2.6", 600.0, None),
        ("1.2.12\n", 600.0, None),
        ("10.0.0", 600.0, None),
        ("nightly", 600.0, None),
        (None, 600.0, None),
    ],
)
def test_the_clis_own_time_limit_is_longer_than_ours(
    version: str | None, total: float | None, limit: str | None
) -> None:
    arguments = plan(around(version), timeouts=Timeouts(total=total)).arguments
    if limit is None:
        assert "--print-timeout" not in arguments
    else:
        assert arguments[arguments.index("--print-timeout") + 1] == limit


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"schema": {"type": "object", "title": "x" * 140_000}}, "request.too_large"),
        ({"schema": {"type": "string"}}, "request.unsupported"),
    ],
)
def test_a_schema_that_agy_cannot_take_is_refused(given_: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        plan(**given_)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "given_",
    [
        {"system": "Be brief."},
        {"max_turns": 3},
        {"access": "read", "workspace": "/w"},
        {"effort": "max"},
        {"hermetic": "strict"},
        {"billing": "api_key"},
        {"login": "work"},
        {"mcp_config": {"a": {}}},
    ],
)
def test_what_agy_has_not_is_refused_before_anything_is_planned(given_: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        check_supported(ask(provider="agy", **given_), ADAPTER)
    assert caught.value.code == "request.unsupported"


@pytest.mark.parametrize(
    "key", ["GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTIGRAVITY_API_KEY", "AGY_ADC_AUTH"]
)
def test_a_key_that_might_pay_is_refused_before_the_start(key: str) -> None:
    with pytest.raises(AuthError) as caught:
        plan(around(environ={**HOME, key: "made-up"}))
    assert caught.value.code == "auth.api_key_in_use"
    plan(around(environ={**HOME, key: ""}))
    plan(around(environ={**HOME, key: "made-up"}), billing="any")


@pytest.mark.parametrize(
    "mode", ["always-proceed", "proceed-in-sandbox", "of the future", None, []]
)
def test_settings_that_let_every_tool_run_are_refused(mode: object) -> None:
    with pytest.raises(RequestError) as caught:
        plan(around(settings=json.dumps({"toolPermission": mode})))
    assert caught.value.code == "request.unsupported"


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"toolPermission": "request-review"}, False),
        ({"toolPermission": "strict", "permissions": {"allow": []}}, False),
        ({"permissions": {"allow": ["command(git)"]}}, True),
        ({"permissions": None}, False),
    ],
)
def test_settings_that_let_some_tools_run_are_told(settings: dict[str, Any], warned: bool) -> None:
    warnings = plan(around(settings=json.dumps(settings))).warnings
    assert [fact.code for fact in warnings] == (["config.invalid"] if warned else [])


@pytest.mark.parametrize("settings", ["", "{", "// a comment\n{}", "[]", "7", "[{}, 1]"])
def test_settings_that_cannot_be_read_are_passed_over(settings: str) -> None:
    assert plan(around(settings=settings)).warnings == ()


def test_where_the_users_files_lie() -> None:
    state = "/home/user/.gemini/antigravity-cli"
    assert ADAPTER.looks_for(ask(), HOME) == (
        Wanted(folder=state, name="settings.json", read=True, deep=False),
    )
    assert ADAPTER.login_files(HOME) == (f"{state}/antigravity-oauth-token",)
    assert ADAPTER.looks_for(ask(), {}) == ()
    assert ADAPTER.login_files({}) == ()


# ---- reading


@dataclass(kw_only=True)
class Reading:
    """A stream read to its end."""

    accumulator: Accumulator
    decoder: AgyDecoder
    records: list[Record] = field(default_factory=list)


def read(stdout: bytes, **given_: Any) -> Reading:
    request = ask(provider="agy", billing="subscription", **given_)
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
    stdout, stderr = RECORDINGS / "agy" / case / "stdout", RECORDINGS / "agy" / case / "stderr"
    return (
        stdout.read_bytes() if stdout.exists() else b"",
        stderr.read_text() if stderr.exists() else "",
    )


def meaning(case: str, *, schema: bool, code: int | None) -> dict[str, Any]:
    """What a fixture's stream comes to, in the keys of its expect.json."""
    stdout, stderr = parts(case)
    reading = read(stdout, schema={"type": "object"} if schema else None)
    kept = reading.accumulator
    used = kept.violation
    kept.violation = None
    verdict = settled(reading, Exit(code=code, signal=None, ended_by_us=False), stderr)
    fact, usage, text = verdict.failure, kept.usage, verdict.text
    return {
        "outcome": "ok" if fact is None else fact.code,
        "tool_used": used is not None and used.code == "policy.tool_used",
        "text": text if len(text) < 200 else f"{len(text)} characters",
        "payer": reading.decoder.billing().payer,
        "unrecognized": sum(record.kind == "unrecognized" for record in reading.records),
        "usage": usage
        and [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning],
        "resets_at": fact.resets_at.isoformat() if fact and fact.resets_at else None,
        "status": None if fact is None else fact.status,
        "model": kept.model,
    }


@pytest.mark.parametrize("case", CASES)
def test_a_run_means_what_the_facts_say(case: str) -> None:
    expected = json.loads((RECORDINGS / "agy" / case / "expect.json").read_text())
    found = meaning(case, schema=expected["schema"], code=expected["exit_code"])
    assert found == {key: expected[key] for key in expected if key not in NOT_COMPARED[:-1]}


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        (
            "ok-text",
            snapshot(["started", "reasoning", "text_delta", "text_delta", "usage", "turn_ended"]),
        ),
        (
            "tool-used",
            snapshot(
                [
                    "started",
                    "notice",
                    "tool_started",
                    "tool_finished",
                    "reasoning",
                    "text_delta",
                    "text_delta",
                    "usage",
                    "turn_ended",
                ]
            ),
        ),
        ("rate-limit", snapshot(["started", "error_reported", "turn_ended"])),
        (
            "ok-then-signal",
            snapshot(["started", "reasoning", "text_delta", "text_delta", "usage", "turn_ended"]),
        ),
        ("command-answered", snapshot(["unrecognized", "turn_ended"])),
    ],
)
def test_the_order_of_events(case: str, kinds: list[str]) -> None:
    assert [record.kind for record in read(parts(case)[0]).records] == kinds


def init(conversation: str = CONVERSATION, **inside: Any) -> dict[str, Any]:
    return {"event": "init", "conversation_id": conversation, "init": inside}


def step(index: int, kind: str, state: str = "DONE", **more: Any) -> dict[str, Any]:
    update = {"step_index": index, "state": state, "step_type": kind, **more}
    return {"event": "step_update", "step_update": {"conversation_id": CONVERSATION, **update}}


def result(conversation: str = CONVERSATION, **more: Any) -> dict[str, Any]:
    envelope = {"conversation_id": conversation, "status": "SUCCESS", "num_turns": 1, **more}
    return {"event": "result", "result": envelope}


SPENT = {"input_tokens": 10, "output_tokens": 5, "thinking_tokens": 2, "cache_read_tokens": 3}


def test_the_tokens_of_a_resumed_run_are_its_own() -> None:
    """A result counts the whole conversation; summed over the runs that would grow without end."""
    stdout = stream(
        init(),
        step(10, "agent_response", "ACTIVE", text_delta="Tw", usage={"input_tokens": 1}),
        step(10, "agent_response", text_delta="o.", usage=SPENT),
        step(12, "agent_response", text_delta=" Three.", usage=SPENT),
        result(response="Two. Three.\n", num_turns=7, usage={"input_tokens": 566_632}),
    )
    reading = read(stdout, resume=CONVERSATION)
    assert settled(reading).text == "Two. Three."
    assert reading.accumulator.usage == Usage(input=20, cache_read=6, output=6, reasoning=4)


def test_a_resumed_run_whose_conversation_is_gone_is_no_success() -> None:
    stdout = stream(init("another"), step(1, "agent_response", text_delta="Hi."))
    reading = read(stdout, resume=CONVERSATION)
    assert isinstance(reading.records[1], TurnEnded)  # so that it ends before it has spent much
    verdict = settled(read(stdout + stream(result("another", response="Hi.", usage=SPENT))))
    assert verdict.failure is None
    resumed = read(
        stdout + stream(result("another", response="Hi.", usage=SPENT)), resume=CONVERSATION
    )
    fact = settled(resumed).failure
    assert fact is not None
    assert fact.code == "request.invalid"
    early = stream(result("", status="ERROR", error="please sign in"))
    fact = settled(read(early, resume=CONVERSATION)).failure
    assert fact is not None
    assert fact.code == "auth.required"


def test_the_structured_answer_of_an_earlier_turn_is_not_taken_for_this_ones() -> None:
    last = result(response="I cannot.", structured_output={"answer": "old"}, usage=SPENT)
    said = step(12, "agent_response", text_delta="I cannot.")
    asked = {"schema": {"type": "object"}, "resume": CONVERSATION}
    fact = settled(read(stream(init(), said, last), **asked)).failure
    assert fact is not None
    assert fact.code == "answer.not_json"
    finished = stream(init(), said, step(13, "tool", tool_name="finish"), last)
    assert settled(read(finished, **asked)).data == {"answer": "old"}


def test_a_call_that_is_first_seen_at_its_end_has_a_start() -> None:
    reading = read(stream(init(), step(3, "tool", tool_name="view_file")))
    assert [record.kind for record in reading.records] == [
        "started",
        "tool_started",
        "tool_finished",
    ]
    assert reading.records[2].ok is None  # type: ignore[union-attr]  -- denied calls look so too


def test_a_success_without_a_sign_of_a_model_is_none() -> None:
    assert settled(read(stream(init(), result(response="Hello.")))).failure is not None
    spoken = stream(init(), step(1, "agent_response", text_delta="Hi"), result(response="Hi"))
    assert settled(read(spoken)).failure is None


# ---- the field


def test_an_answer_in_plain_text_is_no_result() -> None:
    """A CLI that takes --output-format for text prints an answer and no end mark."""
    fact = settled(read(b"The answer is 4.\n")).failure
    assert fact is not None
    assert fact.code == "protocol.no_result"


def test_words_of_the_model_are_never_taken_for_an_error() -> None:
    words = "Individual quota reached. Please sign in. UNAUTHENTICATED (code 401)"
    said = step(1, "agent_response", text_delta=words)
    assert settled(read(stream(init(), said, result(response=words, usage=SPENT)))).failure is None
    zeros = dict.fromkeys(SPENT, 0)
    fact = settled(read(stream(init(), said, result(response=words, usage=zeros)))).failure
    assert fact is not None
    assert fact.code == "protocol.truncated"


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "W0528 13:36:23.318877 1 auth.go:1] You are not logged into Antigravity. Please sign in\n",
        "I0926 10:36:51.895710 1 server.go:5] text: 'Individual quota reached'\n",
        "some progress\n",
    ],
)
def test_what_the_log_says_is_no_cause(stderr: str) -> None:
    assert ADAPTER.diagnose(Exit(code=1, signal=None, ended_by_us=False), stderr) is None


def test_a_quota_without_a_clock_has_no_end() -> None:
    fact = ADAPTER.diagnose(DONE, "error: Individual quota reached. Resets in 34m13s.\n")
    assert fact is not None
    assert (fact.code, fact.resets_at, fact.retry_after) == ("limit.usage", None, None)


@pytest.mark.parametrize("case", CASES)
def test_no_error_carries_what_the_cli_said(case: str) -> None:
    stdout, stderr = parts(case)
    facts = [ADAPTER.diagnose(DONE, stderr)]
    said = []
    for record in read(stdout).records:
        facts.append(getattr(record, "failure", None))
        said.append(record.message if record.kind == "notice" else "")
    said += [f"{fact.message} {fact.hint}" for fact in facts if fact is not None]
    for sentence in said:
        for foreign in ("gemini-3", "no-such", "RESOURCE", "Resets", "code 4", "jetski", "3f0c"):
            assert foreign not in sentence


VALUES = st.sampled_from(
    [
        *("init", "step_update", "result", "agent_response", "tool", "finish", "unknown", "ACTIVE"),
        *("DONE", "ERROR", "SUCCESS", "CANCELED", CONVERSATION, "error 999", "(code 429) quota"),
    ]
)
KEYS = st.sampled_from(
    [
        *("event", "init", "step_update", "result", "conversation_id", "tools", "permission_mode"),
        *("step_index", "state", "status", "step_type", "text_delta", "tool_name", "tool_info"),
        *("parameters", "output", "error", "message", "usage", "input_tokens", "thinking_tokens"),
        *("response", "structured_output", "denied_actions", "num_turns", "command"),
    ]
)
INNER = st.dictionaries(KEYS, st.dictionaries(KEYS, JSON | VALUES, max_size=4) | VALUES | JSON)
EVENTS = st.tuples(VALUES | JSON, INNER, INNER).map(
    lambda drawn: {
        **drawn[2],
        "event": drawn[0],
        **({drawn[0]: drawn[1]} if isinstance(drawn[0], str) else {}),
    }
)


@given(st.lists(EVENTS, max_size=4), st.none() | st.just(CONVERSATION))
def test_no_object_makes_the_decoder_raise(values: list[Any], resume: str | None) -> None:
    decoder = AgyDecoder(resume=resume)
    for value in values:
        for record in decoder.record(encodable(value), 10, AT):
            assert record.kind
    assert decoder.billing().payer == "unknown"


@given(st.text())
def test_no_error_output_makes_the_diagnosis_raise(stderr: str) -> None:
    ADAPTER.diagnose(DONE, stderr)
    ADAPTER.diagnose(DONE, f"error: {stderr}")
