"""Troubles of people who run these CLIs without a terminal: events, and success or failure.

Each starts a CLI as a real subprocess that does what theirs did.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from supervisor import Done, Text, Timeouts
from tests.fakes import Bench, ask, error_of, events_of, recorded
from tests.field import (
    BOUND,
    COMPLETED,
    HELLO,
    THREAD,
    TURN,
    answer,
    assistant,
    init,
    keyed,
    kinds,
    lines,
    question,
    result,
    said,
    say,
    signed_in,
    turn,
    turn_failed,
)

# ---- events and their drift


async def test_a_bot_goes_on_after_an_event_type_that_nobody_knew(bench: Bench) -> None:
    """A parser gave up at the first line of a new type. claude 2.1.45 to 2.1.49."""
    first, *rest = answer()
    stream = say(first, {"type": "never_seen", "n": 1}, *rest)
    async with bench.supervisor(*stream, provider="claude") as supervisor:
        events = await events_of(supervisor, question("claude"))
    assert [event.type for event in kinds(events, "unrecognized")] == ["never_seen"]
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO


def reconnecting(*attempts: int) -> list[dict[str, Any]]:
    said_first = lines("codex/e34-cut-then-ok")[2]
    return [
        {**said_first, "message": said_first["message"].replace("1/5", f"{number}/5")}
        for number in attempts
    ]


async def test_a_task_board_does_not_fail_tasks_that_only_reconnected(bench: Bench) -> None:
    """Error events of reconnects were taken for the end of a run that then went well. codex,
    2026-05."""
    stream = say(THREAD, TURN, *reconnecting(2, 3, 4), said("It works."), COMPLETED)
    async with bench.supervisor(*stream) as supervisor:
        events = await events_of(supervisor, ask())
    retries = [event for event in kinds(events, "notice") if event.code == "retry"]
    assert [(event.attempt, event.attempts) for event in retries] == [(2, 5), (3, 5), (4, 5)]
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "It works."


async def test_a_task_board_fails_a_task_whose_reconnects_led_nowhere(bench: Bench) -> None:
    """The same events, and then an exit without a completed turn. codex, 2026-05."""
    stream = say(THREAD, TURN, *reconnecting(4, 5))
    async with bench.supervisor(*stream, ["exit", 1]) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "network"
    assert error.retryable


async def test_a_user_with_a_broken_skill_still_gets_the_answer_and_only_it(bench: Bench) -> None:
    """An item of the type error, a mere warning, was shown as text or as failure. codex, 2026-05."""
    item = {"id": "item_0", "type": "error", "message": "Skipped loading 1 skill(s)"}
    warning = {"type": "item.completed", "item": item}
    async with bench.supervisor(
        *say(THREAD, warning, TURN, said("Fine."), COMPLETED)
    ) as supervisor:
        events = await events_of(supervisor, ask())
    assert [e.code for e in kinds(events, "notice")] == ["warning", "status"]
    assert [event.text for event in kinds(events, "text")] == ["Fine."]
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "Fine."


ENVELOPE = [
    {"id": "0", "msg": {"type": "task_started", "model_context_window": 272000}},
    {"id": "0", "msg": {"type": "agent_message", "message": "The answer."}},
    {"id": "0", "msg": {"type": "task_complete", "last_agent_message": "The answer."}},
]
ITEM_TYPES = [
    {"type": "session.created", "session_id": "s-1"},
    {
        "type": "item.completed",
        "item": {"id": "item_0", "item_type": "assistant_message", "text": "The answer."},
    },
    {"type": "turn.completed", "usage": {"input_tokens": 3, "output_tokens": 2}},
]


@pytest.mark.parametrize("stream", [ENVELOPE, ITEM_TYPES[:2], ITEM_TYPES])
async def test_a_user_of_an_old_codex_is_told_that_its_version_is_not_understood(
    bench: Bench, stream: list[Any]
) -> None:
    """Older dialects of the stream gave an empty success or a bare failure. codex 0.21 and 0.42."""
    async with bench.supervisor(*say(*stream)) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "cli.unsupported_version"
    assert not error.retryable


def of_subagent(text: str) -> dict[str, Any]:
    """A sub-agent's message, with the call id of a recorded one."""
    theirs = next(each for each in lines("claude/d-agent-subagent") if each["type"] == "user")
    return assistant(text, parent_tool_use_id=theirs["parent_tool_use_id"])


async def test_a_chat_shows_no_words_of_a_sub_agent_as_the_answer(bench: Bench) -> None:
    """Lines of a sub-agent stood in the main stream and got into the answer. claude, 2026-08."""
    first, second, last = answer()
    stream = say(first, second, of_subagent("Inner words."), last)
    async with bench.supervisor(*stream, provider="claude") as supervisor:
        events = await events_of(supervisor, question("claude"))
    texts = [(event.text, event.parent is None) for event in events if isinstance(event, Text)]
    assert texts == [(HELLO, True), ("Inner words.", False)]
    assert isinstance(events[-1], Done)
    completion = events[-1].completion
    assert completion.text == HELLO
    assert completion.usage is not None
    assert completion.usage.output == last["usage"]["output_tokens"]


async def test_a_chat_shows_no_words_of_a_sub_agent_for_a_run_that_was_cut(bench: Bench) -> None:
    """The same where no result follows, so that the last message is all there is. claude, 2026-08."""
    stream = say(init(), assistant("Main."), of_subagent("Inner words."))
    async with bench.supervisor(*stream, provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "protocol.truncated"
    assert error.partial is not None
    assert error.partial.text == "Main."


async def test_a_reader_gets_the_last_message_and_not_all_of_them_glued(bench: Bench) -> None:
    """Progress messages were joined with the answer to one text. codex, 2026-07."""
    stream = say(THREAD, TURN, said("I look."), said("I found it."), said("It is 7."), COMPLETED)
    async with bench.supervisor(*stream) as supervisor:
        events = await events_of(supervisor, ask())
    assert [e.text for e in kinds(events, "text")] == ["I look.", "I found it.", "It is 7."]
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "It is 7."


@pytest.mark.parametrize("told_by", ["task_updated", "task_notification", None])
async def test_a_dashboard_run_ends_whichever_event_tells_of_its_background_task(
    bench: Bench, told_by: str | None
) -> None:
    """A reader that waited for one event of two kept the input open for ever. claude, 2026-07."""
    recording = lines("claude/v332-d-agent-normal-end-toolbg")
    begun = next(each for each in recording if each.get("subtype") == "task_started")
    ended = [each for each in recording if told_by and each.get("subtype") == told_by]
    first, *rest = answer()
    steps = (["read"], *say(first, begun, *ended, *rest))
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        with trio.fail_after(BOUND):
            events = await events_of(supervisor, question("claude"))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO
    statuses = [event for event in kinds(events, "notice") if event.code == "status"]
    assert len(statuses) == 1 + len(ended)
    assert not events[-1].completion.exit.ended_by_us


async def test_a_user_of_grok_reads_its_text_and_pays_for_it_once(bench: Bench) -> None:
    """Its events have names of their own, and the counters come twice. grok 1.0.4 and 1.0.41."""
    async with bench.supervisor(recorded("grok/plan-ok-text"), provider="grok") as supervisor:
        events = await events_of(supervisor, question("grok"))
    assert [event.text for event in kinds(events, "reasoning")] == ["Let me see."]
    assert "".join(event.text for event in kinds(events, "text_delta")) == HELLO
    assert kinds(events, "unrecognized") == []
    assert isinstance(events[-1], Done)
    completion = events[-1].completion
    assert completion.text == HELLO
    usage = completion.usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (111, 1000, 27, 20)


async def test_a_user_of_grok_gets_no_answer_before_its_end_event(bench: Bench) -> None:
    """The same stream without the event that ends it, with exit code 0. grok 1.0.4 and 1.0.41."""
    stream = say(*lines("grok/plan-ok-text")[:-1])
    async with bench.supervisor(*stream, ["exit", 0], provider="grok") as supervisor:
        error = await error_of(supervisor, question("grok"))
    assert error.code == "protocol.truncated"
    assert error.partial is not None
    assert error.partial.text == HELLO


# ---- success or failure


@pytest.mark.parametrize("code", [0, 1])
async def test_an_orchestrator_sees_no_success_when_a_403_ends_with_exit_0(
    bench: Bench, code: int
) -> None:
    """A result called success, with is_error true and a 403 after 484 turns, passed. claude 2.1.233."""
    text = "API Error: 403 Request not allowed"
    bad = result(is_error=True, api_error_status=403, num_turns=484, result=text)
    stream = say(init(), assistant("So far."), bad)
    async with bench.supervisor(*stream, ["exit", code], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert (error.code, error.failure.status) == ("auth.expired", 403)
    assert "success" not in str(error)
    assert error.partial is not None
    assert error.partial.text == "So far."


async def test_a_nightly_job_raises_no_alarm_for_exit_1_after_a_good_result(bench: Bench) -> None:
    """A tool server that needed a login made the CLI exit with 1 after its answer. claude, 2026-05."""
    async with bench.supervisor(*say(*answer()), ["exit", 1], provider="claude") as supervisor:
        completion = await supervisor.run(question("claude"))
    assert completion.text == HELLO
    assert completion.exit.code == 1
    assert [warning.code for warning in completion.warnings] == ["process.exit"]


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("text", ["As far as I got.", None])
async def test_a_reviewer_keeps_the_text_of_a_run_that_used_up_its_turns(
    bench: Bench, is_error: bool, text: str | None
) -> None:
    """The turn limit was read as success, or as failure without the text. claude, 2026-01 and
    2026-06."""
    last = lines("claude/d-agent-max-turns")[-1]
    spoken = [] if text is None else [assistant(text)]
    stream = say(init(), *spoken, {**last, "is_error": is_error})
    async with bench.supervisor(*stream, ["exit", 1], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "answer.max_turns"
    assert error.partial is not None
    assert error.partial.text == (text or "")
    assert error.partial.usage is not None
    assert error.partial.usage.output == last["usage"]["output_tokens"]


async def test_a_batch_run_without_a_single_turn_is_no_success(bench: Bench) -> None:
    """Zero turns and an empty text were called success, with exit code 0. claude 2.1.233."""
    stream = say(init(), result(num_turns=0, result=""))
    async with bench.supervisor(*stream, ["exit", 0], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "protocol.empty"
    assert error.retryable


async def test_an_operator_learns_that_the_kernel_killed_the_cli(bench: Bench) -> None:
    """A death by signal left no exit code, which was read as none at all. claude, 2026."""
    async with bench.supervisor(*say(init()), ["kill", "SIGKILL"], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "process.signal"
    assert error.partial is not None
    assert error.partial.exit is not None
    assert (error.partial.exit.code, error.partial.exit.signal) == (None, 9)
    assert not error.partial.exit.ended_by_us


async def test_an_operator_can_tell_our_own_kill_from_the_kernels(bench: Bench) -> None:
    """The same death, where the supervisor's own time limit was the cause. claude, 2026."""
    steps = (["ignore", "SIGTERM"], *say(init()), ["hang"])
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        with trio.fail_after(BOUND):
            timeouts = Timeouts(total=0.5, grace=0.2)
            error = await error_of(supervisor, question("claude", timeouts=timeouts))
    assert error.code == "timeout.total"
    assert error.partial is not None
    assert error.partial.exit is not None
    assert (error.partial.exit.signal, error.partial.exit.ended_by_us) == (9, True)


async def test_a_support_desk_reads_the_cause_and_not_the_last_line_of_stderr(bench: Bench) -> None:
    """The cause stood in turn.failed, and a stray line on stderr was reported. codex, 2026-04."""
    stray = "Reading additional input from stdin...\nERROR rmcp: login is required by a tool server"
    steps = (recorded("codex/e07-429-usage-limit-reached"), ["stderr", stray], ["exit", 1])
    async with bench.supervisor(*steps) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "limit.usage"
    assert error.resets_at is not None


async def test_a_support_desk_reads_stderr_where_nothing_else_tells_the_cause(bench: Bench) -> None:
    """The same line, where the stream holds nothing more specific. codex, 2026-04."""
    steps = (["stderr", "Error: Not logged in"], ["exit", 1])
    async with bench.supervisor(*steps) as supervisor:
        assert (await error_of(supervisor, ask())).code == "auth.required"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("max_tokens", "answer.max_tokens"),
        ("refusal", "model.refused"),
        ("something_new", "protocol.truncated"),
        (None, "protocol.truncated"),
    ],
)
async def test_a_code_generator_does_not_take_a_cut_answer_for_a_whole_one(
    bench: Bench, reason: str | None, code: str
) -> None:
    """Answers that were cut, refused or cancelled came with exit code 0. claude's form of it,
    2026-08."""
    async with bench.supervisor(
        *say(*answer("def f(", stop_reason=reason)), ["exit", 0], provider="claude"
    ) as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == code
    assert error.partial is not None
    assert error.partial.text == "def f("


async def test_a_code_generator_is_told_when_codex_cut_the_answer(bench: Bench) -> None:
    """The same with an incomplete response. codex 0.171.0."""
    async with bench.supervisor(recorded("codex/a15-incomplete-max-tokens")) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "answer.max_tokens"
    assert error.partial is not None
    assert error.partial.text == "part"


async def test_a_phone_app_is_not_fooled_by_a_wrapper_that_eats_the_exit_code(bench: Bench) -> None:
    """A wrapper turned 1 into 0, and a limit passed for an answer. claude, 2026-01."""
    stream = say(*signed_in("claude/e-429-usage-limit-oauth"))
    async with bench.supervisor(*stream, ["exit", 0], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "limit.usage"
    assert error.partial is not None
    assert error.partial.exit is not None
    assert error.partial.exit.code == 0


async def test_a_phone_app_takes_no_bare_text_for_an_answer(bench: Bench) -> None:
    """The same wrapper in text mode: one sentence on a limit and exit code 0. claude, 2026-01."""
    steps = (["print", "Claude AI usage limit reached|1796070000"], ["exit", 0])
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "protocol.no_result"
    assert error.partial is not None
    assert error.partial.text == ""


async def test_a_watcher_of_codex_sees_no_success_when_its_native_half_was_killed(
    bench: Bench,
) -> None:
    """A launcher that exits with 0 after its child was killed leaves a turn without an end. codex."""
    async with bench.supervisor(*say(THREAD, TURN), ["exit", 0]) as supervisor:
        assert (await error_of(supervisor, ask())).code == "protocol.truncated"


async def test_a_retry_loop_gets_the_servers_word_and_not_a_general_one(bench: Bench) -> None:
    """A general message covered the cause that the stream had told before. codex, 2026-03."""
    cause = "The model is at capacity. Try another one."
    async with bench.supervisor(*say(*turn_failed(cause)), ["exit", 1]) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "provider.overloaded"
    assert error.retryable


async def test_a_script_is_given_codex_text_only_by_a_completed_turn(bench: Bench) -> None:
    """A last message without the turn's end is no answer, whatever the exit code. codex."""
    async with bench.supervisor(*say(*turn()[:-1]), ["exit", 0]) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "protocol.truncated"
    assert error.partial is not None
    assert error.partial.text == HELLO


async def test_a_ci_job_with_gemini_sees_no_success_in_an_error_with_exit_0(bench: Bench) -> None:
    """An error of the API on stderr, an empty stdout and exit code 0. gemini 0.1.20."""
    text = "[API Error: got status: 429 RESOURCE_EXHAUSTED]"
    steps = (["stderr", text], ["exit", 0])
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        error = await error_of(supervisor, question("gemini"))
    assert error.code == "protocol.no_result"
    assert error.partial is not None
    assert error.partial.exit is not None
    assert error.partial.exit.code == 0


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("gemini/a-stop-max-tokens-empty", "answer.max_tokens"),
        ("gemini/a-stop-safety-empty", "model.refused"),
        ("gemini/c-loop-detected", "protocol.truncated"),
    ],
)
async def test_a_code_generator_with_gemini_does_not_take_a_cut_answer_for_a_whole_one(
    bench: Bench, case: str, code: str
) -> None:
    """Cut, blocked and stopped answers come with exit code 0. gemini 0.61.0."""
    steps = (recorded(case), ["exit", 0])
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        assert (await error_of(supervisor, question("gemini"))).code == code


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("max_tokens", "answer.max_tokens"),
        ("refusal", "model.refused"),
        ("cancelled", "protocol.truncated"),
        ("something_new", "protocol.truncated"),
    ],
)
async def test_a_code_generator_with_grok_does_not_take_a_cut_answer_for_a_whole_one(
    bench: Bench, reason: str, code: str
) -> None:
    """Cut, refused and cancelled answers ended like good ones, with exit code 0. grok, 2026-08."""
    *start, end = lines("grok/plan-ok-text")
    stream = say(*start, {**end, "stopReason": reason})
    async with bench.supervisor(*stream, ["exit", 0], provider="grok") as supervisor:
        error = await error_of(supervisor, question("grok"))
    assert error.code == code
    assert error.partial is not None
    assert error.partial.text == HELLO
