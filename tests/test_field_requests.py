"""Troubles of people who run these CLIs without a terminal: prompts, schemas, usage and cost.

Each starts a CLI as a real subprocess that does what theirs did.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from supervisor import AnswerError, RequestError
from tests.fakes import Bench, ask, error_of, recorded
from tests.field import (
    COUNTS,
    HELLO,
    answer,
    assistant,
    init,
    keyed,
    lines,
    question,
    result,
    running,
    say,
    starts,
    stderr_of,
    turn,
    turn_failed,
)

if TYPE_CHECKING:
    from supervisor import SupervisorError

# ---- arguments and prompts

ECHO = """
if "--version" in sys.argv:
    print("1.2.20")
    sys.exit(0)
asked = open(after("--prompt-file")).read() if sys.argv[2] == "grok" else sys.stdin.read()
if any(asked and asked in word for word in sys.argv):
    sys.stderr.write("the prompt is an argument")
    sys.exit(1)
if sys.argv[2] == "agy":
    asked = json.loads(asked)["message"]["content"]
{"claude": claude, "codex": codex, "gemini": gemini, "agy": agy, "grok": grok}[sys.argv[2]](asked)
"""
"""A CLI that answers with its standard input, and ends if it finds the same among its arguments."""


EVERY = ("claude", "codex", "gemini", "agy", "grok")


def keys(bench: Bench, provider: str) -> dict[str, Any]:
    return keyed(bench) if provider == "gemini" else {}


@pytest.mark.parametrize("size", [131_071, 131_072, 1_000_000])
@pytest.mark.parametrize("provider", EVERY)
async def test_a_user_with_a_whole_file_in_the_prompt_meets_no_limit_of_arguments(
    bench: Bench, provider: str, size: int
) -> None:
    """Linux takes no single argument over 128 KiB; it looked like a login fault. claude, codex,
    2026-07."""
    prompt = "x" * size
    async with running(bench, provider, ECHO, provider, **keys(bench, provider)) as supervisor:
        assert (await supervisor.run(question(provider, prompt=prompt))).text == prompt


SYSTEM = """
text = open(after("--system-prompt-file")).read()
claude(str(len(text)))
"""


async def test_an_author_of_long_instructions_meets_no_limit_of_arguments(bench: Bench) -> None:
    """The same with the system text, which goes by a file. claude."""
    async with running(bench, "claude", SYSTEM) as supervisor:
        completion = await supervisor.run(question("claude", system="s" * 200_000))
    assert completion.text == "200000"


async def refused(bench: Bench, provider: str, **given: Any) -> SupervisorError:
    """The error of a request that is not even started."""
    counted = bench.path / "starts"
    async with running(bench, provider, COUNTS, counted) as supervisor:
        with pytest.raises(RequestError) as caught:
            await supervisor.run(question(provider, **given))
    assert starts(counted) == 0
    assert caught.value.partial is None
    return caught.value


async def test_an_author_of_long_instructions_is_told_the_limit_of_codex(bench: Bench) -> None:
    """Where they can only be an argument, the limit is named before the start. codex."""
    error = await refused(bench, "codex", system="s" * 140_000)
    assert error.code == "request.too_large"
    assert "131071" in error.message


async def test_an_operator_is_told_that_the_environment_is_too_large(bench: Bench) -> None:
    """What the system refuses at the start of the process came out as a bare OSError. codex,
    2026-08."""
    variables = {"codex": {"MUCH": "x" * 200_000}}
    async with bench.supervisor(*say(*turn()), variables=variables) as supervisor:
        with pytest.raises(RequestError) as caught:
            await supervisor.run(ask())
    assert caught.value.code == "request.too_large"


LARGE: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "d" * 140_000}},
    "required": ["answer"],
    "additionalProperties": False,
}


async def test_an_author_of_a_large_schema_is_told_the_limit_before_the_start(bench: Bench) -> None:
    """The schema is an argument, and one of 140 KB cannot be started. claude."""
    error = await refused(bench, "claude", schema=LARGE)
    assert error.code == "request.too_large"
    assert "schema" in error.message
    assert "131071" in error.message


SCHEMA_FILE = """
schema = json.load(open(after("--output-schema")))
codex(json.dumps({"answer": str(len(schema["properties"]["answer"]["description"]))}))
"""


async def test_an_author_of_a_large_schema_is_served_where_it_goes_by_a_file(bench: Bench) -> None:
    """The same with codex, which reads the schema from a file."""
    async with running(bench, "codex", SCHEMA_FILE) as supervisor:
        assert (await supervisor.run(ask(schema=LARGE))).data == {"answer": "140000"}


@pytest.mark.parametrize("prompt", ["--- a diff", "-p", "--help", "-"])
@pytest.mark.parametrize("provider", EVERY)
async def test_a_user_who_pastes_a_diff_is_not_shown_the_stderr_of(
    bench: Bench, provider: str, prompt: str
) -> None:
    """A prompt that begins with a dash was taken for a flag: exit 1 or 2, no output. claude, codex."""
    code = ECHO.replace("asked in word", "asked == word and asked.startswith('---')")
    async with running(bench, provider, code, provider, **keys(bench, provider)) as supervisor:
        assert (await supervisor.run(question(provider, prompt=prompt))).text == prompt


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_user_who_pastes_a_list_sees_no_success_of_a_run_that_did_nothing(
    bench: Bench, provider: str
) -> None:
    """The same without a word: one event of the session, and exit code 0. 2026."""
    start = init() if provider == "claude" else turn()[0]
    async with bench.supervisor(*say(start), ["exit", 0], provider=provider) as supervisor:
        error = await error_of(supervisor, question(provider, prompt="- a\n- b"))
    assert error.code == "protocol.truncated"
    assert error.partial is not None
    assert error.partial.text == ""


COMMANDS = """
asked = sys.stdin.read()
if asked.startswith("/"):
    print(open(sys.argv[2]).read(), end="")
else:
    claude(asked)
"""


async def test_a_user_who_asks_about_a_path_is_answered_by_the_model(bench: Bench) -> None:
    """A prompt that begins with a slash was looked up as a command of the CLI. claude 2.1.197."""
    path = recorded("claude/f-prompt-slash-stdin")[1]
    async with running(bench, "claude", COMMANDS, path) as supervisor:
        completion = await supervisor.run(question("claude", prompt="/etc/hosts holds what?"))
    assert completion.text == "\n/etc/hosts holds what?"


async def test_a_user_who_asks_about_a_path_gets_no_answer_without_a_model(bench: Bench) -> None:
    """What the CLI says of an unknown command, with zero turns, is no answer. claude 2.1.197."""
    async with bench.supervisor(
        recorded("claude/f-prompt-slash-stdin"), provider="claude"
    ) as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "protocol.empty"


@pytest.mark.parametrize("field", ["prompt", "system"])
@pytest.mark.parametrize(("text", "named"), [("a\0b", "NUL"), ("a\udcffb", "surrogate")])
@pytest.mark.parametrize("provider", ["claude", "codex", "agy"])
async def test_a_user_who_pastes_binary_data_is_told_before_the_start(
    bench: Bench, provider: str, text: str, named: str, field: str
) -> None:
    """A NUL or half a character in the prompt raised a bare ValueError. Every CLI."""
    error = await refused(bench, provider, **{field: text})
    assert error.code == "request.invalid"
    assert named in error.message
    assert field in error.message


@pytest.mark.parametrize(
    ("provider", "code", "text"),
    [
        ("claude", 1, stderr_of("claude/a-flag-unknown")),
        (
            "claude",
            1,
            "Error: When using --print, --output-format=stream-json requires --verbose",
        ),
        ("claude", 1, "error: option '--setting-sources <sources>' argument missing"),
        ("codex", 2, stderr_of("codex/a19-unknown-flag")),
        ("gemini", 1, stderr_of("gemini/a-flag-unknown")),
        ("grok", 2, stderr_of("grok/a9-unknown-flag")),
    ],
)
async def test_a_user_of_another_version_learns_that_a_flag_is_unknown(
    bench: Bench, provider: str, code: int, text: str
) -> None:
    """Flags came, went and began to need one another: exit 1 or 2, and no output. claude, codex."""
    steps = (["stderr", text], ["exit", code])
    given = keys(bench, provider)
    async with bench.supervisor(*steps, provider=provider, **given) as supervisor:
        error = await error_of(supervisor, question(provider))
    assert error.code == "cli.bad_flag"
    assert not error.retryable


# ---- structured output


class Inner(BaseModel):
    count: int
    unit: str = "kg"


class Report(BaseModel):
    title: str
    note: str | None = None
    inner: Inner
    tags: list[str] = Field(default_factory=list)


STRICT = """
def loose(part):
    if isinstance(part, list):
        return any(map(loose, part))
    if not isinstance(part, dict):
        return False
    if part.get("type") == "object" and (part.get("additionalProperties") is not False
            or set(part["properties"]) != set(part.get("required", []))):
        return True
    if {"oneOf", "allOf", "default", "format"} & part.keys():
        return True
    return any(map(loose, part.values()))

if loose(json.load(open(after("--output-schema")))):
    codex_failed(sys.argv[2])
codex(sys.argv[3])
"""
"""A server that refuses what OpenAI's strict mode refuses."""
REFUSAL = json.dumps(
    {
        "error": {
            "message": "Invalid schema for response_format 'codex_output_schema': In context=(),"
            " 'additionalProperties' is required to be supplied and to be false.",
            "type": "invalid_request_error",
            "param": "text.format.schema",
            "code": "invalid_json_schema",
        }
    }
)


async def test_a_pydantic_user_with_defaults_is_served_by_a_strict_server(bench: Bench) -> None:
    """Optional fields, defaults and open objects made the server refuse each schema. codex, 2026-06."""
    given = '{"title":"t","note":null,"inner":{"count":2,"unit":null},"tags":null}'
    async with running(bench, "codex", STRICT, REFUSAL, given) as supervisor:
        completion = await supervisor.run(ask(schema=Report))
    assert completion.data == Report(title="t", inner=Inner(count=2))


async def test_a_pydantic_user_is_told_that_the_server_refused_the_schema(bench: Bench) -> None:
    """The refusal itself must be named, and not be asked again. codex, 2026-06."""
    async with bench.supervisor(*say(*turn_failed(REFUSAL)), ["exit", 1]) as supervisor:
        error = await error_of(supervisor, ask(schema=Report))
    assert (error.code, error.retryable) == ("request.unsupported", False)
    assert "schema" in error.message


class Named(BaseModel):
    name: str
    n: int


FENCED = 'Here it is:\n```json\n{"name": "Ada", "n": "3"}\n```'


async def test_an_extractor_is_not_given_a_fenced_object_for_a_structured_answer(
    bench: Bench,
) -> None:
    """Success without a structured answer; its text held JSON in a fence, of a wrong type.
    claude 2026-01."""
    async with bench.supervisor(*say(*answer(FENCED)), provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude", schema=Named))
    assert error.code == "answer.not_json"
    assert error.partial is not None
    assert error.partial.text == FENCED


SILENT_IN_TEXT_MODE = """
if after("--output-format") == "stream-json" and after("--json-schema"):
    data = {"name": "Ada", "n": 3}
    claude(json.dumps(data), result={"structured_output": data, "stop_reason": "tool_use"})
"""


async def test_an_extractor_is_never_in_the_text_mode_that_prints_nothing(bench: Bench) -> None:
    """With a schema, text mode printed nothing at all and exited with 0. claude, 2026-03."""
    async with running(bench, "claude", SILENT_IN_TEXT_MODE) as supervisor:
        completion = await supervisor.run(question("claude", schema=Named))
    assert completion.data == Named(name="Ada", n=3)


async def test_an_extractor_sees_no_success_in_an_empty_output(bench: Bench) -> None:
    """The empty output itself. claude, 2026-03."""
    async with bench.supervisor(["exit", 0], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude", schema=Named))
    assert error.code == "protocol.no_result"


DIALECT = """
if "$schema" in json.loads(after("--json-schema")):
    sys.stderr.write('Error: --json-schema is not a valid JSON Schema: no schema with key or ref '
                     '"https://json-schema.org/draft/2020-12/schema"\\n')
    sys.exit(1)
data = {"name": "Ada", "n": 3}
claude(json.dumps(data), result={"structured_output": data, "stop_reason": "tool_use"})
"""
DIALECTS = [
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft-07/schema#",
]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_zod_user_whose_schema_names_its_dialect_is_served(
    bench: Bench, dialect: str
) -> None:
    """The CLI's validator refused the name of the schema's dialect. claude 2.1.205 to 2.1.214."""
    schema = {"$schema": dialect, **Named.model_json_schema()}
    async with running(bench, "claude", DIALECT) as supervisor:
        completion = await supervisor.run(question("claude", schema=schema))
    assert completion.data == {"name": "Ada", "n": 3}


async def test_a_zod_user_is_told_that_the_clis_validator_refused_the_schema(bench: Bench) -> None:
    """Exit 1, one line on stderr and nothing else. claude 2.1.332."""
    text = stderr_of("claude/v332-bb-discriminator")
    steps = (["stderr", text], ["exit", 1])
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude", schema=Named))
    assert (error.code, error.retryable) == ("request.unsupported", False)


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_reviewer_with_a_schema_is_not_given_prose(bench: Bench, provider: str) -> None:
    """The CLI took the schema, dropped it and answered in prose. claude 2.1.205, codex 0.145.0."""
    prose = "The patch looks good to me."
    stream = answer(prose) if provider == "claude" else turn(prose)
    async with bench.supervisor(*say(*stream), provider=provider) as supervisor:
        error = await error_of(supervisor, question(provider, schema=Named))
    assert isinstance(error, AnswerError)
    assert error.code == "answer.not_json"
    assert error.partial is not None
    assert error.partial.text == prose


class Outcome(BaseModel):
    error: None
    n: int


async def test_a_pipeline_is_not_given_null_and_numbers_that_are_strings(bench: Bench) -> None:
    """The model wrote "null" and "7" as strings, and they were quietly taken. claude, 2026-08."""
    data = {"error": "null", "n": "7"}
    stream = answer(json.dumps(data), structured_output=data, stop_reason="tool_use")
    async with bench.supervisor(*say(*stream), provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude", schema=Outcome))
    assert error.code == "answer.schema"
    assert error.partial is not None
    assert json.loads(error.partial.text) == data


async def test_a_pipeline_tells_used_up_turns_from_a_misfit_of_the_schema(bench: Bench) -> None:
    """The turn limit, without a structured answer, was reported as a validation error. claude,
    2026-01."""
    last = lines("claude/d-agent-max-turns")[-1]
    stream = say(init(), assistant("So far."), last)
    async with bench.supervisor(*stream, ["exit", 1], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude", schema=Named, max_turns=3, repair=1))
    assert error.code == "answer.max_turns"


FIRST_IS_NULL = """
first = not os.path.exists(sys.argv[2])
open(sys.argv[2], "a").write("started\\n")
data = None if first else {"name": "Ada", "n": 3}
text = "" if first else json.dumps(data)
claude(text, result={"structured_output": data, "stop_reason": "tool_use"})
sys.exit(int(first))
"""


@pytest.mark.parametrize("repair", [0, 1])
async def test_an_extractor_whose_first_call_gives_null_is_asked_again_only_if_it_wants(
    bench: Bench, repair: Any
) -> None:
    """The first call with a schema gave null and exit 1, the second worked. claude 2.1.30."""
    counted = bench.path / "starts"
    async with running(bench, "claude", FIRST_IS_NULL, counted) as supervisor:
        request = question("claude", schema=Named, repair=repair)
        if repair:
            completion = await supervisor.run(request)
            assert (completion.data, completion.attempts) == (Named(name="Ada", n=3), 2)
        else:
            assert (await error_of(supervisor, request)).code == "answer.schema"
    assert starts(counted) == 1 + repair


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Zoo(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    seen: Annotated[str, Field(json_schema_extra={"format": "date"})] = "never"


async def test_a_pydantic_user_with_a_discriminated_union_is_served(bench: Bench) -> None:
    """The server dropped or refused the keywords that pydantic writes for a union. codex, 2026-08."""
    given = '{"pet":{"kind":"dog","tricks":["sit"]},"seen":null}'
    async with running(bench, "codex", STRICT, REFUSAL, given) as supervisor:
        completion = await supervisor.run(ask(schema=Zoo))
    assert completion.data == Zoo(pet=Dog(kind="dog", tricks=["sit"]))


@pytest.mark.parametrize("keyword", ["not", "if", "patternProperties", "prefixItems"])
async def test_an_author_of_a_schema_is_told_which_keyword_cannot_be_sent(
    bench: Bench, keyword: str
) -> None:
    """Keywords without a strict form failed only after the run had begun. codex, 2026-08."""
    value: Any = {
        "not": {"const": 1},
        "if": {"const": 1},
        "patternProperties": {"^a": {"type": "string"}},
        "prefixItems": [{"type": "string"}],
    }[keyword]
    kind = {"patternProperties": "object", "prefixItems": "array"}.get(keyword, "integer")
    inside = {"type": kind, keyword: value}
    schema = {"type": "object", "properties": {"x": inside}, "required": ["x"]}
    error = await refused(bench, "codex", schema=schema)
    assert error.code == "request.unsupported"
    assert keyword in error.message
    assert "#/properties/x" in error.message


# ---- usage and cost

COUNTER = """
path = os.environ["CODEX_HOME"] + "/counter"
spent = 18000 + (int(open(path).read()) if "resume" in sys.argv and os.path.exists(path) else 0)
open(path, "w").write(str(spent))
codex("The answer.", input_tokens=spent, cached_input_tokens=0, output_tokens=7)
"""


async def test_a_bookkeeper_is_told_that_the_counters_of_a_resumed_thread_run_on(
    bench: Bench,
) -> None:
    """18k, 36k, 54k: the counters of a resumed thread hold its earlier turns. codex, 2026-03."""
    home = bench.path / "codex"
    home.mkdir()
    environ = {"HOME": str(bench.path), "PATH": os.environ["PATH"], "CODEX_HOME": str(home)}
    async with running(bench, "codex", COUNTER, environ=environ) as supervisor:
        first = await supervisor.run(ask(keep_session=True))
        second = await supervisor.run(ask(resume=first.session_id))
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.input, first.usage.cumulative) == (18_000, False)
    assert (second.usage.input, second.usage.cumulative) == (36_000, True)


async def test_a_bookkeeper_reads_cached_tokens_alike_of_both_clis(bench: Bench) -> None:
    """Cached tokens are part of the input for one CLI and beside it for another. claude, codex."""
    counters = {"input_tokens": 1000, "cached_input_tokens": 600, "cache_write_input_tokens": 0}
    async with bench.supervisor(*say(*turn(**counters, output_tokens=7))) as supervisor:
        codex = (await supervisor.run(ask())).usage
    counters = {
        "input_tokens": 5,
        "cache_read_input_tokens": 600,
        "cache_creation_input_tokens": 0,
        "output_tokens": 7,
    }
    stream = say(*answer(usage=counters, modelUsage={}))
    async with bench.supervisor(*stream, provider="claude") as supervisor:
        claude = (await supervisor.run(question("claude"))).usage
    assert codex is not None
    assert claude is not None
    assert (codex.input, codex.cache_read, codex.cache_write) == (400, 600, 0)
    assert (claude.input, claude.cache_read, claude.cache_write) == (5, 600, 0)
    assert (codex.total_input, claude.total_input) == (1000, 605)


async def test_a_bookkeeper_keeps_both_of_two_counters_that_disagree(bench: Bench) -> None:
    """The result's usage and its usage by model differed, one without caches. claude, SDK of
    2025-12."""
    good = result()
    (model,) = good["modelUsage"]
    other = {**good["modelUsage"][model], "inputTokens": 99, "cacheReadInputTokens": 0}
    stream = say(init(), assistant(), {**good, "modelUsage": {model: other}})
    async with bench.supervisor(*stream, provider="claude") as supervisor:
        completion = await supervisor.run(question("claude"))
    usage = completion.usage
    assert usage is not None
    assert (usage.input, usage.cache_read) == (11, 1000)
    assert (usage.by_model[model].input, usage.by_model[model].cache_read) == (99, 0)
    assert completion.model == model


async def test_a_budget_sees_the_reported_cost_as_that_and_none_where_there_is_none(
    bench: Bench,
) -> None:
    """A reported cost was up to a hundred times too high. claude, 2026-04; codex reports none."""
    async with bench.supervisor(
        *say(*answer(total_cost_usd=3.67)), provider="claude"
    ) as supervisor:
        cost = (await supervisor.run(question("claude"))).cost
    assert cost is not None
    assert cost.reported_usd == 3.67
    async with bench.supervisor(*say(*turn())) as supervisor:
        assert (await supervisor.run(ask())).cost is None


async def test_a_bookkeeper_gets_no_zero_for_a_counter_of_a_later_version(bench: Bench) -> None:
    """Reasoning and cached tokens came with a release; before it, they were booked as 0. codex,
    2026-04."""
    stream = say(*turn(input_tokens=1000, output_tokens=7))
    async with bench.supervisor(*stream) as supervisor:
        usage = (await supervisor.run(ask())).usage
    assert usage is not None
    assert (usage.cache_read, usage.cache_write, usage.reasoning) == (None, None, None)
    assert usage.output == 7


def gemini_stats(**stats: Any) -> list[Any]:
    """A recorded run with other counters."""
    *start, last = lines("gemini/c-stream")
    return say(*start, {**last, "stats": stats})


PRO = {"total_tokens": 134, "input_tokens": 120, "output_tokens": 9, "cached": 50, "input": 70}
ROUTER = {"total_tokens": 25, "input_tokens": 20, "output_tokens": 5, "cached": 0, "input": 20}


@pytest.mark.parametrize("first", ["router", "pro"])
async def test_a_bookkeeper_counts_every_model_of_a_gemini_run(bench: Bench, first: str) -> None:
    """Only the first of the models was read, and it was the one that chose a model. gemini, 2026-03."""
    models = {"gemini-2.5-flash-lite": ROUTER, "gemini-2.5-pro": PRO}
    if first == "pro":
        models = dict(reversed(models.items()))
    total = {name: PRO[name] + ROUTER[name] for name in PRO}
    steps = gemini_stats(**total, models=models)
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        completion = await supervisor.run(question("gemini"))
    usage = completion.usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (90, 50, 14, 5)
    assert completion.model == "gemini-2.5-pro"
    assert {name: each.output for name, each in usage.by_model.items()} == {
        "gemini-2.5-pro": 9,
        "gemini-2.5-flash-lite": 5,
    }


async def test_a_bookkeeper_gets_no_zero_for_a_counter_that_an_older_gemini_lacks(
    bench: Bench,
) -> None:
    """Cached tokens and thoughts were not told by older releases. gemini, 2025-11."""
    old = {"total_tokens": 134, "output_tokens": 9}
    steps = gemini_stats(**old, models={"gemini-2.5-pro": old})
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        usage = (await supervisor.run(question("gemini"))).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.reasoning, usage.output) == (None, None, None, 9)


async def test_a_bookkeeper_sees_what_a_failed_run_has_spent(bench: Bench) -> None:
    """The tokens of failed runs were lost with the error. claude, 2026."""
    good = result()
    bad = {**good, "is_error": True, "api_error_status": 500, "result": "API Error: 500"}
    stream = say(init(), assistant("Half."), bad)
    async with bench.supervisor(*stream, ["exit", 1], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "provider.error"
    assert error.partial is not None
    assert error.partial.usage is not None
    assert error.partial.usage.output == good["usage"]["output_tokens"]
    assert error.partial.cost is not None
    assert error.partial.cost.reported_usd == good["total_cost_usd"]


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_bookkeeper_gets_unknown_and_not_zero_without_any_usage(
    bench: Bench, provider: str
) -> None:
    """A run without counters was booked as one for nothing. claude and codex."""
    stream = answer() if provider == "claude" else turn()
    bare = [{k: v for k, v in line.items() if k not in COUNTERS} for line in stream]
    async with bench.supervisor(*say(*bare), provider=provider) as supervisor:
        completion = await supervisor.run(question(provider))
    assert completion.text == HELLO
    assert (completion.usage, completion.cost) == (None, None)


COUNTERS = ("usage", "modelUsage", "total_cost_usd")
