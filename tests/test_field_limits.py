"""Troubles of people who run these CLIs without a terminal: limits, logins and the environment.

Each starts a CLI as a real subprocess that does what theirs did.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
import trio

from supervisor import AuthError, Done, SupervisorError, Timeouts
from tests.fakes import Bench, ask, error_of, events_of, recorded
from tests.field import (
    BOUND,
    COUNTS,
    HELLO,
    answer,
    init,
    keyed,
    kinds,
    lines,
    question,
    result,
    running,
    say,
    signed_in,
    starts,
    stderr_of,
    turn_failed,
)
from tests.test_schema import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# ---- limits and retries


def on_clock(zone: str, hour: int, minute: int = 0) -> Callable[[datetime], bool]:
    """Whether a time is the next one at which a zone's clock shows this."""

    def fits(found: datetime) -> bool:
        there = found.astimezone(ZoneInfo(zone))
        left = found - datetime.now(UTC)
        return (there.hour, there.minute) == (hour, minute) and left <= timedelta(days=1)

    return fits


def here(hour: int) -> Callable[[datetime], bool]:
    def fits(found: datetime) -> bool:
        return found.astimezone().hour == hour and found - datetime.now(UTC) <= timedelta(days=1)

    return fits


def dated(zone: str, *parts: int) -> Callable[[datetime], bool]:
    def fits(found: datetime) -> bool:
        return found == datetime(*parts, tzinfo=ZoneInfo(zone))  # type: ignore[arg-type]

    return fits


def in_span(span: timedelta) -> Callable[[datetime], bool]:
    def fits(found: datetime) -> bool:
        return abs(found - datetime.now(UTC) - span) < timedelta(minutes=2)

    return fits


CLAUDE_LIMITS: list[tuple[str, Callable[[datetime], bool]]] = [
    ("Claude AI usage limit reached|1796070000", lambda t: t.timestamp() == 1796070000),
    ("5-hour limit reached \u2219 resets 3pm", here(15)),
    ("You've hit your session limit \u00b7 resets 8:20pm (UTC)", on_clock("UTC", 20, 20)),
    (
        "You've hit your weekly limit \u00b7 resets Dec 3, 2030, 9am (America/New_York)",
        dated("America/New_York", 2030, 12, 3, 9),
    ),
    (
        "Claude usage limit reached. Your limit will reset at 3pm (America/Santiago).",
        on_clock("America/Santiago", 15),
    ),
]


@pytest.mark.parametrize(("text", "fits"), CLAUDE_LIMITS)
async def test_a_night_shift_knows_when_the_plan_is_back_in_each_wording_of_claude(
    bench: Bench, text: str, fits: Callable[[datetime], bool]
) -> None:
    """The sentence on the used-up plan changed with the releases, and matchers broke. claude to
    2.1.187."""
    start, _, synthetic, last = signed_in("claude/e-429-usage-limit-oauth")
    content = {**synthetic["message"], "content": [{"type": "text", "text": text}]}
    stream = say(start, {**synthetic, "message": content}, {**last, "result": text})
    async with bench.supervisor(*stream, ["exit", 1], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "limit.usage"
    assert not error.retryable
    assert error.resets_at is not None
    assert fits(error.resets_at)


async def test_a_writer_about_limits_is_not_stopped_by_the_words_of_the_answer(
    bench: Bench,
) -> None:
    """The matcher looked at good answers too. claude, 2026."""
    text = CLAUDE_LIMITS[0][0]
    async with bench.supervisor(*say(*answer(text)), provider="claude") as supervisor:
        assert (await supervisor.run(question("claude"))).text == text


USED_UP = "You've hit your usage limit. Upgrade to Pro or "
CODEX_LIMITS: list[tuple[str, Callable[[datetime], bool]]] = [
    (f"{USED_UP}try again at Dec 3rd, 2030 9:09 PM.", lambda t: t.astimezone().year == 2030),
    (
        f"{USED_UP}try again in 3 days 4 hours 12 minutes.",
        in_span(timedelta(days=3, hours=4, minutes=12)),
    ),
    (f"{USED_UP}try again at 9:09 PM.", here(21)),
    (
        "unexpected status 429 Too Many Requests: "
        + json.dumps(
            {
                "error": {
                    "type": "usage_limit_reached",
                    "message": "The usage limit has been reached",
                    "resets_at": 1927918800,
                    "resets_in_seconds": 7200,
                }
            }
        ),
        lambda t: t.timestamp() == 1927918800,
    ),
]


@pytest.mark.parametrize(("text", "fits"), CODEX_LIMITS)
async def test_a_night_shift_knows_when_the_plan_is_back_in_each_form_of_codex(
    bench: Bench, text: str, fits: Callable[[datetime], bool]
) -> None:
    """A date, a span, a clock and a JSON body told the end of the limit. codex, 2026-03."""
    async with bench.supervisor(*say(*turn_failed(text)), ["exit", 1]) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "limit.usage"
    assert not error.retryable
    assert error.resets_at is not None
    assert fits(error.resets_at)


async def test_a_queue_waits_for_a_rate_and_does_not_give_up_as_for_a_used_up_plan(
    bench: Bench,
) -> None:
    """A rate limit and a used-up plan were taken for the same. codex, 2026-03."""
    async with bench.supervisor(recorded("codex/e05-429-retry-after")) as supervisor:
        error = await error_of(supervisor, ask())
    assert error.code == "limit.rate"
    assert error.retryable


PRINTS = COUNTS + "print(open(sys.argv[3]).read(), end='')\nsys.exit(1)\n"
REFUSED = "Invalid schema for response_format 'codex_output_schema': in context=()"


@pytest.mark.parametrize(
    ("message", "code", "retryable"),
    [
        (f"{USED_UP}try again at 9:09 PM.", "limit.usage", False),
        ("unexpected status 401 Unauthorized: no", "auth.expired", False),
        (REFUSED, "request.unsupported", False),
        ("stream disconnected before completion: stream closed", "network", True),
        ("We're currently experiencing high demand", "provider.error", True),
        ("Selected model is at capacity.", "provider.overloaded", True),
    ],
)
async def test_a_harness_that_trusts_retryable_never_repeats_a_hard_limit(
    bench: Bench, message: str, code: str, retryable: bool
) -> None:
    """Used-up plans and refused schemas were asked again for 1.5 hours. codex, 2026."""
    counted, stream = bench.path / "starts", bench.path / "stream"
    stream.write_text("".join(f"{json.dumps(line)}\n" for line in turn_failed(message)))
    async with running(bench, "codex", PRINTS, counted, stream) as supervisor:
        error = await error_of(supervisor, ask(schema=Verdict, repair=1))
    assert (error.code, error.retryable) == (code, retryable)
    assert starts(counted) == 1


async def test_a_long_job_is_ended_when_the_stream_stalls_and_signals_are_ignored(
    bench: Bench,
) -> None:
    """Half a message and then silence for 15 hours; neither SIGINT nor SIGTERM helped. claude,
    2026-06."""
    half = lines("claude/c-stream-partial")[1:5]
    steps = (["ignore", "SIGTERM"], ["ignore", "SIGINT"], *say(init(), *half), ["hang"])
    async with bench.supervisor(*steps, provider="claude") as supervisor:
        with trio.fail_after(BOUND):
            timeouts = Timeouts(idle=0.5, total=None, grace=0.2)
            error = await error_of(supervisor, question("claude", timeouts=timeouts))
    assert error.code == "timeout.idle"
    assert error.partial is not None
    assert error.partial.text == "Hello fro"
    assert error.partial.exit is not None
    assert (error.partial.exit.signal, error.partial.exit.ended_by_us) == (9, True)


TRACE = """
import time
def trace(number):
    sys.stderr.write(f"Attempt {number} failed with status 429. Retrying with backoff... "
                     "_ApiError: got status: 429\\n    at throwErrorIfNotOK (file:///x.js:1:2)\\n"
                     "    status: 429\\n}\\n")
for number in range(10):
    trace(number)
while sys.argv[2] == "for ever":
    trace(number)
    time.sleep(0.01)
gemini("The answer.")
"""


async def test_a_user_of_gemini_gets_the_answer_after_ten_loud_retries(bench: Bench) -> None:
    """Stack traces of repeated requests on stderr were taken for the outcome. gemini, 2026-05."""
    async with running(bench, "gemini", TRACE, "ten times", **keyed(bench)) as supervisor:
        assert (await supervisor.run(question("gemini"))).text == "The answer."


async def test_a_user_of_gemini_is_not_kept_for_ever_by_loud_retries(bench: Bench) -> None:
    """The same without end; what stderr says is no sign of life. gemini, 2025 to 0.41.2."""
    async with running(bench, "gemini", TRACE, "for ever", **keyed(bench)) as supervisor:
        with trio.fail_after(BOUND):
            timeouts = Timeouts(start=None, total=1.0, grace=0.2)
            error = await error_of(supervisor, question("gemini", timeouts=timeouts))
    assert error.partial is not None
    assert error.partial.exit is not None
    assert error.partial.exit.ended_by_us
    assert error.retryable
    assert error.code == "timeout.total"


# ---- logins, keys, billing

KEY = "sk-planted"
KEYS = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    "codex": ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_ACCESS_TOKEN"),
}


def planted(bench: Bench, *names: str, **more: str) -> dict[str, str]:
    """An environment with variables that must not get through."""
    own = {"HOME": str(bench.path), "PATH": os.environ["PATH"], **more}
    return {**own, **dict.fromkeys(names, KEY)}


SAYS_ITS_KEY = """
found = [name for name in sys.argv[2:] if name in os.environ]
claude(" ".join(found) or "nothing", source=found[0] if found else "none")
"""


async def test_a_subscriber_is_not_billed_for_a_key_in_the_shell(bench: Bench) -> None:
    """A key in the environment outranked the login, and 72 dollars were gone in an hour. claude,
    2026-08."""
    environ = planted(bench, *KEYS["claude"])
    supervisor = running(bench, "claude", SAYS_ITS_KEY, *KEYS["claude"], environ=environ)
    async with supervisor:
        completion = await supervisor.run(question("claude"))
    assert completion.text == "nothing"
    assert completion.billing.payer == "subscription"


async def test_a_subscriber_is_spared_a_run_whose_first_line_names_a_key(bench: Bench) -> None:
    """The same, where the CLI found a key elsewhere: the run must not go on to spend. claude,
    2026-09."""
    stream = say(init(apiKeySource="apiKeyHelper"))
    async with bench.supervisor(*stream, ["hang"], provider="claude") as supervisor:
        with trio.fail_after(BOUND):
            error = await error_of(supervisor, question("claude"))
    assert isinstance(error, AuthError)
    assert error.code == "auth.api_key_in_use"
    assert "apiKeyHelper" in error.message


SETTINGS_BRING_A_KEY = """
folders = [os.getcwd(), *[v for f, v in zip(sys.argv, sys.argv[1:]) if f == "--add-dir"]]
source = "none"
if sys.argv[2] == "heedless" or after("--setting-sources") != "":
    for folder in folders:
        try:
            settings = json.load(open(folder + "/.claude/settings.json"))
        except OSError:
            continue
        source = next(iter(settings["env"]))
claude("The answer.", source=source)
"""


def repository(bench: Bench) -> Path:
    """A foreign work tree whose settings hold a key."""
    folder = bench.path / "repository"
    (folder / ".claude").mkdir(parents=True)
    settings = {"env": {"ANTHROPIC_API_KEY": KEY}}
    (folder / ".claude" / "settings.json").write_text(json.dumps(settings))
    return folder


async def test_a_reviewer_of_foreign_code_does_not_pay_with_the_key_in_its_settings(
    bench: Bench,
) -> None:
    """A project's settings put a key back that the environment no longer had. claude 2.1.144."""
    async with running(bench, "claude", SETTINGS_BRING_A_KEY, "heedful") as supervisor:
        request = question("claude", access="read", workspace=str(repository(bench)))
        completion = await supervisor.run(request)
    assert completion.text == "The answer."
    assert completion.billing.payer == "subscription"


async def test_a_reviewer_of_foreign_code_is_warned_where_its_settings_count_all_the_same(
    bench: Bench,
) -> None:
    """The same with a CLI that reads them although it was told not to. claude 2.1.144."""
    async with running(bench, "claude", SETTINGS_BRING_A_KEY, "heedless") as supervisor:
        request = question("claude", access="read", workspace=str(repository(bench)))
        error = await error_of(supervisor, request)
    assert error.code == "auth.api_key_in_use"


NAMES_FOUND = """
found = [name for name in sys.argv[2:] if name.isupper() and name in os.environ]
codex(" ".join(found) or "nothing")
"""


async def test_a_plus_user_is_not_billed_for_an_openai_key_in_the_shell(bench: Bench) -> None:
    """The CLI's key variable outranks the login file and no event tells. codex 0.31 to 2026-09."""
    environ = planted(bench, *KEYS["codex"])
    async with running(bench, "codex", NAMES_FOUND, *KEYS["codex"], environ=environ) as supervisor:
        assert (await supervisor.run(ask())).text == "nothing"


RACES = """
import time
state, flags = os.environ["CODEX_HOME"], sys.argv[2]
if "login" in sys.argv:
    sys.stderr.write("Logged in using ChatGPT\\n")
    sys.exit(0)
token = open(state + "/auth.json").read()
open(f"{flags}/read-{os.getpid()}", "w").close()
while len([name for name in os.listdir(flags) if name.startswith("read-")]) < int(sys.argv[3]):
    time.sleep(0.005)
try:
    os.close(os.open(f"{flags}/spent-{token}", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    codex_failed("Your access token could not be refreshed because your refresh token was already "
                 "used. Please log out and sign in again.")
open(state + "/auth.json", "w").write(token + "+")
codex(token)
"""
"""A login token can be spent once; the runs that are to race have all read it before one spends it."""


@pytest.mark.parametrize("hermetic", ["default", "strict"])
async def test_a_fleet_hears_of_a_refresh_race_and_its_login_stays_good(
    bench: Bench, hermetic: Any
) -> None:
    """Two runs spent the same refresh token, and all were logged out. codex 0.93.0."""
    home, flags = bench.path / "codex", bench.path / "flags"
    home.mkdir()
    flags.mkdir()
    (home / "auth.json").write_text("t")
    environ = planted(bench, CODEX_HOME=str(home))
    outcomes: list[str] = []
    async with running(bench, "codex", RACES, flags, 2, environ=environ) as supervisor:

        async def one() -> None:
            try:
                outcomes.append((await supervisor.run(ask(hermetic=hermetic))).text)
            except SupervisorError as error:
                outcomes.append(error.code if error.retryable else "not retryable")

        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one)
                nursery.start_soon(one)
            assert sorted(outcomes) == ["auth.race", "t"]
            # What the winner got lies where the user's login lies, and the next run goes on with it.
            assert (home / "auth.json").read_text() == "t+"
            assert (await supervisor.run(ask(hermetic=hermetic))).text == "t+"


READS_LOGIN = """
if "login" in sys.argv:
    sys.stderr.write("Logged in using ChatGPT\\n")
    sys.exit(0)
path = os.environ["CODEX_HOME"] + "/auth.json"
token = open(path).read()
open(path, "w").write(token + "+")
codex(token)
"""


@pytest.mark.parametrize("hermetic", ["default", "strict"])
async def test_a_server_sees_a_new_sign_in_without_a_new_installation(
    bench: Bench, hermetic: Any
) -> None:
    """A copy of the login, made once, went stale after the user signed in anew. codex, 2026-05."""
    home = bench.path / "codex"
    home.mkdir()
    login = home / "auth.json"
    login.write_text("first")
    environ = planted(bench, CODEX_HOME=str(home))
    async with running(bench, "codex", READS_LOGIN, environ=environ) as supervisor:
        assert (await supervisor.run(ask(hermetic=hermetic))).text == "first"
        assert login.read_text() == "first+"
        login.write_text("second")
        assert (await supervisor.run(ask(hermetic=hermetic))).text == "second"
        assert login.read_text() == "second+"


TORN = """
import time
folder = os.environ.get("CLAUDE_CONFIG_DIR", os.environ["HOME"])
path, flags = folder + "/.claude.json", sys.argv[2]
try:
    json.load(open(path))
except FileNotFoundError:
    pass
except ValueError:
    sys.stderr.write(open(sys.argv[3]).read())
    sys.exit(1)
file = open(path, "w")
file.write('{"numStartups":')
file.flush()
open(flags + "/torn", "w").close()
while not os.path.exists(flags + "/go"):
    time.sleep(0.005)
file.write("1}")
file.close()
claude("The answer.")
"""
"""It rewrites its configuration file while others may read it; all end when the flag "go" is there."""


def torn(bench: Bench) -> tuple[Path, Any]:
    flags = bench.path / "flags"
    flags.mkdir()
    said = recorded("claude/m-claude-json-broken")[1].replace("stdout", "stderr")
    return flags, running(bench, "claude", TORN, flags, said)


async def first_then_second(flags: Path, supervisor: Any, request: Any) -> list[str]:
    """The outcomes of two runs of which the second starts while the first writes."""
    outcomes: list[str] = []

    async def one() -> None:
        try:
            outcomes.append((await supervisor.run(request)).text)
        except SupervisorError as error:
            outcomes.append(error.code)
        (flags / "go").touch()

    with trio.fail_after(BOUND):
        async with supervisor, trio.open_nursery() as nursery:
            nursery.start_soon(one)
            while not (flags / "torn").exists():  # noqa: ASYNC110 -- no event crosses a process
                await trio.sleep(0.005)
            (flags / "torn").unlink()
            nursery.start_soon(one)
            if request.hermetic == "strict":
                while not (flags / "torn").exists():  # noqa: ASYNC110
                    await trio.sleep(0.005)
                (flags / "go").touch()
    return sorted(outcomes)


async def test_parallel_strict_runs_do_not_tear_one_configuration_file(bench: Bench) -> None:
    """Runs side by side rewrote one file, and read it in pieces: 44 broken copies. claude 2.1.59."""
    flags, supervisor = torn(bench)
    request = question("claude", hermetic="strict")
    assert await first_then_second(flags, supervisor, request) == ["The answer."] * 2
    assert not (bench.path / ".claude.json").exists()


async def test_parallel_runs_name_the_torn_configuration_file(bench: Bench) -> None:
    """The same with the user's own configuration folder. claude 2.1.59."""
    flags, supervisor = torn(bench)
    assert await first_then_second(flags, supervisor, question("claude")) == [
        "The answer.",
        "config.invalid",
    ]


async def test_a_new_user_who_never_signed_in_is_told_so_by_stdout(bench: Bench) -> None:
    """The login's failure stood on stdout, called success, with nothing on stderr. claude 2.1.196."""
    stream = say(*signed_in("claude/e-no-key"))
    async with bench.supervisor(*stream, ["exit", 1], provider="claude") as supervisor:
        error = await error_of(supervisor, question("claude"))
    assert error.code == "auth.required"
    assert not error.retryable


async def test_a_new_user_who_never_signed_in_is_told_so_by_stderr(bench: Bench) -> None:
    """The same, where only stderr tells it. codex."""
    steps = (["stderr", "Error: ChatGPT login is required"], ["exit", 1])
    async with bench.supervisor(*steps) as supervisor:
        assert (await error_of(supervisor, ask())).code == "auth.required"


async def test_a_new_user_of_gemini_is_told_of_the_missing_login_by_stderr(bench: Bench) -> None:
    """The CLI's JSON error came on stderr, with exit code 41. gemini 0.61.0."""
    steps = (["stderr", stderr_of("gemini/e-no-key")], ["exit", 41])
    async with bench.supervisor(*steps, provider="gemini", **keyed(bench)) as supervisor:
        error = await error_of(supervisor, question("gemini"))
    assert (error.code, error.retryable) == ("auth.required", False)


@pytest.mark.parametrize("stdout", [True, False])
async def test_a_new_user_of_grok_is_told_of_the_missing_login_by_either_stream(
    bench: Bench, stdout: bool
) -> None:
    """The error came on both streams, and only one of them was read. grok 1.0.41."""
    case = "grok/m2-no-auth-stream"
    told = recorded(case) if stdout else ["stderr", stderr_of(case)]
    async with bench.supervisor(told, ["exit", 1], provider="grok") as supervisor:
        error = await error_of(supervisor, question("grok"))
    assert (error.code, error.retryable) == ("auth.required", False)


EXPIRED = """
if "auth" in sys.argv:
    print('{"loggedIn": true, "authMethod": "claude.ai"}')
    sys.exit(0)
open(sys.argv[3], "a").write("started\\n")
print(open(sys.argv[2]).read(), end="")
sys.exit(1)
"""


async def test_a_health_check_that_says_signed_in_does_not_hide_a_dead_token(bench: Bench) -> None:
    """The CLI's own status said yes, and each run got a 401; headless, nothing refreshed the token, and
    to ask again was of no use. claude 2.1.114 to 2.1.216."""
    stream, counted = bench.path / "stream", bench.path / "starts"
    dead = signed_in("claude/e-401-r1")
    stream.write_text("".join(f"{json.dumps(line)}\n" for line in dead))
    async with running(bench, "claude", EXPIRED, stream, counted) as supervisor:
        assert (await supervisor.sign_in("claude")).state == "signed_in"
        error = await error_of(supervisor, question("claude"))
    assert (error.code, error.failure.status) == ("auth.expired", 401)
    assert not error.retryable
    assert starts(counted) == 1


async def test_a_scheduled_job_is_told_once_that_its_token_has_expired(bench: Bench) -> None:
    """Without a terminal the token was not refreshed, and the job asked again. claude 2.1.114,
    2.1.216."""
    counted, stream = bench.path / "starts", bench.path / "stream"
    bad = [init(), result(is_error=True, api_error_status=401, result="OAuth token has expired.")]
    stream.write_text("".join(f"{json.dumps(line)}\n" for line in bad))
    async with running(bench, "claude", PRINTS, counted, stream) as supervisor:
        error = await error_of(supervisor, question("claude", schema=Verdict, repair=1))
    assert (error.code, error.retryable) == ("auth.expired", False)
    assert starts(counted) == 1


# ---- environment and configuration

MARKS = (
    *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"),
    *("CODEX_SANDBOX", "CODEX_THREAD_ID", "CODEX_SANDBOX_NETWORK_DISABLED"),
    *("GEMINI_CLI", "GEMINI_SESSION_ID"),
)
NESTED = """
found = [name for name in sys.argv[3:] if name.isupper() and name in os.environ]
if found:
    sys.stderr.write("Error: cannot be launched inside another session: " + " ".join(found))
    sys.exit(1)
text = os.environ.get("CLAUDE_CONFIG_DIR") or os.environ.get("CODEX_HOME")
claude(text) if sys.argv[2] == "claude" else codex(text)
"""


@pytest.mark.parametrize(
    ("provider", "kept"), [("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")]
)
async def test_an_agent_that_starts_agents_is_no_nested_session(
    bench: Bench, provider: str, kept: str
) -> None:
    """The variable of an outer session made the CLI refuse to start. claude since 2.1.39."""
    folder = bench.path / "state-of-the-user"
    folder.mkdir()
    environ = planted(bench, *MARKS, **{kept: str(folder)})
    supervisor = running(bench, provider, NESTED, provider, *MARKS, environ=environ)
    async with supervisor:
        assert (await supervisor.run(question(provider))).text == str(folder)


HOOKED = """
first, second, last = json.load(open(sys.argv[1]))
say(first, second)
path = os.environ["HOME"] + "/.claude/settings.json"
if after("--setting-sources") != "" and "Stop" in json.load(open(path))["hooks"]:
    second["message"]["content"][0]["text"] = last["result"] = "The hook has run."
    say(second)
say(last)
"""


async def test_a_user_with_a_stop_hook_gets_the_answer_and_not_the_hooks_word(bench: Bench) -> None:
    """A hook kept the run alive, and what the model said of it was the last message. claude,
    2026-08."""
    folder = bench.path / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text('{"hooks": {"Stop": [{"hooks": []}]}}')
    async with running(bench, "claude", HOOKED) as supervisor:
        assert (await supervisor.run(question("claude"))).text == HELLO


SERVERS = """
import signal, tomllib
if "--ignore-user-config" not in sys.argv:
    path = os.environ["CODEX_HOME"] + "/config.toml"
    for server in tomllib.load(open(path, "rb")).get("mcp_servers", {}):
        signal.alarm(30)
        signal.pause()
codex("The answer.")
"""


@pytest.mark.parametrize("hermetic", ["default", "strict"])
async def test_a_user_with_slow_tool_servers_does_not_wait_for_them(
    bench: Bench, hermetic: Any
) -> None:
    """The user's own tool servers were started for each run, and even a disabled one broke it.
    codex 0.116."""
    home = bench.path / "codex"
    home.mkdir()
    (home / "config.toml").write_text('[mcp_servers.slow]\ncommand = "sleep"\nenabled = false\n')
    environ = planted(bench, CODEX_HOME=str(home))
    async with running(bench, "codex", SERVERS, environ=environ) as supervisor:
        with trio.fail_after(BOUND):
            completion = await supervisor.run(ask(hermetic=hermetic))
    assert completion.text == "The answer."


STRICT_SERVERS = """
mine = [] if "--strict-mcp-config" in sys.argv else [{"name": "mine", "status": "connected"}]
claude("The answer.", mcp_servers=mine)
"""


async def test_a_user_of_claude_with_tool_servers_starts_none_of_them(bench: Bench) -> None:
    """The same with claude, where the servers outlived the run as well. claude 2.1.81."""
    async with running(bench, "claude", STRICT_SERVERS) as supervisor:
        assert (await supervisor.run(question("claude"))).loaded == ()


NEEDS = """
missing = [name for name in sys.argv[3].split() if not os.environ.get(name)]
if missing:
    sys.stderr.write("missing: " + " ".join(missing))
    sys.exit(127 if "PATH" in missing else 1)
text = os.environ["TMPDIR"]
claude(text) if sys.argv[2] == "claude" else codex(text)
"""
NEEDED = (
    *("HOME", "PATH", "SHELL", "LANG", "TMPDIR", "USER", "LC_ALL", "HTTPS_PROXY", "NO_PROXY"),
    *("https_proxy", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
)


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_container_user_behind_a_proxy_has_all_that_the_cli_needs(
    bench: Bench, provider: str
) -> None:
    """Started with a bare environment the CLI found no shell, no node, no home. claude, codex,
    2025-2026."""
    environ = {**dict.fromkeys(NEEDED, "C"), **planted(bench)}
    supervisor = running(bench, provider, NEEDS, provider, " ".join(NEEDED), environ=environ)
    async with supervisor:
        completion = await supervisor.run(question(provider))
    assert completion.text.startswith(str(bench.state))


@pytest.mark.parametrize("code", [126, 127])
@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_user_without_node_learns_that_the_cli_cannot_be_started(
    bench: Bench, provider: str, code: int
) -> None:
    """The launcher found no node, and its exit code was reported as the model's failure. codex,
    2025-10."""
    steps = (["stderr", "env: 'node': No such file or directory"], ["exit", code])
    async with bench.supervisor(*steps, provider=provider) as supervisor:
        error = await error_of(supervisor, question(provider))
    assert error.code == "cli.not_runnable"
    assert str(code) in error.message


NOISY = """
if any(name in os.environ for name in ("ANTHROPIC_LOG", "DEBUG", "NODE_OPTIONS")):
    print("[log_430627] sending request {")
    print("  method: \\"post\\",")
    print("}")
claude("The answer.")
"""


async def test_a_developer_with_debug_variables_gets_no_log_lines(bench: Bench) -> None:
    """A debug variable of the shell put log lines among the events. claude, SDK of 2025-09."""
    environ = planted(bench, "ANTHROPIC_LOG", "DEBUG", "NODE_OPTIONS")
    async with running(bench, "claude", NOISY, environ=environ) as supervisor:
        events = await events_of(supervisor, question("claude"))
    assert kinds(events, "unrecognized") == []
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "The answer."


async def test_a_developer_who_wants_the_debug_variable_still_gets_the_answer(bench: Bench) -> None:
    """The same where the application lets it through. claude 2.1.197."""
    environ = planted(bench, "ANTHROPIC_LOG")
    keep = {"claude": ["ANTHROPIC_LOG"]}
    async with running(bench, "claude", NOISY, environ=environ, keep=keep) as supervisor:
        events = await events_of(supervisor, question("claude"))
    assert len(kinds(events, "unrecognized")) == 3
    assert isinstance(events[-1], Done)
    assert events[-1].completion.text == "The answer."


SECOND_CLASS = """
home = os.environ["CODEX_HOME"]
inside = os.path.realpath(home).startswith(os.path.realpath(os.environ["TMPDIR"]) + "/")
if inside or sys.argv[2] == "always":
    sys.stderr.write("WARNING: proceeding, even though we could not create helper links: refusing to "
                     "create them under the temporary directory\\n")
codex("inside" if inside else "outside")
"""


@pytest.mark.parametrize("when", ["if inside", "always"])
async def test_a_strict_run_has_its_private_home_outside_of_the_temp_folder(
    bench: Bench, when: str
) -> None:
    """A state folder below the temp folder is second-class to the CLI, which warns. codex 0.171.0."""
    async with running(bench, "codex", SECOND_CLASS, when) as supervisor:
        completion = await supervisor.run(ask(hermetic="strict"))
    assert completion.text == "outside"
    assert completion.warnings == ()
