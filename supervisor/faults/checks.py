"""The checks: each starts scripted CLIs with one fault and says what the supervisor must make of it.

They are grouped as the troubles that people meet: the input, the bytes, the end of a run, its time, its
processes, the caller.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from supervisor.faults.bench import BOUND, HASTY, all_gone, appears, outcome_of, require
from supervisor.model.errors import ClosedError, RequestError
from supervisor.model.request import Limits, Timeouts

if TYPE_CHECKING:
    from supervisor.faults.bench import Workbench
    from supervisor.faults.stream import Step

Work = Callable[["Workbench"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One fault and what must come of it.

    Attributes:
        name: short, in the words of the trouble.
        work: does it; raises CheckError.
        proven_only: it holds only where the kernel confirms that nothing is left.
        other_program: it starts a supervisor of its own, which knows this package's adapters only.
    """

    name: str
    work: Work
    proven_only: bool = False
    other_program: bool = False


CHECKS: list[Check] = []
"""All checks, in the order in which they are shown."""

HANG: Step = ["hang"]
READ: Step = ["read"]


def check(
    name: str, *, proven_only: bool = False, other_program: bool = False
) -> Callable[[Work], Work]:
    """Enter a function into the list."""

    def enter(work: Work) -> Work:
        CHECKS.append(Check(name, work, proven_only, other_program))
        return work

    return enter


# ---- the input


@check("a 200 kB prompt arrives whole")
async def large_prompt(bench: Workbench) -> None:
    prompt = "-é😀\r\n" + "x" * 200_000
    saved = bench.path("saved")
    outcome = await bench.run(["save_input", saved], *bench.stream.whole(), prompt=prompt)
    outcome.good()
    with open(saved, "rb") as stream:  # noqa: ASYNC230 -- a small local file
        arrived = stream.read()
    # A CLI that takes JSON gets it escaped.
    forms = (prompt, json.dumps(prompt, ensure_ascii=False)[1:-1], json.dumps(prompt)[1:-1])
    require(any(form.encode() in arrived for form in forms), "the prompt arrived changed")


@check("the input is closed, so a CLI that reads it to the end goes on")
async def closed_input(bench: Workbench) -> None:
    (await bench.run(READ, *bench.stream.whole())).good()


@check("a CLI that never reads a 1 MB prompt is judged by its own word")
async def unread_input(bench: Workbench) -> None:
    (await bench.run(*bench.stream.whole(), prompt="x" * (1 << 20))).good()


@check("a prompt that is no text is refused before the start")
async def broken_prompt(bench: Workbench) -> None:
    async with bench.supervisor(*bench.stream.whole()) as supervisor:
        for prompt in ("a\0b", "a\ud800", ""):
            try:
                await supervisor.run(bench.ask(prompt))
            except RequestError as error:
                require(error.code == "request.invalid", f"the error is {error.code}")
            else:
                require(False, "the prompt was sent")
    require(not bench.ledger.exists(), "the CLI was started")


@check("none of 12 planted variables reaches the CLI")
async def planted_variables(bench: Workbench) -> None:
    planted = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"),
        *("CODEX_API_KEY", "XAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "CLAUDECODE"),
    )
    seen = bench.path("seen")
    environ = {"PATH": os.defpath, "HOME": bench.path("home"), **dict.fromkeys(planted, "planted")}
    steps = (["environment", seen], *bench.stream.whole())
    async with bench.supervisor(*steps, environ=environ) as supervisor:
        (await outcome_of(supervisor, bench.ask())).good()
    with open(seen) as stream:  # noqa: ASYNC230 -- a small local file
        pairs = [line.rstrip("\n").partition("=") for line in stream]
    names = {name for name, _, value in pairs if value == "planted"}
    # An adapter may set one of these empty, and a CLI that knows only keys is given one by name.
    found = sorted(names & set(planted))
    require(not found, f"these did: {', '.join(found)}")


# ---- the bytes


@check("a line of 1 MB and one of 9 MB pass")
async def long_lines(bench: Workbench) -> None:
    steps = (["filler", 1 << 20], ["filler", 9 << 20], *bench.stream.whole())
    outcome = await bench.run(*steps)
    completion = outcome.good()
    require(completion.cleanup.dropped_bytes == 0, "a line was dropped")


@check("a line over the limit is dropped and the rest goes on")
async def too_long_line(bench: Workbench) -> None:
    limits = Limits(answer=1 << 20, line=3 << 20)
    outcome = await bench.run(["filler", 4 << 20], *bench.stream.whole(), limits=limits)
    require(outcome.good().cleanup.dropped_bytes == 4 << 20, "the drop is not counted")


@check("a line without end is stopped in bounded memory")
async def endless_line(bench: Workbench) -> None:
    limits = Limits(answer=1 << 20, line=3 << 20, stdout=64 << 20)
    (await bench.run(["endless_line"], limits=limits)).bad("output.stdout", "output.line")


@check("output without end is stopped")
async def endless_output(bench: Workbench) -> None:
    outcome = await bench.run(["flood", bench.stream.status], limits=Limits(stdout=1 << 20))
    outcome.bad("output.stdout")


@check("400 kB on standard error block nothing")
async def much_on_stderr(bench: Workbench) -> None:
    (await bench.run(["stderr_filler", 400_000], *bench.stream.whole())).good()


@check("a byte that is no UTF-8 is replaced")
async def broken_utf8(bench: Workbench) -> None:
    lines = [*bench.stream.message("a?b"), *bench.stream.ending("a?b")]
    raw = [["write", (step[1].encode() + b"\n").replace(b"a?b", b"a\xb2b").hex()] for step in lines]
    (await bench.run(*bench.stream.opening(), *raw)).good("a\ufffdb")


@check("a character split over three writes stays whole")
async def split_character(bench: Workbench) -> None:
    whole = b"".join(step[1].encode() + b"\n" for step in bench.stream.whole("日本"))
    cut = whole.index("日".encode())
    parts = [whole[:cut], *(whole[cut + i : cut + i + 1] for i in range(3)), whole[cut + 3 :]]
    (await bench.run(*[["write", part.hex()] for part in parts])).good("日本")


@check("noise between the events is passed over")
async def noise(bench: Workbench) -> None:
    noisy: list[Step] = [["print", line] for line in ("npm notice", "null", "42", "{not json}")]
    (await bench.run(*noisy, *bench.stream.whole(), ["print", "bye"])).good()


@check("an event that nobody knows is passed over")
async def unknown_event(bench: Workbench) -> None:
    (await bench.run(["print", '{"type":"never_seen"}'], *bench.stream.whole())).good()


@check("half a line after the result changes nothing")
async def half_line(bench: Workbench) -> None:
    (await bench.run(*bench.stream.whole(), ["write", b'{"type":"sys'.hex()])).good()


@check("a result that another writer cut in two is no answer")
async def garbled_result(bench: Workbench) -> None:
    result = bench.stream.ending("The answer.")[0][1].encode()
    half = len(result) // 2
    garbled: Step = ["write", (result[:half] + b'"[log line]"' + result[half:] + b"\n").hex()]
    steps = (*bench.stream.opening(), *bench.stream.message("The answer."), garbled)
    (await bench.run(*steps)).bad("protocol.truncated")


@check("300 kB written at once before the exit are all read by a slow reader")
async def late_reader(bench: Workbench) -> None:
    gone = bench.path("gone")
    many: Step = ["repeat", 40, bench.stream.status + " " * 8000]
    steps = (*bench.stream.opening(), many, *bench.stream.whole(), ["touch", gone])
    async with bench.supervisor(*steps) as supervisor, supervisor.stream(bench.ask()) as run:
        await run.__anext__()
        with trio.move_on_after(
            0.3
        ):  # it cannot end before we read, so there is no sign to wait for
            await appears(gone)
        async for _ in run:
            pass
    require(run.completion.text == "The answer.", "the tail was lost")


# ---- the end of a run


@check("exit code 1 after a good result is a warning")
async def odd_exit(bench: Workbench) -> None:
    completion = (await bench.run(*bench.stream.whole(), ["exit", 1])).good()
    require([w.code for w in completion.warnings] == ["process.exit"], "there is no warning")


@check("exit code 0 without a terminal event is no success")
async def no_terminal_event(bench: Workbench) -> None:
    steps = (*bench.stream.opening(), *bench.stream.message("Half an answer."))
    partial = (await bench.run(*steps)).bad("protocol.truncated")
    require(partial.text == "Half an answer.", "the text so far is lost")


@check("exit code 0 with no output is no success")
async def no_output(bench: Workbench) -> None:
    (await bench.run(READ)).bad("protocol.no_result")


@check("a good end without an answer is no success")
async def empty_answer(bench: Workbench) -> None:
    steps = (*bench.stream.opening(), *bench.stream.ending(""))
    (await bench.run(*steps)).bad("protocol.empty")


@check("all text on standard error is no success")
async def text_on_stderr(bench: Workbench) -> None:
    (await bench.run(["stderr", "The answer."])).bad("protocol.no_result")


@check("death by a signal is named")
async def killed_from_outside(bench: Workbench) -> None:
    partial = (await bench.run(*bench.stream.opening(), ["kill", "SIGKILL"])).bad("process.signal")
    require(
        partial.exit is not None and partial.exit.signal == signal.SIGKILL, "the signal is lost"
    )


@check("a CLI that stays after its answer is ended, and the answer counts")
async def lingering(bench: Workbench) -> None:
    polite = [["ignore", name] for name in ("SIGTERM", "SIGINT")]
    (await bench.run(*polite, *bench.stream.whole(), HANG)).good()


@check("a CLI that closes its output and stays is ended")
async def closed_output(bench: Workbench) -> None:
    (await bench.run(*bench.stream.whole(), ["close_stdout"], HANG)).good()


# ---- time


@check("silence from the start ends in a typed timeout")
async def silent_start(bench: Workbench) -> None:
    outcome = await bench.run(HANG, timeouts=Timeouts(start=0.3, grace=0.2))
    outcome.bad("timeout.start")


@check("silence in mid-run ends in a typed timeout that keeps the text")
async def silent_middle(bench: Workbench) -> None:
    timeouts = Timeouts(idle=0.4, total=0.8, grace=0.2)
    steps = (*bench.stream.opening(), *bench.stream.message("So far."), HANG)
    outcome = await bench.run(*steps, timeouts=timeouts)
    require(outcome.bad("timeout.idle", "timeout.total").text == "So far.", "the text is lost")
    require(outcome.error is not None and outcome.error.retryable, "it is not called retryable")


@check("status lines for ever are no progress")
async def only_status(bench: Workbench) -> None:
    timeouts = Timeouts(idle=0.4, total=0.8, grace=0.2)
    steps = (*bench.stream.opening(), ["flood", bench.stream.status])
    (await bench.run(*steps, timeouts=timeouts)).bad("timeout.idle", "timeout.total")


@check("the limit is kept while a descendant holds the pipes")
async def held_limit(bench: Workbench) -> None:
    timeouts = Timeouts(total=0.5, grace=0.2, drain=0.2)
    began = trio.current_time()
    steps: list[Step] = [["ignore", "SIGTERM"], ["ignore", "SIGINT"], ["child", "session", "hold"]]
    outcome = await bench.run(*steps, *bench.stream.opening(), HANG, timeouts=timeouts)
    outcome.bad("timeout.total")
    require(trio.current_time() - began < BOUND / 2, "the run took far longer than its limit")


# ---- processes


@check("a descendant that holds the pipes does not hold the run")
async def pipe_holder(bench: Workbench) -> None:
    (await bench.run(["child", "session", "hold"], *bench.stream.whole())).good()


@check("a background process of the group does not survive a good run")
async def same_group(bench: Workbench) -> None:
    (await bench.run(["child", "same", "closed"], *bench.stream.whole())).good()


@check("a background process in its own session does not survive a good run")
async def own_session(bench: Workbench) -> None:
    (await bench.run(["child", "session", "closed"], *bench.stream.whole())).good()


@check("a daemon does not survive a good run")
async def daemon(bench: Workbench) -> None:
    (await bench.run(["child", "daemon", "closed"], *bench.stream.whole())).good()


@check("a daemon with an empty environment does not survive a good run", proven_only=True)
async def naked_daemon(bench: Workbench) -> None:
    (await bench.run(["child", "naked", "closed"], *bench.stream.whole())).good()


async def _cancelled(bench: Workbench, *steps: Step) -> None:
    async with bench.supervisor(*steps, *bench.stream.opening(), HANG) as supervisor:
        with trio.CancelScope() as scope:
            async with supervisor.stream(bench.ask()) as run:
                await run.__anext__()
                scope.cancel()
                await trio.lowlevel.checkpoint()
        bench.require_clean()
    require(scope.cancelled_caught, "the cancellation was swallowed")


@check("a cancel reaches a process of the group")
async def cancel_group(bench: Workbench) -> None:
    await _cancelled(bench, ["child", "same", "hold"])


@check("a cancel reaches a process in its own session")
async def cancel_session(bench: Workbench) -> None:
    await _cancelled(bench, ["child", "session", "hold"])


@check("a cancel reaches a daemon with an empty environment", proven_only=True)
async def cancel_naked(bench: Workbench) -> None:
    await _cancelled(bench, ["child", "naked", "closed"])


@check("a CLI that ignores the polite signals is ended all the same")
async def ignored_signals(bench: Workbench) -> None:
    await _cancelled(bench, ["ignore", "SIGTERM"], ["ignore", "SIGINT"])


@check("a wrapper that passes no signal on does not save its child")
async def wrapper(bench: Workbench) -> None:
    inner = bench.program(*bench.stream.opening(), HANG)
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in inner)
    async with bench.over(("/bin/sh", "-c", f"{quoted}; exit 0")) as supervisor:
        outcome = await outcome_of(supervisor, bench.ask(timeouts=Timeouts(total=0.5, grace=0.2)))
    outcome.bad("timeout.total")


@check("an orphan that ends at once is not waited for")
async def orphan(bench: Workbench) -> None:
    (await bench.run(["orphan"], *bench.stream.whole())).good()


@check("nothing lives on when the supervisor is killed", proven_only=True, other_program=True)
async def killed_supervisor(bench: Workbench) -> None:
    ready = bench.path("ready")
    children: list[Step] = [["child", "session", "hold"], ["child", "naked", "closed"]]
    steps = (*children, *bench.stream.opening(), ["touch", ready], HANG)
    mode = bench.options.get("containment", "auto")
    variables = json.dumps(dict(bench.stream.variables))
    place = bench.path("state")
    arguments = (bench.stream.provider, place, mode, variables, *bench.program(*steps))
    command = (sys.executable, "-m", "supervisor.faults.host", *arguments)
    host = await trio.lowlevel.open_process(command)
    try:
        await appears(ready)
    finally:
        host.kill()
        await host.wait()
    await all_gone(bench, 2.0)
    async with bench.supervisor(*bench.stream.whole()) as supervisor:  # removes the directory
        (await outcome_of(supervisor, bench.ask())).good()


# ---- the caller


@check("a caller that stops reading after the first event leaves nothing")
async def early_break(bench: Workbench) -> None:
    many: Step = ["repeat", 10_000, bench.stream.status]
    async with bench.supervisor(*bench.stream.opening(), many, HANG) as supervisor:
        async with supervisor.stream(bench.ask()) as run:
            async for _ in run:
                break
        bench.require_clean()


@check("close() from another task ends the stream with an error")
async def close_elsewhere(bench: Workbench) -> None:
    codes: list[str] = []
    reading = trio.Event()

    async def read() -> None:
        async with supervisor.stream(bench.ask()) as run:
            async for event in run:
                reading.set()
                if event.kind == "failed":
                    codes.append(event.error.code)

    supervisor = bench.supervisor(*bench.stream.opening(), HANG)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await reading.wait()
        await supervisor.close()
        bench.require_clean()
    require(codes == ["supervisor.closed"], f"the stream ended in {codes}")
    try:
        await supervisor.run(bench.ask())
    except ClosedError:
        return
    require(False, "a closed supervisor started a run")


@check("a poisoned run does not spoil the next one")
async def next_run(bench: Workbench) -> None:
    limits = Limits(answer=1 << 20, line=3 << 20)
    async with bench.supervisor(["filler", 4 << 20], ["write", "ff00"]) as supervisor:
        for _ in range(2):
            outcome = await outcome_of(supervisor, bench.ask(limits=limits))
            outcome.bad("output.line")
    (await bench.run(*bench.stream.whole())).good()


@check("ten runs at once do not disturb each other")
async def ten_at_once(bench: Workbench) -> None:
    steps: list[Step] = [["child", "session", "hold"], *bench.stream.whole()]
    async with bench.supervisor(*steps) as supervisor:

        async def one() -> None:
            (await outcome_of(supervisor, bench.ask(timeouts=HASTY))).good()

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
