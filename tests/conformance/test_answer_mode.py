"""The supervisor with the real CLIs: every scenario of answer mode, for each pinned version."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import BaseModel

from supervisor import Done, Event, Failed, Request, SupervisorError, Timeouts
from supervisor.model_server import (
    CallTool,
    CutStream,
    Http,
    ModelRequest,
    Say,
    Silence,
    Step,
    StructuredAnswer,
    serve_model,
    text_sent,
)
from tests.conformance.clis import MADE_UP, RealCli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.real_cli

SECONDS = 90
HASTY = Timeouts(linger=2, grace=2)


class Verdict(BaseModel):
    answer: str
    confidence: float
    reason: str | None = None


def ask(cli: RealCli, prompt: str = "What is it?", **given: Any) -> Request[Any]:
    options: dict[str, Any] = {"billing": "api_key", "timeouts": HASTY}
    return Request(provider=cli.provider, prompt=prompt, **{**options, **given})


async def events_of(cli: RealCli, script: Any, request: Request[Any]) -> list[Event]:
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, cli.supervisor(server) as supervisor:
            async with supervisor.stream(request) as run:
                return [event async for event in run]


async def error_of(cli: RealCli, script: Any, request: Request[Any]) -> SupervisorError:
    events = await events_of(cli, script, request)
    assert [event.kind for event in events if event.kind in ("done", "failed")] == ["failed"]
    last = events[-1]
    assert isinstance(last, Failed)
    return last.error


@pytest.fixture(autouse=True)
def no_file_left(home: Path, state_folder: Path) -> Iterator[None]:
    """Neither the private directory nor anything in the temporary folder or the user's state."""

    def temporary() -> set[str]:
        heads = ("claude", "codex", "cc-", "fswatch")
        return {name for name in os.listdir("/tmp") if name.startswith(heads)}

    before = temporary()
    yield
    for folder in (state_folder / "runs", home / ".claude" / "projects"):
        assert not folder.exists() or os.listdir(folder) == []
    assert temporary() - before == set()


async def test_plain_text(cli: RealCli) -> None:
    events = await events_of(cli, [Say(text="It is a test.", thinking="Hm.")], ask(cli))
    kinds = [event.kind for event in events]
    assert kinds[0] == "started"
    assert kinds[-2:] == ["usage", "done"]
    assert kinds.count("text") == 1
    assert set(kinds) <= {"started", "notice", "reasoning", "text_delta", "text", "usage", "done"}
    last = events[-1]
    assert isinstance(last, Done)
    completion = last.completion
    assert completion.text == "It is a test."
    assert completion.exit.code == 0
    assert completion.warnings == ()
    assert completion.cleanup.killed == ()
    assert completion.billing.payer == "api_key"
    usage = completion.usage
    assert usage is not None
    # What each CLI makes of 11 tokens, 1000 from a cache, 100 into it, and 47 with 20 for reasoning.
    parts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
    assert (
        parts
        == {
            "claude 2.1.197": (11, 1000, 100, 47, None),
            "claude 2.1.332": (11, 1000, 100, 47, 0),
            "codex 0.171.0": (11, 1000, 100, 27, 20),
            "gemini 0.61.0": (111, 1000, None, 27, 20),
            "grok 1.0.41": (111, 1000, 0, 27, 20),
        }[cli.name]
    )
    if cli.provider == "codex":
        assert completion.model is None
    else:
        assert completion.model in usage.by_model
        assert kinds.count("text_delta") >= 1
    assert (completion.cost is None) == (cli.provider != "claude")
    if cli.provider == "claude":
        assert completion.cli_version == cli.version


async def test_a_schema_gives_an_instance(cli: RealCli) -> None:
    data = {"answer": "yes", "confidence": 0.5, "reason": None}
    script = [StructuredAnswer(data=data)]
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, cli.supervisor(server) as supervisor:
            completion = await supervisor.run(ask(cli, schema=Verdict))
            (request,) = server.model_requests
    assert completion.data == Verdict(answer="yes", confidence=0.5)
    assert request.json is not None
    if cli.provider in ("codex", "grok"):
        sent = request.json["text"]["format"]
        assert sent["strict"] is True
        assert sent["schema"]["required"] == ["answer", "confidence", "reason"]
    elif cli.provider == "claude":
        assert [tool["name"] for tool in request.json["tools"]] == ["StructuredOutput"]
    else:
        assert any('"confidence"' in part for part in text_sent(request))


async def test_a_schema_that_the_model_does_not_follow(cli: RealCli) -> None:
    error = await error_of(cli, [Say(text="I would rather not.")], ask(cli, schema=Verdict))
    assert error.code == "answer.not_json"
    assert error.partial is not None
    assert error.partial.text == "I would rather not."


def stands_in(cli: RealCli, request: ModelRequest, prompt: str) -> bool:
    """Whether the prompt's bytes stand unbroken where the model reads them.

    That is a turn of the user, but for grok and a prompt in which it would take a word for a file: that
    one goes into the instructions.
    """
    parts = text_sent(request)
    if cli.provider == "grok" and "@" in prompt:
        parts = tuple(strings_in(request.json))
    return any(prompt in part for part in parts)


def strings_in(value: Any) -> list[str]:
    """All strings of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return [value] if isinstance(value, str) else []


PROMPTS = {
    "200 KiB": "x" * 100_000 + " é😀 " + "y" * (200 * 1024 - 100_000),
    "dash": "-p --help is what I typed",
    "help": "/help",
    "command": "/compact now",
    "at file": "@/etc/hostname",
    "at file later": "Read @/etc/hostname and\n@note.txt, please",
    "unicode": 'a "quoted"\r\n\u2028line\ttab \\ $HOME `id`',
    "bang": "!id",
    "hash": "# remember this",
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
async def test_the_prompt_is_data(cli: RealCli, prompt: str) -> None:
    """Its bytes stand unbroken in the request, and no file that it names comes with it."""
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                assert (await supervisor.run(ask(cli, prompt))).text == "Seen."
            (request,) = server.model_requests
    assert stands_in(cli, request, prompt)
    body = request.body.decode()
    assert body.count("/etc/hostname") == prompt.count("/etc/hostname")


async def test_no_file_that_the_prompt_names_is_attached(cli: RealCli) -> None:
    marker = "CONTENT-OF-THE-FILE"
    note = cli.home / "note.txt"
    note.write_text(marker)
    prompt = f"@{note} @~/note.txt"
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                await supervisor.run(ask(cli, prompt))
            (request,) = server.model_requests
    assert marker not in request.body.decode()
    assert stands_in(cli, request, prompt)


ERRORS: dict[str, tuple[Step, str, int | None]] = {
    "401": (Http(status=401, error_type="authentication_error", message="no"), "auth.expired", 401),
    "429": (Http(status=429, error_type="rate_limit_error", message="slow"), "limit.rate", 429),
    "500": (Http(status=500, error_type="api_error", message="oops"), "provider.error", 500),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_of_the_server(cli: RealCli, name: str) -> None:
    step, code, status = ERRORS[name]
    error = await error_of(cli, [step], ask(cli))
    assert error.code == code
    # codex 0.171.0 keeps the status of a 429 and of a 500 to itself, grok 1.0.41 that of a 429.
    hides = {"codex": (429, 500), "grok": (429,)}.get(cli.provider, ())
    assert error.failure.status in ((status, None) if status in hides else (status,))
    assert MADE_UP not in str(error)
    assert error.partial is not None
    assert error.partial.text == ""


@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_a_cut_stream_is_no_answer(cli: RealCli, how: Any) -> None:
    error = await error_of(cli, [CutStream(after_text="It is", how=how)], ask(cli))
    # gemini 0.61.0 says of a clean end only that the model gave no reason for it.
    unclear = cli.provider == "gemini" and how == "end"
    assert error.code == ("protocol.truncated" if unclear else "network")
    assert error.retryable


async def test_a_stream_cut_behind_a_whole_block_is_no_answer(cli: RealCli) -> None:
    """claude 2.1.197 calls this a success."""
    script = [CutStream(after_text="It is", how="end", block_done=True)]
    error = await error_of(cli, script, ask(cli))
    unclear = cli.name in ("claude 2.1.197", "gemini 0.61.0")
    assert error.code == ("protocol.truncated" if unclear else "network")
    assert error.partial is not None
    assert error.partial.text == "It is"


@pytest.mark.parametrize("after", [None, "It is"], ids=["no headers", "in the text"])
async def test_a_server_that_goes_silent_is_ended_by_our_limit(
    cli: RealCli, after: str | None, cell: Callable[[str], None]
) -> None:
    timeouts = Timeouts(idle=3, total=6, grace=2)
    error = await error_of(cli, [Silence(after_text=after)], ask(cli, timeouts=timeouts))
    # While codex thinks its stream is silent, so only the total limit can end it.
    assert error.code == ("timeout.total" if cli.provider == "codex" else "timeout.idle")
    cell(error.code)
    assert error.partial is not None
    assert error.partial.exit is not None
    assert error.partial.exit.ended_by_us


async def test_a_cancel_in_mid_run_leaves_no_terminal_event(cli: RealCli) -> None:
    kinds: list[str] = []
    with trio.fail_after(SECONDS):
        async with serve_model([Silence(after_text="It is")]) as server:
            async with cli.supervisor(server) as supervisor:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:

                        async def cancel() -> None:
                            await server.wait_model_requests(1)
                            scope.cancel()

                        nursery.start_soon(cancel)
                        async with supervisor.stream(ask(cli)) as run:
                            kinds += [event.kind async for event in run]
                assert scope.cancelled_caught
                assert cli.homes() == []
            await server.wait_idle()
    assert not {"done", "failed"} & set(kinds)


async def test_ten_runs_at_once_share_one_login_home(cli: RealCli) -> None:
    def answer(request: ModelRequest) -> Step:
        (number,) = {
            part.split()[-1] for part in text_sent(request) if part.startswith("Say the number")
        }
        return Say(text=f"number {number}")

    found: dict[int, str] = {}
    with trio.fail_after(3 * SECONDS):
        async with serve_model(answer) as server, cli.supervisor(server) as supervisor:

            async def one(number: int) -> None:
                request = ask(cli, f"Say the number {number}")
                found[number] = (await supervisor.run(request)).text

            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(one, number)
    assert found == {number: f"number {number}" for number in range(10)}


async def test_a_tool_call_runs_no_tool(cli: RealCli) -> None:
    """The model asks for a shell all the same; nothing is run, and the run ends in an answer."""
    names = {"claude": "Bash", "codex": "exec_command", "gemini": "run_shell_command"}
    name = names.get(cli.provider, "run_terminal_command")
    touched = cli.home / "touched"
    arguments = {"command": f"touch {touched}", "cmd": f"touch {touched}"}
    script = [CallTool(name=name, arguments=arguments), Say(text="I cannot.")]
    events = await events_of(cli, script, ask(cli))
    assert not touched.exists()
    last = events[-1]
    if isinstance(last, Failed):
        assert last.error.code == "policy.tool_used"
    else:
        assert isinstance(last, Done)
        assert last.completion.text == "I cannot."


async def test_nothing_of_the_users_configuration_reaches_the_model(cli: RealCli) -> None:
    """Memory files, hooks, servers and settings of the user stay outside, all that can be."""
    marker, ran = "SECRET-OF-THE-USER", cli.home / "hook-ran"
    plant(cli.home, marker, ran)
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                await supervisor.run(ask(cli))
            bodies = [request.body for request in server.model_requests]
    assert not ran.exists()
    assert {marker.encode() in body for body in bodies} == {cli.provider == "codex"}


def plant(home: Path, marker: str, ran: Path) -> None:
    """What a user may have: and what of it, in one CLI, no flag can switch off.

    codex 0.171.0 sends the AGENTS.md of its own state folder whatever it is told.
    """
    hook = {"type": "command", "command": f"touch {ran}"}
    hooks = f'{{"hooks":{{"SessionStart":[{{"hooks":[{hook}]}}]}}}}'.replace("'", '"')
    (home / ".claude" / "settings.json").write_text(hooks)
    (home / ".claude" / "CLAUDE.md").write_text(marker)
    (home / ".codex" / "AGENTS.md").write_text(marker)
    for name in ("AGENTS.md", "CLAUDE.md"):
        (home / ".grok" / name).write_text(marker)
    (home / ".gemini" / "GEMINI.md").write_text(marker)
    (home / ".gemini" / "settings.json").write_text(hooks)
    (home / ".codex" / "config.toml").write_text(f'notify = ["touch", "{ran}"]\n')


async def test_no_skill_of_the_user_or_of_the_cli_is_attached(cli: RealCli) -> None:
    """codex 0.171.0 puts the whole file of a skill into the request when the prompt says `$name`."""
    marks = []
    for folder in (".codex/skills/folder", ".agents/skills/deep/er", ".claude/skills/third"):
        path = cli.home / folder / "SKILL.md"
        path.parent.mkdir(parents=True)
        marks.append(f"CONTENT-OF-{path.parent.name}")
        path.write_text(f"---\nname: my-{path.parent.name}\ndescription: x\n---\n{marks[-1]}\n")
    linked = cli.home / "elsewhere"
    linked.mkdir()
    (linked / "SKILL.md").write_text("---\nname: my-linked\ndescription: x\n---\nCONTENT-OF-linked")
    (cli.home / ".codex" / "skills" / "linked").symlink_to(linked)
    names = ("my-folder", "my-er", "my-third", "my-linked", "skill-creator", "imagegen")
    prompt = "What does this mean: " + " ".join(f"${name} @{name} /{name}" for name in names)
    with trio.fail_after(2 * SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                for _ in range(2):  # the CLI may have brought its own by the second time
                    assert (await supervisor.run(ask(cli, prompt))).text == "Seen."
            bodies = [request.body.decode() for request in server.model_requests]
    for body in bodies:
        assert [mark for mark in (*marks, "CONTENT-OF-linked", "<skill>") if mark in body] == []
    assert all(stands_in(cli, request, prompt) for request in server.model_requests)


async def test_a_system_text_reaches_the_model(cli: RealCli) -> None:
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                await supervisor.run(ask(cli, system='Say "é" twice.\nAnd stop.'))
            (request,) = server.model_requests
    assert request.json is not None
    assert "And stop." in request.body.decode()
    assert not any("And stop." in part for part in text_sent(request)) or cli.provider == "codex"


async def test_model_and_effort_reach_the_server(cli: RealCli) -> None:
    models = {"claude": "claude-sonnet-4-5-20250929", "codex": "gpt-5.5", "grok": "grok-4.5"}
    model = models.get(cli.provider, "gemini-2.5-flash")
    effort = {} if cli.provider == "gemini" else {"effort": "high"}
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with cli.supervisor(server) as supervisor:
                completion = await supervisor.run(ask(cli, model=model, **effort))
            (request,) = server.model_requests
    assert request.json is not None
    assert model in (request.json.get("model"), request.path.split("/")[-1].partition(":")[0])
    assert completion.effort == effort.get("effort")
    assert completion.model == model
    if cli.provider in ("codex", "grok"):
        assert request.json["reasoning"]["effort"] == "high"


async def test_a_subscription_login_is_used_and_shown(claude_login: RealCli) -> None:
    """A made-up OAuth token, named by the application; no key is in force."""
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with claude_login.supervisor(
                server, keep={"claude": ["CLAUDE_CODE_OAUTH_TOKEN"]}, environ=login_of(claude_login)
            ) as supervisor:
                completion = await supervisor.run(ask(claude_login, billing="subscription"))
            (request,) = server.model_requests
    assert completion.billing.payer == "subscription"
    assert request.headers["authorization"] == "Bearer sk-ant-oat01-made-up"
    assert "x-api-key" not in request.headers


def login_of(cli: RealCli) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(cli.home),
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-made-up",
    }


async def test_a_key_that_a_helper_brings_in_is_caught_by_the_clis_own_word(
    claude_login: RealCli,
) -> None:
    """The managed settings of a machine cannot be switched off; the evidence is checked instead."""
    settings = claude_login.home / "settings.json"
    settings.write_text('{"apiKeyHelper":"echo sk-ant-made-up"}')
    program = [str(claude_login.program), "--settings", str(settings)]
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            async with claude_login.supervisor(
                server,
                programs={"claude": program},
                keep={"claude": ["CLAUDE_CODE_OAUTH_TOKEN"]},
                environ=login_of(claude_login),
            ) as supervisor:
                with pytest.raises(SupervisorError) as caught:
                    await supervisor.run(ask(claude_login, billing="subscription"))
    assert caught.value.code == "auth.api_key_in_use"
    assert "apiKeyHelper" in caught.value.message


async def test_a_missing_login_is_named(cli: RealCli) -> None:
    with trio.fail_after(SECONDS):
        async with serve_model([Say(text="Seen.")]) as server:
            environ = {"PATH": os.environ["PATH"], "HOME": str(cli.home)}
            async with cli.supervisor(server, environ=environ) as supervisor:
                policy = "any" if cli.provider == "gemini" else "subscription"
                with pytest.raises(SupervisorError) as caught:
                    await supervisor.run(ask(cli, billing=policy))
            assert server.model_requests == ()
    assert caught.value.code == "auth.required"
