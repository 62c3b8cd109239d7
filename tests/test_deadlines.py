from __future__ import annotations

import math

from supervisor import Timeouts
from supervisor.model.errors import failure
from supervisor.model.events import ErrorReported
from supervisor.protocol.deadlines import AFTER_FINAL_ERROR, Deadlines

TIMEOUTS = Timeouts(start=10, idle=20, total=100, linger=5)


def deadlines(timeouts: Timeouts = TIMEOUTS, *, silent: bool = False) -> Deadlines:
    return Deadlines(timeouts, silent_while_thinking=silent)


def test_the_start_limit_runs_until_the_first_byte() -> None:
    limits = deadlines()
    limits.waited(4)
    assert limits.next() == (6, "timeout.start")
    limits.first_byte()
    assert limits.next() == (16, "timeout.idle")


def test_progress_starts_the_idle_limit_anew() -> None:
    limits = deadlines()
    limits.first_byte()
    limits.waited(15)
    limits.progress()
    limits.waited(15)
    assert limits.next() == (5, "timeout.idle")
    limits.waited(6)
    assert limits.next() == (0, "timeout.idle")


def test_a_cli_that_is_silent_while_it_thinks_has_no_idle_limit() -> None:
    limits = deadlines(silent=True)
    limits.first_byte()
    limits.waited(99)
    assert limits.next() == (1, "timeout.total")


def test_the_total_limit_counts_every_wait() -> None:
    limits = deadlines()
    limits.first_byte()
    for _ in range(9):
        limits.waited(10)
        limits.progress()
    assert limits.next() == (10, "timeout.total")


def test_the_linger_limit_takes_over_from_idle_and_stops_for_a_new_turn() -> None:
    limits = deadlines()
    limits.first_byte()
    limits.turn_ended()
    limits.waited(2)
    assert limits.next() == (3, "linger")
    limits.turn_resumed()
    assert limits.next() == (18, "timeout.idle")
    limits.turn_ended()
    assert limits.next() == (5, "linger")


def test_none_means_no_limit() -> None:
    limits = deadlines(Timeouts(start=None, idle=None, total=None))
    limits.waited(1e9)
    assert limits.next()[0] == math.inf
    limits.first_byte()
    assert limits.next()[0] == math.inf


def test_an_open_tool_call_has_its_own_limit() -> None:
    """A watchdog that took a long test run for a hang killed healthy work."""
    limits = deadlines(Timeouts(idle=10, tool=60, total=1000))
    limits.first_byte()
    limits.tool_started("a")
    limits.waited(30)
    limits.tool_started("b")
    assert limits.next() == (30, "timeout.tool")
    limits.tool_finished("a")
    assert limits.next() == (60, "timeout.tool")
    limits.tool_finished("b")
    limits.tool_finished("never started")
    limits.progress()
    assert limits.next() == (10, "timeout.idle")


def test_a_turn_that_ended_has_no_open_tool() -> None:
    limits = deadlines()
    limits.first_byte()
    limits.tool_started("a")
    limits.turn_ended()
    limits.turn_resumed()
    assert limits.next() == (20, "timeout.idle")


def test_silence_after_an_error_that_no_repeat_mends_is_short() -> None:
    """codex reported a used-up plan as something it would retry, and was silent for hours."""
    limits = deadlines(Timeouts(idle=240, total=600), silent=True)
    limits.first_byte()
    limits.take(ErrorReported(failure=failure("network")))
    assert limits.next() == (600, "timeout.total")
    limits.take(ErrorReported(failure=failure("limit.usage")))
    limits.waited(10)
    assert limits.next() == (AFTER_FINAL_ERROR - 10, "timeout.idle")
    limits.progress()
    assert limits.next() == (590, "timeout.total")
