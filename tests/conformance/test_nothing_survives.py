"""The real CLIs with a shell: what the model starts in the background is gone when the run is.

Answer mode offers no tool, so an adapter of the test's own starts the CLIs as agents do: with a shell,
which has a session of its own for each command, and without the CLI's sandbox, which would hide what
we must clean up.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from supervisor import Failed, Notice, Request, Supervisor, Timeouts, register
from supervisor.adapters.claude import Claude
from supervisor.adapters.codex import Codex
from supervisor.model.events import ToolFinished, ToolStarted
from supervisor.model_server import CallTool, Say, Silence, Step, serve_model
from tests.conformance.clis import RealCli  # noqa: TC001 -- the host program takes it from here
from tests.conformance.conftest import PINNED, real_cli

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from supervisor.model.adapter import Decoder, JsonObject, Surroundings
    from supervisor.model.completion import Billing
    from supervisor.model.events import Record
    from supervisor.model.launch import Launch
    from supervisor.model_server import ModelServer

pytestmark = pytest.mark.real_cli

SECONDS = 90
NAPS = ("sleep 300.5 &", "setsid sleep 301.5 &", "nohup setsid sleep 302.5 >/dev/null 2>&1 &")


class Lenient:
    """A decoder that calls a tool's events a notice: here tools are wanted."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        return [
            Notice(code="status", message="tool")
            if isinstance(record, (ToolStarted, ToolFinished))
            else record
            for record in self._inner.record(value, size, at)
        ]

    def billing(self) -> Billing:
        return self._inner.billing()


class AgentClaude(Claude):
    kind = "agent-claude"

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        launch = super().plan(request, surroundings)
        arguments = list(launch.arguments)
        arguments[arguments.index("--tools") + 1] = "Bash"
        arguments += ["--permission-mode", "bypassPermissions"]
        return replace(
            launch,
            arguments=tuple(arguments),
            environment={**launch.environment, "IS_SANDBOX": "1"},
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> Any:
        return Lenient(super().decoder(request, surroundings))


class AgentCodex(Codex):
    kind = "agent-codex"

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        launch = super().plan(request, surroundings)
        words = list(launch.arguments)
        for feature in ("shell_tool", "unified_exec"):
            at = words.index(feature)
            del words[at - 1 : at + 1]
        words[words.index("read-only")] = "danger-full-access"
        return replace(launch, arguments=(*words[:-1], "-m", "gpt-5.5", "-"))

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> Any:
        return Lenient(super().decoder(request, surroundings))


@pytest.fixture(params=PINNED[:3])
def cli(request: pytest.FixtureRequest, home: Path, state_folder: Path) -> RealCli:
    """The CLIs for which there is an agent above."""
    return real_cli(request.param, home, state_folder)


@pytest.fixture(autouse=True)
def agents() -> Iterator[None]:
    undo = [register(AgentClaude()), register(AgentCodex())]
    yield
    for each in undo:
        each()


def agent(cli: RealCli, server: ModelServer | str, **given: Any) -> Supervisor:
    """A supervisor over the CLI as an agent: the options of answer mode under the agent's name."""
    name = f"agent-{cli.provider}"
    options = cli.options(server)
    for key in ("programs", "keep", "variables"):
        found = options[key]
        options[key] = {name: found[cli.provider]} if cli.provider in found else {}
    return Supervisor(**{**options, **given})


def ask(cli: RealCli, **timeouts: float) -> Request[Any]:
    limits = Timeouts(**{"linger": 1, "grace": 2, "total": 60, **timeouts})  # type: ignore[arg-type]
    return Request(
        provider=f"agent-{cli.provider}", prompt="Go.", billing="api_key", timeouts=limits
    )


def naps(cli: RealCli, ready: Path) -> Step:
    """The model asks for three background processes, then gives a sign."""
    command = " ".join(NAPS) + f" touch {ready}; sleep 0.1"
    if cli.provider == "claude":
        return CallTool(name="Bash", arguments={"command": command, "description": "nap"})
    return CallTool(name="exec_command", arguments={"cmd": command})


def sleepers() -> list[int]:
    """Every process on the machine that is one of the naps, whoever its parent is."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                words = stream.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[0].endswith(b"sleep") and words[1] in NAP_SECONDS:
            found.append(int(name))
    return found


NAP_SECONDS = (b"300.5", b"301.5", b"302.5")


@pytest.fixture(params=["auto", "loop"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


async def appears(path: Path) -> None:
    with trio.fail_after(SECONDS):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 -- no event crosses a process
            await trio.sleep(0.01)


async def test_after_a_good_run(cli: RealCli, mode: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = [naps(cli, ready), Say(text="Done.")]
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, agent(cli, server, containment=mode) as agents:
            completion = await agents.run(ask(cli))
    assert sleepers() == []
    assert completion.text == "Done."
    assert ready.exists()
    assert completion.cleanup.proven
    assert {killed.name for killed in completion.cleanup.killed} >= {"sleep"}


async def test_after_a_cancel(cli: RealCli, mode: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = [naps(cli, ready), Silence()]
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, agent(cli, server, containment=mode) as agents:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def cancel() -> None:
                        await appears(ready)
                        await server.wait_model_requests(2)
                        assert len(sleepers()) >= 2  # codex ends the plain one itself
                        scope.cancel()

                    nursery.start_soon(cancel)
                    await agents.run(ask(cli))
            assert sleepers() == []
    assert scope.cancelled_caught


async def test_after_a_timeout(cli: RealCli, mode: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = [naps(cli, ready), Silence()]
    with trio.fail_after(SECONDS):
        async with serve_model(script) as server, agent(cli, server, containment=mode) as agents:
            async with agents.stream(ask(cli, total=6)) as run:
                events = [event async for event in run]
    assert sleepers() == []
    assert ready.exists()
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "timeout.total"


HOST = """
import sys, trio
from tests.conformance.test_nothing_survives import *
from pathlib import Path
provider, version, program, home, state, url, mode = sys.argv[1:]
cli = RealCli(provider, version, Path(program), Path(home), Path(state))
register(AgentClaude()); register(AgentCodex())
async def main():
    async with agent(cli, url, containment=mode) as agents:
        await agents.run(ask(cli))
trio.run(main)
"""


async def test_after_the_supervisor_was_killed(cli: RealCli, mode: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with trio.fail_after(SECONDS):
        async with serve_model([naps(cli, ready), Silence()]) as server:
            paths = map(str, (cli.program, cli.home, cli.state))
            arguments = (cli.provider, cli.version, *paths, server.url, mode)
            command = [sys.executable, "-c", HOST, *arguments]
            environ = {**os.environ, "PYTHONPATH": os.getcwd()}
            host = await trio.lowlevel.open_process(command, env=environ)
            try:
                await appears(ready)
                await server.wait_model_requests(2)
                assert len(sleepers()) >= 2
            finally:
                host.kill()
                await host.wait()
            with trio.fail_after(2):
                while sleepers():  # noqa: ASYNC110 -- no event crosses a process
                    await trio.sleep(0.005)
            await server.wait_idle()
        async with serve_model([Say(text="Again.")]) as server, agent(cli, server) as agents:
            assert (await agents.run(ask(cli))).text == "Again."
    assert os.listdir(cli.state / "runs") == []
