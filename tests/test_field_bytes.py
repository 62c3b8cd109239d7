"""Troubles of people who run these CLIs without a terminal: bytes and lines.

Each starts a CLI as a real subprocess that does what theirs did.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
import trio

from supervisor import Done, Limits, Supervisor, ToolFinished
from tests.fakes import Bench, ask, error_of, events_of, fake
from tests.field import (
    BOUND,
    HELLO,
    answer,
    assistant,
    init,
    joined,
    keyed,
    kinds,
    lines,
    question,
    result,
    running,
    say,
    signed_in,
    stderr_of,
    stored,
    turn,
    whole,
)

if TYPE_CHECKING:
    from tests.field import Line

MIB = 1024 * 1024


def tool_result(content: str) -> Line:
    """A recorded tool's result with another content."""
    line = next(each for each in lines("claude/d-agent-max-turns") if each["type"] == "user")
    block = {**line["message"]["content"][0], "content": content}
    return {**line, "message": {**line["message"], "content": [block]}, "tool_use_result": None}


async def test_an_agent_author_keeps_the_run_in_which_a_tool_shows_a_3_mib_screenshot(
    bench: Bench,
) -> None:
    """A reader with a cap of 1 MiB a line died of the first screenshot. claude, SDK of 2025-07."""
    picture = base64.b64encode(b"\xff" * (3 * MIB * 3 // 4)).decode()
    first, *rest = answer()
    step = stored(bench, joined(first, tool_result(picture), *rest))
    async with bench.supervisor(step, provider="claude") as supervisor:
        events = await events_of(supervisor, question("claude"))
    (shown,) = [event for event in events if isinstance(event, ToolFinished)]
    assert shown.output == picture
    assert len(picture) == 3 * MIB
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO


async def test_a_service_with_a_small_line_limit_loses_the_screenshot_and_not_the_answer(
    bench: Bench,
) -> None:
    """The same, where the application itself wants no line so long. claude, SDK of 2025-07."""
    first, *rest = answer()
    step = stored(bench, joined(first, tool_result("A" * 3 * MIB), *rest))
    async with bench.supervisor(step, provider="claude") as supervisor:
        request = question("claude", limits=Limits(answer=1000, line=2 * MIB))
        events = await events_of(supervisor, request)
    assert [event.code for event in kinds(events, "notice")] == ["line_dropped"]
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO
    assert events[-1].completion.cleanup.dropped_bytes > 3 * MIB


@pytest.mark.parametrize("size", [70_000, 160_000])
async def test_a_gateway_gets_a_codex_line_over_64_kib_whole(bench: Bench, size: int) -> None:
    """A stream reader with its default limit of 64 KiB broke on one long message. codex, 2026-05."""
    text = "x" * size
    async with bench.supervisor(stored(bench, joined(*turn(text)))) as supervisor:
        assert (await supervisor.run(ask())).text == text


BYTE_BY_BYTE = """
import fcntl, termios, time

def taken():
    # How much of what was written still lies in the pipe.
    return fcntl.ioctl(1, termios.FIONREAD, b"1234") == b"\\0\\0\\0\\0"

for byte in open(sys.argv[2], "rb").read():
    os.write(1, bytes([byte]))
    while byte > 127 and not taken():
        time.sleep(0.001)
"""


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_writer_of_chinese_gets_no_broken_characters_from_split_writes(
    bench: Bench, provider: str
) -> None:
    """A reader that decoded each chunk for itself damaged characters in silence. claude and codex."""
    text = "漢字 and €"
    path = bench.path / "stream"
    path.write_bytes(joined(*whole(provider, text)))
    async with running(bench, provider, BYTE_BY_BYTE, path) as supervisor:
        completion = await supervisor.run(question(provider))
    assert completion.text == text


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_reader_of_latin_1_files_loses_one_character_and_no_run(
    bench: Bench, provider: str
) -> None:
    """A tool's Latin-1 output went raw into the stream, and a strict decoder ended it. claude,
    codex."""
    data = joined(*whole(provider, "5 m@ of it")).replace(b"m@", b"m\xb2")
    async with bench.supervisor(stored(bench, data), provider=provider) as supervisor:
        events = await events_of(supervisor, question(provider))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "5 m\ufffd of it"
    noted = {event.message for event in kinds(events, "notice") if event.code == "warning"}
    assert noted == {"A line held bytes that are not UTF-8; U+FFFD stands in their place."}


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_an_archiver_keeps_the_answer_when_half_a_line_follows_it(
    bench: Bench, provider: str
) -> None:
    """The CLI died while it wrote one more line, and the half line cost the answer. claude, codex."""
    data = joined(*whole(provider)) + b'{"type":"sys'
    async with bench.supervisor(stored(bench, data), provider=provider) as supervisor:
        events = await events_of(supervisor, question(provider))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO
    assert [(e.type, e.size) for e in kinds(events, "unrecognized")] == [(None, 12)]


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_user_of_a_version_manager_gets_the_answer_between_banner_lines(
    bench: Bench, provider: str
) -> None:
    """A banner, log lines and JSON that is no event stood in the stream. claude, codex, 2025-09."""
    noise = ("Now using node v26.3.0", "null", "42", "{not json}", '["a"]')
    first, *rest = whole(provider)
    stream = say(noise[0], first, *noise[1:], *rest)
    async with bench.supervisor(*stream, provider=provider) as supervisor:
        events = await events_of(supervisor, question(provider))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO
    sizes = [(e.type, e.size) for e in kinds(events, "unrecognized")]
    assert sizes == [(None, len(line)) for line in noise]


async def test_a_script_author_reads_events_that_come_as_one_array(bench: Bench) -> None:
    """A setting of the user turned the one result object into an array. claude 2.1.140 to 2.1.245."""
    array = json.dumps(signed_in("claude/a-answer-json-verbose"))
    async with bench.supervisor(*say(array), provider="claude") as supervisor:
        events = await events_of(supervisor, question("claude"))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == HELLO
    assert kinds(events, "unrecognized") == []
    assert len(kinds(events, "started")) == 1


TWO_WRITERS = """
first, second, last = open(sys.argv[2], "rb").read().splitlines(keepends=True)
half = last.index(b'"num_turns":') + 12
os.write(1, first + second + last[:half])
if os.fork() == 0:
    os.write(1, b"[log] tool server: " + b"x" * 5000)
    os._exit(0)
os.wait()
os.write(1, last[half:])
"""


async def test_an_operator_is_told_that_a_tool_server_wrote_into_the_result_line(
    bench: Bench,
) -> None:
    """A tool server that had the CLI's stdout wrote its log into the result. claude, 2026-05."""
    path = bench.path / "stream"
    path.write_bytes(joined(init(), assistant("The answer"), result(result="The answer")))
    async with running(bench, "claude", TWO_WRITERS, path) as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "protocol.truncated"
    assert error.retryable
    assert error.partial is not None
    assert error.partial.text == "The answer"
    assert error.partial.exit is not None
    assert error.partial.exit.code == 0


JSON_ONLY_IF_ASKED = """
if "--json" in sys.argv:
    codex("The answer.")
else:
    sys.stderr.write("user\\nWhat is it?\\ncodex\\nThe answer.\\n")
"""


async def test_a_wrapper_author_always_gets_codex_in_its_json_mode(bench: Bench) -> None:
    """Without its JSON flag the CLI put its whole transcript on stderr. codex, 2026-05."""
    async with running(bench, "codex", JSON_ONLY_IF_ASKED) as supervisor:
        assert (await supervisor.run(ask())).text == "The answer."


async def test_a_wrapper_author_sees_no_success_when_stdout_stays_empty(bench: Bench) -> None:
    """The transcript on stderr, nothing on stdout and exit code 0 passed for success. codex,
    2026-05."""
    supervisor = Supervisor(
        programs={"codex": fake(["stderr", "codex\nThe answer."], ["exit", 0])},
        state_dir=bench.state,
    )
    async with supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, ask())
    assert error.code == "protocol.no_result"
    assert error.partial is not None
    assert error.partial.text == ""


STREAMS_IF_ASKED = """
print("Loading {config}…")
if after("-o") == "stream-json":
    gemini("The answer.")
else:
    print(json.dumps({"response": "The answer.", "stats": {}}, indent=2))
print("Flushed {1} log line")
"""


async def test_a_user_of_gemini_gets_the_answer_between_lines_with_braces(bench: Bench) -> None:
    """Text with a brace around a pretty-printed object misled who looked for the first brace; the
    stream of events has no such object. gemini, 2025-12."""
    async with running(bench, "gemini", STREAMS_IF_ASKED, **keyed(bench)) as supervisor:
        events = await events_of(supervisor, question("gemini"))
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "The answer."
    assert len(kinds(events, "unrecognized")) == 2


async def test_a_user_of_gemini_sees_no_success_in_an_object_over_many_lines(bench: Bench) -> None:
    """The same from a CLI that does not know the stream of events. gemini, 2025-12."""
    pretty = json.dumps({"response": "The answer.", "stats": {}}, indent=2)
    steps = say("Loading {config}…", pretty)
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        error = await error_of(supervisor, question("gemini"))
    assert error.code == "protocol.no_result"


async def test_a_user_of_gemini_reads_the_cause_of_a_coloured_error(bench: Bench) -> None:
    """Colour codes stood in the error's text, and no pattern matched it. gemini 0.61.0."""
    text = "\x1b[31mUnknown argument: such-flag\x1b[0m"
    steps = (["stderr", text], ["exit", 1])
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        error = await error_of(supervisor, question("gemini"))
    assert error.code == "cli.bad_flag"
    assert "\x1b" not in str(error)


async def test_a_user_of_gemini_is_told_of_the_untrusted_folder_without_colours(
    bench: Bench,
) -> None:
    """Exit 55, a red text on stderr and nothing else. gemini 0.61.0."""
    steps = (["stderr", stderr_of("gemini/a-untrusted-stream")], ["exit", 55])
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        error = await error_of(supervisor, question("gemini"))
    assert error.code == "config.invalid"
    assert "trust" in error.message
    assert "\x1b" not in f"{error} {error.hint}"
