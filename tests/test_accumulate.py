"""The verdict: what counts as a good end, and which cause is named for a bad one."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor import (
    Exit,
    Limits,
    Reasoning,
    Started,
    Text,
    TextDelta,
    ToolStarted,
    Usage,
    UsageReported,
)
from supervisor.model.errors import failure
from supervisor.model.events import ErrorReported, Record, TurnEnded
from supervisor.protocol.accumulate import Accumulator, End, Verdict
from tests.fakes import ask

EXIT_0 = Exit(code=0, signal=None, ended_by_us=False)
EXIT_1 = Exit(code=1, signal=None, ended_by_us=False)
KILLED = Exit(code=None, signal=9, ended_by_us=False)
ENDED = Exit(code=None, signal=15, ended_by_us=True)
STARTED = Started()
TEXT = Text(text="yes")
GOOD = TurnEnded(failure=None)
BAD = TurnEnded(failure=failure("limit.usage"))
RETRY = ErrorReported(failure=failure("network"))
IDLE = failure("timeout.idle")
SIGN_IN = failure("auth.required")


def verdict(*records: Record, end: End, **given: Any) -> Verdict:
    accumulator = Accumulator(ask(**given), optional_as_null=False)
    for record in records:
        accumulator.take(record)
    return accumulator.settle(end)


@pytest.mark.parametrize(
    ("records", "end", "code"),
    [
        ((STARTED, TEXT, GOOD), End(exit=EXIT_0), None),
        ((TEXT, GOOD), End(exit=EXIT_1), None),
        ((TEXT, GOOD), End(exit=ENDED), None),
        ((STARTED, TEXT, GOOD), End(exit=EXIT_0, diagnosis=SIGN_IN), None),
        ((STARTED, TEXT), End(exit=EXIT_0), "protocol.truncated"),
        ((TEXT,), End(exit=EXIT_1), "protocol.truncated"),
        ((STARTED, GOOD), End(exit=EXIT_0), "protocol.empty"),
        ((Text(text=" \n"), GOOD), End(exit=EXIT_0), "protocol.empty"),
        ((TEXT, BAD), End(exit=EXIT_0), "limit.usage"),
        ((TEXT, BAD), End(exit=ENDED, cause=IDLE), "limit.usage"),
        ((TEXT, BAD, TEXT, GOOD), End(exit=EXIT_0), None),
        ((TEXT, GOOD, BAD), End(exit=EXIT_0), "limit.usage"),
        ((STARTED, RETRY), End(exit=ENDED, cause=IDLE), "network"),
        ((STARTED, RETRY), End(exit=EXIT_1, diagnosis=SIGN_IN), "network"),
        ((STARTED, RETRY, TEXT), End(exit=ENDED, cause=IDLE), "timeout.idle"),
        ((STARTED, RETRY, TEXT, GOOD), End(exit=EXIT_0), None),
        ((), End(exit=ENDED, cause=failure("timeout.start")), "timeout.start"),
        ((), End(exit=EXIT_1, diagnosis=SIGN_IN), "auth.required"),
        ((), End(exit=EXIT_1), "process.exit"),
        ((), End(exit=EXIT_0), "protocol.no_result"),
        ((), End(exit=EXIT_0, dropped=1), "output.line"),
        ((STARTED,), End(exit=KILLED), "process.signal"),
        ((TEXT, GOOD), End(exit=EXIT_0, cause=failure("supervisor.closed")), "supervisor.closed"),
        ((STARTED, ToolStarted(id="1", name="Bash")), End(exit=ENDED), "policy.tool_used"),
    ],
)
def test_the_first_specific_cause_wins(
    records: tuple[Record, ...], end: End, code: str | None
) -> None:
    found = verdict(*records, end=end).failure
    assert (None if found is None else found.code) == code


def test_an_odd_exit_after_a_good_answer_is_a_warning() -> None:
    assert [w.code for w in verdict(TEXT, GOOD, end=End(exit=EXIT_1)).warnings] == ["process.exit"]
    assert verdict(TEXT, GOOD, end=End(exit=EXIT_0)).warnings == ()


def test_a_limit_that_fires_after_a_known_error_is_a_warning() -> None:
    found = verdict(STARTED, RETRY, end=End(exit=ENDED, cause=IDLE))
    assert [w.code for w in found.warnings] == ["timeout.idle"]


def test_the_answer_is_the_last_message_and_the_turns_own_text_comes_first() -> None:
    last = Text(text="last")
    assert verdict(TEXT, last, GOOD, end=End(exit=EXIT_0)).text == "last"
    named = TurnEnded(failure=None, text="named")
    assert verdict(TEXT, last, named, end=End(exit=EXIT_0)).text == "named"


def test_a_sub_agents_text_is_not_the_answer() -> None:
    inner = Text(text="inner", parent="tool-1")
    assert verdict(TEXT, inner, GOOD, end=End(exit=EXIT_0)).text == "yes"


def test_pieces_are_not_the_answer_but_are_kept_for_a_failed_run() -> None:
    pieces = (TextDelta(text="ye"), TextDelta(text="s, an"))
    assert verdict(*pieces, end=End(exit=EXIT_0)).text == "yes, an"
    repeated = (*pieces, TextDelta(text="yes"), TEXT, GOOD)
    assert verdict(*repeated, end=End(exit=EXIT_0)).text == "yes"


def test_the_last_reported_usage_counts() -> None:
    accumulator = Accumulator(ask(), optional_as_null=False)
    accumulator.take(UsageReported(usage=Usage(input=1)))
    accumulator.take(TurnEnded(failure=None, usage=Usage(input=2)))
    assert accumulator.usage == Usage(input=2)


@pytest.mark.parametrize(
    "record", [Text(text="é" * 600), TurnEnded(failure=None, text="é" * 600)], ids=["text", "turn"]
)
def test_an_answer_over_its_limit_is_refused(record: Record) -> None:
    accumulator = Accumulator(ask(limits=Limits(answer=1000)), optional_as_null=False)
    accumulator.take(record)
    assert accumulator.violation is not None
    assert accumulator.violation.code == "output.answer"
    fits = Accumulator(ask(limits=Limits(answer=1200)), optional_as_null=False)
    fits.take(record)
    assert fits.violation is None


def test_pieces_over_the_limit_are_refused_before_the_message_is_whole() -> None:
    accumulator = Accumulator(ask(limits=Limits(answer=1000)), optional_as_null=False)
    for _ in range(11):
        accumulator.take(TextDelta(text="x" * 100))
    assert accumulator.violation is not None


@pytest.mark.parametrize(
    ("billing", "credential", "code"),
    [
        ("subscription", "api_key", "auth.api_key_in_use"),
        ("subscription", "login", None),
        ("subscription", None, None),
        ("api_key", "login", "auth.required"),
        ("api_key", "api_key", None),
        ("any", "api_key", None),
        ("any", "login", None),
    ],
)
def test_who_pays_is_checked_at_the_start(billing: Any, credential: Any, code: str | None) -> None:
    accumulator = Accumulator(ask(billing=billing), optional_as_null=False)
    accumulator.take(Started(credential=credential, evidence="said so"))
    found = accumulator.violation
    assert (None if found is None else found.code) == code


def test_reasoning_and_usage_are_handed_on_and_the_turns_end_is_not() -> None:
    accumulator = Accumulator(ask(), optional_as_null=False)
    thought = Reasoning(text="hm")
    assert accumulator.take(thought) is thought
    assert accumulator.take(GOOD) is None
    assert accumulator.take(RETRY) is None
    assert Usage(input=1, cache_read=2, cache_write=3).total_input == 6
    assert Usage(input=1, cache_read=2).total_input is None
