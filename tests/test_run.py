"""Runs of scripted CLIs as real subprocesses: how they start, stream, fail and end."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor import (
    CliError,
    Done,
    Failed,
    Limits,
    RequestError,
    Supervisor,
    SupervisorError,
    Text,
    Timeouts,
)
from tests.fakes import (
    COMPLETED,
    GOOD,
    STARTED,
    STATUS,
    ask,
    error_of,
    events_of,
    fake,
    message,
    recorded,
)
from tests.test_environment import NEEDED, PLANTED
from tests.test_schema import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes import Bench

BOUND = 20.0
"""Seconds that no run of these takes unless something hangs."""

HASTY = Timeouts(start=5, idle=5, total=5, linger=0.2, grace=0.2, drain=0.2)


async def appears(path: Path) -> None:
    """Wait for a sign that a child gives."""
    with trio.fail_after(BOUND):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 -- no event crosses a process
            await trio.sleep(0.01)


# ---- a good run


async def test_one_request_in_one_completion_out(bench: Bench) -> None:
    async with bench.supervisor(["read"], GOOD) as supervisor:
        completion = await supervisor.run(ask(metadata={"id": 7}, effort="low"))
    assert completion.text == "second message"
    assert completion.data is None
    assert completion.provider == "codex"
    assert completion.effort == "low"
    assert completion.metadata == {"id": 7}
    assert completion.exit.code == 0
    assert completion.billing.payer == "unknown"
    assert completion.usage is not None
    assert completion.usage.total_input == 1200
    assert completion.warnings == ()
    assert completion.cleanup.leftovers == ()
    assert completion.cleanup.killed == ()
    assert completion.cleanup.proven == (completion.cleanup.mode != "group")
    assert 0 < completion.latency.spawn <= completion.latency.total
    assert "exec" in completion.argv


async def test_the_stream_ends_in_exactly_one_terminal_event(bench: Bench) -> None:
    async with bench.supervisor(GOOD) as supervisor, supervisor.stream(ask()) as run:
        with pytest.raises(RuntimeError):
            _ = run.completion
        events = [event async for event in run]
        assert [event.kind for event in events] == [
            *("started", "notice", "reasoning", "text", "text", "usage", "done")
        ]
        assert bench.homes() == [], "the files are gone before the terminal event is handed out"
        with pytest.raises(StopAsyncIteration):
            await run.__anext__()
        last = events[-1]
        assert isinstance(last, Done)
        assert run.completion is last.completion


async def test_a_schema_gives_an_instance_of_its_model(bench: Bench) -> None:
    answer = message('{"answer":"yes","confidence":0.5}')
    async with bench.supervisor(STARTED, answer, COMPLETED) as supervisor:
        completion = await supervisor.run(ask(schema=Verdict))
        assert completion.data == Verdict(answer="yes", confidence=0.5)
        other = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
        wrong = await error_of(supervisor, ask(schema=other))
    assert wrong.code == "answer.schema"
    assert wrong.partial is not None
    assert wrong.partial.text.startswith('{"answer"')


async def test_the_prompt_arrives_byte_for_byte_and_the_input_is_closed(bench: Bench) -> None:
    saved = bench.path / "input"
    prompt = "-x @/etc/hostname\r\n\u2028é😀 " + "x" * 200_000
    async with bench.supervisor(["save_input", str(saved)], GOOD) as supervisor:
        await supervisor.run(ask(prompt))
    assert saved.read_bytes() == prompt.encode()


async def test_the_child_lives_in_its_private_directory(bench: Bench) -> None:
    seen, arguments = bench.path / "environment", bench.path / "arguments"
    steps = (["environment", str(seen)], ["arguments", str(arguments)], GOOD)
    async with bench.supervisor(*steps) as supervisor:
        await supervisor.run(ask())
    variables = dict(line.split("=", 1) for line in seen.read_text().splitlines())
    work = arguments.read_text().splitlines()[8:10]
    assert work[0] == "-C"
    assert variables["PWD"] == work[1] if "PWD" in variables else True
    assert variables["TMPDIR"] == work[1].removesuffix("work") + "tmp"
    assert work[1].startswith(str(bench.state / "runs"))
    assert variables["SUPERVISOR_RUN"] in work[1]


async def test_none_of_twelve_planted_variables_reaches_the_child(bench: Bench) -> None:
    seen = bench.path / "environment"
    environ = {**dict.fromkeys((*PLANTED, *NEEDED), "planted"), "PATH": os.environ["PATH"]}
    environ["HOME"] = str(bench.path)
    supervisor = bench.supervisor(["environment", str(seen)], GOOD, environ=environ)
    async with supervisor:
        await supervisor.run(ask())
    names = {line.split("=")[0] for line in seen.read_text().splitlines()}
    assert names & set(PLANTED) == set()
    assert set(NEEDED) <= names


async def test_a_named_variable_reaches_its_provider_only(bench: Bench) -> None:
    seen = bench.path / "environment"
    program = fake(["environment", str(seen)], GOOD)
    async with Supervisor(
        programs={"codex": program},
        keep={"codex": ["CODEX_API_KEY"], "claude": ["ANTHROPIC_API_KEY"]},
        variables={"codex": {"MY_SWITCH": "on"}},
        environ={**os.environ, "CODEX_API_KEY": "made-up", "ANTHROPIC_API_KEY": "made-up"},
        state_dir=bench.state,
    ) as supervisor:
        completion = await supervisor.run(ask(billing="api_key"))
    lines = seen.read_text().splitlines()
    assert "CODEX_API_KEY=made-up" in lines
    assert "MY_SWITCH=on" in lines
    assert "ANTHROPIC_API_KEY" not in seen.read_text()
    assert completion.billing.payer == "api_key"


# ---- output that is not as it should be


async def test_an_exit_code_after_a_good_answer_is_a_warning(bench: Bench) -> None:
    async with bench.supervisor(GOOD, ["exit", 1]) as supervisor:
        completion = await supervisor.run(ask())
    assert completion.exit.code == 1
    assert [warning.code for warning in completion.warnings] == ["process.exit"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], "protocol.no_result"),
        ([["exit", 3]], "process.exit"),
        ([STARTED], "protocol.truncated"),
        ([STARTED, message("cut")], "protocol.truncated"),
        ([STARTED, message("cut"), ["exit", 1]], "protocol.truncated"),
        ([STARTED, COMPLETED], "protocol.empty"),
        ([["print", "hello"]], "protocol.no_result"),
        ([STARTED, ["kill", "SIGKILL"]], "process.signal"),
        ([["stderr", "error: unexpected argument '-x' found"], ["exit", 2]], "cli.bad_flag"),
        (
            [["stderr", "\x1b[31mstdin is not a terminal\x1b[0m"], ["exit", 1]],
            "cli.needs_terminal",
        ),
        ([recorded("codex/e07-429-usage-limit-reached"), ["exit", 1]], "limit.usage"),
        ([recorded("codex/e01-401"), ["exit", 1]], "auth.expired"),
        ([recorded("codex/d1-agent-basic")], "policy.tool_used"),
    ],
)
async def test_what_proves_no_answer_is_an_error(bench: Bench, steps: list[Any], code: str) -> None:
    async with bench.supervisor(["read"], *steps) as supervisor:
        error = await error_of(supervisor, ask())
        assert error.code == code
        assert error.message.startswith("codex: ")
        with pytest.raises(type(error)) as caught:
            await supervisor.run(ask())
        assert caught.value.code == code


async def test_a_failed_run_still_shows_what_was_there(bench: Bench) -> None:
    async with bench.supervisor(STARTED, message("so far"), ["exit", 1]) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.partial is not None
    assert error.partial.text == "so far"
    assert error.partial.session_id == "t-1"
    assert error.partial.exit is not None
    assert error.partial.exit.code == 1


async def test_noise_between_the_events_is_counted_and_passed_over(bench: Bench) -> None:
    noise = [["print", "npm notice"], ["write", "7b22b2227d0a"], ["print", '{"type":"new"}']]
    async with bench.supervisor(*noise, GOOD, ["write", "7b2274"]) as supervisor:
        events = await events_of(supervisor, ask())
    assert [event.kind for event in events].count("unrecognized") == 4
    assert events[-1].kind == "done"


async def test_a_character_split_over_writes_stays_whole(bench: Bench) -> None:
    line = message("日本")[1].encode().replace(b"\\u65e5\\u672c", "日本".encode())
    steps = [["write", bytes([byte]).hex()] for byte in line + b"\n"]
    async with bench.supervisor(STARTED, *steps, COMPLETED) as supervisor:
        assert (await supervisor.run(ask())).text == "日本"


async def test_a_megabyte_line_passes_and_one_over_the_limit_is_dropped(bench: Bench) -> None:
    limits = Limits(answer=1 << 20, line=3 << 20)
    steps = (["filler", 1 << 20], ["filler", 4 << 20], GOOD)
    async with bench.supervisor(*steps) as supervisor:
        events = await events_of(supervisor, ask(limits=limits))
    assert [event.kind for event in events[:2]] == ["unrecognized", "notice"]
    last = events[-1]
    assert isinstance(last, Done)
    assert last.completion.cleanup.dropped_bytes == 4 << 20


async def test_a_dropped_line_without_a_result_is_named_as_the_cause(bench: Bench) -> None:
    limits = Limits(answer=1 << 20, line=3 << 20)
    async with bench.supervisor(["filler", 4 << 20]) as supervisor:
        assert (await error_of(supervisor, ask(limits=limits))).code == "output.line"


async def test_output_without_end_is_stopped(bench: Bench) -> None:
    async with bench.supervisor(["flood", STATUS]) as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask(limits=Limits(stdout=1 << 20)))
    assert error.code == "output.stdout"


async def test_an_answer_over_its_limit_is_stopped(bench: Bench) -> None:
    async with bench.supervisor(STARTED, message("x" * 3000), ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask(limits=Limits(answer=2000)))
    assert error.code == "output.answer"


async def test_much_on_standard_error_blocks_nothing(bench: Bench) -> None:
    async with bench.supervisor(["stderr_filler", 400_000], GOOD) as supervisor:
        assert (await supervisor.run(ask())).text == "second message"


async def test_the_cause_is_read_from_the_end_of_standard_error(bench: Bench) -> None:
    steps = (["stderr_filler", 400_000], ["stderr", "\nNot logged in"], ["exit", 1])
    async with bench.supervisor(*steps) as supervisor:
        assert (await error_of(supervisor, ask())).code == "auth.required"


async def test_a_cli_that_never_reads_its_input_is_judged_by_its_own_word(bench: Bench) -> None:
    steps = (recorded("codex/e01-401"), ["exit", 1])
    async with bench.supervisor(*steps) as supervisor:
        error = await error_of(supervisor, ask("x" * (1 << 20)))
    assert error.code == "auth.expired"


async def test_the_last_of_the_output_is_read_after_the_exit(bench: Bench) -> None:
    """A CLI that writes its whole stream and ends at once, while the reader is busy elsewhere."""
    gone = bench.path / "gone"
    steps = (STARTED, *[message("x" * 1000)] * 20, message("last"), COMPLETED, ["touch", str(gone)])
    async with bench.supervisor(*steps) as supervisor, supervisor.stream(ask()) as run:
        first = await run.__anext__()
        assert first.kind == "started"
        await appears(gone)
        async for _ in run:
            pass
    assert run.completion.text == "last"


# ---- time


@pytest.mark.parametrize(
    ("steps", "timeouts", "code"),
    [
        ([["hang"]], Timeouts(start=0.3, grace=0.2), "timeout.start"),
        ([STARTED, ["hang"]], Timeouts(total=0.5, grace=0.2), "timeout.total"),
        ([STARTED, message("half"), ["hang"]], Timeouts(total=0.5, grace=0.2), "timeout.total"),
        (
            [["ignore", "SIGINT"], STARTED, ["hang"]],
            Timeouts(total=0.5, grace=0.2),
            "timeout.total",
        ),
    ],
)
async def test_a_run_that_does_not_end_is_ended(
    bench: Bench, steps: list[Any], timeouts: Timeouts, code: str
) -> None:
    async with bench.supervisor(["read"], *steps) as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask(timeouts=timeouts))
    assert error.code == code
    assert error.retryable
    assert error.partial is not None
    assert error.partial.exit is not None
    assert error.partial.exit.ended_by_us


async def test_status_lines_are_no_progress(bench: Bench) -> None:
    """A CLI that printed a status each second for as long as it hung was never stopped."""
    async with bench.supervisor(
        recorded("claude/k-answer-int"), ["flood", STATUS], provider="claude"
    ) as supervisor:
        with trio.fail_after(BOUND):
            request = ask(provider="claude", billing="any", timeouts=Timeouts(idle=0.5, grace=0.2))
            error = await error_of(supervisor, request)
    assert error.code == "timeout.idle"


async def test_a_known_error_wins_over_the_limit_that_ended_the_run(bench: Bench) -> None:
    steps = (recorded("codex/e30-conn-refused"), ["hang"])
    async with bench.supervisor(*steps) as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask(timeouts=Timeouts(total=0.5, grace=0.2)))
    assert error.code == "network"
    assert error.partial is not None
    assert [warning.code for warning in error.partial.warnings] == ["timeout.total"]


async def test_silence_after_a_used_up_plan_is_named_as_that(bench: Bench) -> None:
    text = "You have hit your usage limit. Try again later."
    reported = ["print", json.dumps({"type": "error", "message": text})]
    timeouts = Timeouts(idle=0.3, total=60, grace=0.2)
    async with bench.supervisor(STARTED, reported, ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask(timeouts=timeouts))
    assert error.code == "limit.usage"
    assert error.partial is not None
    assert [warning.code for warning in error.partial.warnings] == ["timeout.idle"]


@pytest.mark.parametrize("ignored", [[], [["ignore", "SIGINT"]]])
async def test_a_cli_that_stays_after_its_answer_is_ended_and_the_answer_counts(
    bench: Bench, ignored: list[Any]
) -> None:
    async with bench.supervisor(*ignored, GOOD, ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            completion = await supervisor.run(ask(timeouts=HASTY))
    assert completion.text == "second message"
    assert completion.exit.ended_by_us


async def test_a_cli_that_closes_its_output_and_stays_is_ended(bench: Bench) -> None:
    async with bench.supervisor(GOOD, ["close_stdout"], ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            assert (await supervisor.run(ask(timeouts=HASTY))).text == "second message"


async def test_the_callers_own_time_between_events_is_not_counted(bench: Bench) -> None:
    """The limit is half a second of waiting, and the caller works for twice as long."""
    go = bench.path / "go"
    steps = (STARTED, ["wait_for", str(go)], GOOD)
    async with bench.supervisor(*steps) as supervisor:
        async with supervisor.stream(ask(timeouts=Timeouts(total=0.5))) as run:
            assert (await run.__anext__()).kind == "started"
            await trio.sleep(1)
            go.touch()
            kinds = [event.kind async for event in run]
    assert kinds[-1] == "done"


# ---- what a run leaves behind


@pytest.mark.parametrize("how", ["same", "session"])
@pytest.mark.parametrize("pipes", ["hold", "closed"])
async def test_a_background_process_does_not_survive_a_good_run(
    bench: Bench, how: str, pipes: str
) -> None:
    async with bench.supervisor(["child", how, pipes], GOOD) as supervisor:
        with trio.fail_after(BOUND):
            completion = await supervisor.run(ask(timeouts=HASTY))
    assert completion.text == "second message"
    assert len(completion.cleanup.killed) == 1


@pytest.mark.parametrize("how", ["same", "session"])
async def test_a_background_process_does_not_survive_a_cancel(bench: Bench, how: str) -> None:
    async with bench.supervisor(["child", how, "hold"], STARTED, ["hang"]) as supervisor:
        with trio.fail_after(BOUND), trio.CancelScope() as scope:
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                async for _ in run:
                    scope.cancel()
        assert scope.cancelled_caught
        assert bench.homes() == []


async def test_leaving_the_block_early_ends_the_run(bench: Bench) -> None:
    async with bench.supervisor(STARTED, ["flood", STATUS]) as supervisor:
        with trio.fail_after(BOUND):
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                async for _ in run:
                    break
        assert bench.homes() == []


async def test_an_error_of_the_body_comes_out_as_it_is(bench: Bench) -> None:
    async with bench.supervisor(STARTED, ["hang"]) as supervisor:
        with pytest.raises(ZeroDivisionError) as caught:  # noqa: PT012 -- the block is the test
            async with supervisor.stream(ask(timeouts=HASTY)) as run:
                await run.__anext__()
                _ = 1 // 0
        assert caught.value.__cause__ is None
        assert bench.homes() == []


async def test_a_failed_stream_raises_nothing_more_when_its_block_is_left(bench: Bench) -> None:
    async with bench.supervisor(STARTED) as supervisor:
        async with supervisor.stream(ask()) as run:
            events = [event async for event in run]
        assert isinstance(events[-1], Failed)
        with pytest.raises(SupervisorError):
            _ = run.completion


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
async def test_a_cancel_at_any_moment_leaves_nothing(bench: Bench, delay: float) -> None:
    async with bench.supervisor(["child", "session", "hold"], GOOD, ["hang"]) as supervisor:
        with trio.fail_after(BOUND):
            with trio.move_on_after(delay):
                await supervisor.run(ask("x" * 500_000, timeouts=HASTY))
            assert bench.homes() == []


async def test_what_the_cli_makes_elsewhere_is_tidied_if_it_is_empty(bench: Bench) -> None:
    """claude makes a folder in the user's own state for every working directory."""
    config = bench.path / "config"
    env = {**os.environ, "CLAUDE_CONFIG_DIR": str(config)}
    (config / "projects" / "mine").mkdir(parents=True)
    supervisor = Supervisor(
        programs={"claude": [str(_script(bench.path, config))]}, environ=env, state_dir=bench.state
    )
    async with supervisor:
        await supervisor.run(ask(provider="claude", billing="any"))
    assert [path.name for path in (config / "projects").iterdir()] == ["mine"]


def _script(folder: Path, config: Path) -> Path:
    """A CLI that makes claude's project folder before it answers."""
    recording = recorded("claude/c-stream-partial")[1]
    path = folder / "claude"
    path.write_text(
        "#!/bin/sh\n"
        f'mkdir -p "{config}/projects/$(pwd | tr -c "a-zA-Z0-9\\n" -)/memory"\n'
        f'cat "{recording}"\n'
    )
    path.chmod(0o755)
    return path


async def test_a_directory_that_the_cli_made_unreadable_is_removed(bench: Bench) -> None:
    script = bench.path / "codex"
    script.write_text(
        '#!/bin/sh\nmkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; chmod 0 "$TMPDIR/a"\n'
        f'cat "{GOOD[1]}"\n'
    )
    script.chmod(0o755)
    async with Supervisor(programs={"codex": [str(script)]}, state_dir=bench.state) as supervisor:
        assert (await supervisor.run(ask())).cleanup.leftovers == ()
    assert bench.homes() == []


# ---- the host application


async def test_the_hosts_own_children_are_left_alone(bench: Bench) -> None:
    """A library that waits for any child takes the exit codes of its host's children away."""
    own = [await trio.lowlevel.open_process(["sh", "-c", "sleep 0.2; exit 7"]) for _ in range(5)]
    async with bench.supervisor(["child", "session", "closed"], GOOD) as supervisor:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(supervisor.run, ask(timeouts=HASTY))
    assert [await process.wait() for process in own] == [7] * 5


@pytest.mark.parametrize(("mode", "code"), [("auto", 7), ("group", None)])
async def test_a_host_that_reaps_every_child_gets_no_invented_exit_code(
    bench: Bench, mode: Any, code: int | None
) -> None:
    """A guardian still tells how the CLI ended; without one it is lost, and not called zero."""
    go = bench.path / "go"
    steps = (GOOD, ["wait_for", str(go)], ["exit", 7])
    supervisor = bench.supervisor(*steps, containment=mode)
    async with supervisor, supervisor.stream(ask()) as run:
        await run.__anext__()
        go.touch()
        os.waitpid(-1, 0)  # noqa: ASYNC222 -- so that the host is the first to know
        async for _ in run:
            pass
    assert run.completion.text == "second message"
    assert run.completion.exit.code == code
    assert run.completion.exit.signal is None


async def test_many_runs_at_once(bench: Bench) -> None:
    texts: list[str] = []

    async def one() -> None:
        texts.append((await supervisor.run(ask())).text)

    async with bench.supervisor(["read"], GOOD) as supervisor:
        with trio.fail_after(3 * BOUND):
            async with trio.open_nursery() as nursery:
                for _ in range(25):
                    nursery.start_soon(one)
    assert texts == ["second message"] * 25


# ---- a start that fails


async def test_a_missing_program_is_named(bench: Bench) -> None:
    supervisor = Supervisor(environ={"PATH": "/nowhere", "HOME": str(bench.path)})
    with pytest.raises(CliError) as caught:
        await supervisor.run(ask())
    assert caught.value.code == "cli.not_found"
    assert "'codex'" in caught.value.message
    assert caught.value.partial is None


@pytest.mark.parametrize("content", ["", "no shebang", "#!/nowhere/interpreter\n"])
async def test_a_program_that_does_not_start_is_named(bench: Bench, content: str) -> None:
    program = bench.path / "codex"
    program.write_text(content)
    program.chmod(0o755)
    async with Supervisor(programs={"codex": [str(program)]}, state_dir=bench.state) as supervisor:
        with pytest.raises(CliError) as caught:
            await supervisor.run(ask())
        assert caught.value.code == "cli.not_runnable"
        assert bench.homes() == []


async def test_a_state_folder_that_cannot_be_used_is_named(bench: Bench) -> None:
    (bench.path / "file").touch()
    supervisor = Supervisor(programs={"codex": fake(GOOD)}, state_dir=bench.path / "file" / "state")
    with pytest.raises(RequestError) as caught:
        await supervisor.run(ask())
    assert caught.value.code == "config.invalid"
    assert "Not a directory" in caught.value.message


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"programs": {"codex": "codex"}}, "programs['codex']"),
        ({"programs": {"codex": []}}, "programs['codex']"),
        ({"programs": {"claud": ["x"]}}, "'claud'"),
        ({"keep": {"codex": "KEY"}}, "keep['codex']"),
        ({"keep": {"codex": [1]}}, "keep['codex']"),
        ({"variables": {"codex": {"A=B": "x"}}}, "'A=B'"),
        ({"environ": {}}, "HOME"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(given: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        Supervisor(**given)
    assert caught.value.code == "config.invalid"
    assert named in caught.value.message


async def test_a_run_does_not_stop_at_the_terminal(bench: Bench) -> None:
    """A session of its own has no controlling terminal that could stop it."""
    pid = bench.path / "pid"
    async with bench.supervisor(["pid", str(pid)], STARTED, ["hang"]) as supervisor:
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            await run.__anext__()
            number = int(pid.read_text())
            assert os.getsid(number) == os.getpgid(number) == number
            os.kill(number, signal.SIGKILL)
            kinds = [event.kind async for event in run]
    assert kinds == ["failed"]


async def test_text_is_handed_out_while_the_cli_still_works(bench: Bench) -> None:
    go = bench.path / "go"
    steps = (STARTED, message("first"), ["wait_for", str(go)], message("second"), COMPLETED)
    async with bench.supervisor(*steps) as supervisor, supervisor.stream(ask()) as run:
        texts = []
        with trio.fail_after(BOUND):
            async for event in run:
                if isinstance(event, Text):
                    texts.append(event.text)
                    go.touch()
    assert texts == ["first", "second"]
