"""The command line as a person or a script meets it: a real process, its output and exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor.command.app import EXIT_CODES, exit_code
from supervisor.model.errors import CODES, as_error, failure
from tests.conftest import of_folder
from tests.fakes import GOOD, STARTED, fake, message, recorded
from tests.test_run import BOUND, appears

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes import Step

SUPERVISOR = [sys.executable, "-m", "supervisor"]


def cli(folder: Path, *steps: Step) -> str:
    """An executable that plays the steps."""
    path = folder / "cli"
    program, *rest = fake(*steps)
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in [program, *rest])
    path.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
    path.chmod(0o755)
    return str(path)


def supervisor(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*SUPERVISOR, *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_the_answer_goes_to_standard_output_and_nothing_else(tmp_path: Path) -> None:
    done = supervisor("run", "--provider", "codex", "--program", cli(tmp_path, GOOD), "What?")
    assert (done.returncode, done.stdout, done.stderr) == (0, "second message\n", "")


def test_the_prompt_may_come_from_standard_input(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    program = cli(tmp_path, ["save_input", str(saved)], GOOD)
    prompt = "-x é\r\n" + "y" * 200_000
    done = supervisor(
        "run", "--provider", "codex", "--program", program, "-", stdin=prompt.encode()
    )
    assert done.returncode == 0
    assert saved.read_bytes() == prompt.encode()


def test_events_as_json(tmp_path: Path) -> None:
    program = cli(tmp_path, GOOD)
    done = supervisor("run", "--provider", "codex", "--program", program, "--json", "What?")
    events: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["kind"] for event in events][-1] == "done"
    completion = events[-1]["completion"]
    assert completion["text"] == "second message"
    assert completion["usage"]["cache_read"] == 1000
    assert completion["cost"] is None
    assert done.stderr == ""


def test_a_schema_file(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')
    program = cli(tmp_path, recorded("codex/b1-schema-ok"))
    arguments = ("run", "--provider", "codex", "--program", program, "--schema", str(schema), "x")
    done = supervisor(*arguments)
    assert (done.returncode, done.stdout) == (0, '{"answer":"x","n":1}\n')
    schema.write_text('{"type":"object","properties":{"n":{"type":"string"}},"required":["n"]}')
    done = supervisor(*arguments)
    assert (done.returncode, done.stdout) == (11, "")
    assert "error: codex: The answer does not fit the schema at n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "--provider", "claud", "x"], 2, "Did you mean 'claude'?"),
        (["run", "--provider", "codex", " "], 2, "The prompt is empty."),
        (["run", "--provider", "codex", "--effort", "huge", "x"], 2, "'huge'"),
        (["run", "--provider", "codex", "--billing", "me", "x"], 2, "'me'"),
        (["run", "--provider", "codex", "--schema", "/nowhere", "x"], 2, "No such file"),
        (["run", "--provider", "codex", "--schema", __file__, "x"], 2, "is no JSON"),
        (["run", "--provider", "codex", "--program", "/nowhere/codex", "x"], 3, "Install the CLI"),
        (["run", "--provider", "codex"], 2, "prompt"),
        (["run", "x"], 2, "--provider"),
        (["run", "--provider", "codex", "--nonsense", "x"], 2, "--nonsense"),
    ],
)
def test_an_error_is_a_sentence_and_a_hint(arguments: list[str], code: int, said: str) -> None:
    done = supervisor(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("codex/e01-401", 4),
        ("codex/e07-429-usage-limit-reached", 5),
        ("codex/e11-500", 6),
        ("codex/a13-empty-answer", 9),
        ("codex/d1-agent-basic", 10),
        ("codex/a15-incomplete-max-tokens", 11),
    ],
)
def test_the_exit_code_names_the_class_of_an_error(tmp_path: Path, case: str, code: int) -> None:
    program = cli(tmp_path, recorded(case))
    done = supervisor("run", "--provider", "codex", "--program", program, "What?")
    assert done.returncode == code
    assert done.stderr.startswith("error: codex: ")
    assert "\nhint:  " in done.stderr


def test_an_error_before_the_start_is_json_too_when_json_is_asked_for() -> None:
    done = supervisor("run", "--provider", "claud", "--json", "x")
    assert json.loads(done.stdout)["error"]["code"] == "provider.not_found"


def test_the_time_limit_ends_the_run(tmp_path: Path) -> None:
    program = cli(tmp_path, STARTED, ["hang"])
    done = supervisor(
        *("run", "--provider", "codex", "--program", program, "--timeout", "0.5", "What?")
    )
    assert done.returncode == 7


def test_a_named_variable_passes_and_says_who_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_API_KEY", "made-up")
    seen = tmp_path / "seen"
    program = cli(tmp_path, ["environment", str(seen)], GOOD)
    arguments = ("run", "--provider", "codex", "--program", program, "--keep", "CODEX_API_KEY", "x")
    refused = supervisor(*arguments)
    assert refused.returncode == 4
    assert not seen.exists()
    assert supervisor(*arguments, "--billing", "api_key").returncode == 0
    assert "CODEX_API_KEY=made-up" in seen.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_cleans_up_and_says_so(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ready = tmp_path / "ready"
    program = cli(tmp_path, ["child", "session", "hold"], STARTED, ["touch", str(ready)], ["hang"])
    process = await trio.lowlevel.open_process(
        [*SUPERVISOR, "run", "--provider", "codex", "--program", program, "What?"],
        stderr=subprocess.PIPE,
    )
    await appears(ready)
    process.send_signal(number)
    with trio.fail_after(BOUND):
        assert await process.wait() == code
    assert of_folder(tmp_path) == []
    runs = tmp_path / ".local" / "state" / "agent-cli-supervisor" / "runs"
    assert os.listdir(runs) == []
    assert process.stderr is not None
    assert await process.stderr.receive_some() == b""
    await process.stderr.aclose()


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.write_text((STARTED[1] + "\n") + (message("x" * 1000)[1] + "\n") * 300)
    program = cli(tmp_path, ["file", str(long)], GOOD)
    command = [*SUPERVISOR, "run", "--provider", "codex", "--program", program, "--json", "x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr == b""


def test_the_demonstration_needs_no_cli_and_no_login() -> None:
    done = supervisor("demo")
    assert done.returncode == 0, done.stderr
    assert "data=Verdict(answer='No: 91 is 7 times 13.', confidence=0.98)" in done.stdout
    assert done.stdout.count("\n  done\n") == 2


def test_the_demonstration_with_a_cli_that_is_missing() -> None:
    done = supervisor("demo", "--provider", "codex", "Is 91 prime?")
    assert done.returncode == 3
    assert "Install the CLI" in done.stderr


@pytest.mark.parametrize("command", [[], ["run"], ["demo"], ["reap"]])
def test_help_has_an_example(command: list[str]) -> None:
    done = supervisor(*command, "--help")
    assert done.returncode == 0
    assert "Example: supervisor" in done.stdout


def test_reap_says_what_it_found(tmp_path: Path) -> None:
    runs = tmp_path / ".local" / "state" / "agent-cli-supervisor" / "runs"
    (runs / "0123456789ab").mkdir(parents=True)
    (runs / "0123456789ab.lease").touch()
    (runs / "somebodys").mkdir()
    done = supervisor("reap")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "removed 0123456789ab",
        "left alone 'somebodys': nothing proves whose it is",
        f"1 removed, 0 processes ended, in {runs.parent}",
    ]
    assert os.listdir(runs) == ["somebodys"]


def test_the_version() -> None:
    assert supervisor("--version").stdout.startswith("supervisor 0.")


def test_every_class_of_error_has_an_exit_code() -> None:
    codes = {code: exit_code(as_error(failure(code))) for code in CODES}
    assert set(codes.values()) == {1, *EXIT_CODES.values()}
    assert codes["supervisor.closed"] == codes["internal"] == 1
