"""Every adapter keeps the contract, and a new one costs a file and a folder of fixtures."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from supervisor import Done, Request, Supervisor, provider_names, register
from supervisor.adapters import find_adapter
from supervisor.faults import CHECKS, Check, read_stream, run_check
from tests.contract import (
    check_planning,
    check_recordings,
    check_refusals,
    check_words,
)
from tests.fakes import RECORDINGS, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from supervisor.model.adapter import Adapter
    from tests.fakes import Bench


@pytest.mark.parametrize("provider", provider_names())
def test_an_adapter_of_this_package_keeps_the_contract(provider: str) -> None:
    adapter = find_adapter(provider)
    check_words(adapter)
    check_planning(adapter)
    check_refusals(adapter)


@pytest.mark.parametrize("provider", provider_names())
def test_every_cli_has_recorded_runs(provider: str) -> None:
    assert len(list((RECORDINGS / provider).glob("*/expect.json"))) >= 25


# ---- somebody's own adapter: all that it takes is below

TOY = '''
"""The toy CLI, of which one line in and one line out is all."""

from supervisor.model.adapter import Adapter, Capabilities
from supervisor.model.completion import Billing, Usage
from supervisor.model.errors import failure
from supervisor.model.events import Started, Text, TurnEnded, Unrecognized
from supervisor.model.launch import Launch
from supervisor.protocol.decode import count, obj, string


class Toy(Adapter):
    kind = "toy"
    program = "toy"
    tested_versions = ("1.0.0",)
    capabilities = Capabilities(efforts=("low", "high"), system=False)

    def plan(self, request, surroundings):
        arguments = ("--json",)
        if request.model is not None:
            arguments += ("--model", request.model)
        if request.effort is not None:
            arguments += ("--effort", request.effort)
        return Launch(
            arguments=arguments,
            stdin=request.prompt.encode(),
            terminal=True,
            model=request.model,
            effort=request.effort,
            effort_source=request.effort and "request",
        )

    def decoder(self, request, surroundings):
        return Decoder()

    def diagnose(self, exit, stderr):
        return failure("auth.required") if "sign in" in stderr else None


class Decoder:
    def record(self, value, size, at):
        match string(value, "say"):
            case "hello":
                return [Started(session_id=string(value, "id"))]
            case "word":
                return [Text(text=string(value, "text") or "")]
            case "bye":
                good = string(value, "how") == "well"
                usage = Usage(output=count(obj(value, "spent"), "out"))
                return [TurnEnded(failure=None if good else failure("model.error"), usage=usage)]
            case name:
                return [Unrecognized(type=name, size=size)]

    def billing(self):
        return Billing(payer="unknown", evidence="the toy does not say")


ADAPTER = Toy()
'''
STREAM = {
    "source": "made up",
    "start": '{"say":"hello","id":"1"}',
    "status": '{"say":"hm"}',
    "text": ['{"say":"word","text":"@TEXT@"}'],
    "end": '{"say":"bye","how":"well","spent":{"out":7}}',
}
RECORDED = '{"say":"hello","id":"1"}\n{"say":"word","text":"Hi."}\n{"say":"bye","how":"well"}\n'
EXPECTED = {
    "exit_code": 0,
    "signal": None,
    "schema": False,
    "tool_used": False,
    "outcome": "ok",
    "status": None,
    "resets_at": None,
    "text": "Hi.",
    "model": None,
    "payer": "unknown",
    "usage": [None, None, None, None, None],
    "unrecognized": 0,
}


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[tuple[Adapter, Path]]:
    """An adapter outside of this package, registered, and its folder of fixtures."""
    package, fixtures = tmp_path / "somebodys", tmp_path / "fixtures"
    package.mkdir()
    (package / "toy_adapter.py").write_text(TOY)
    (fixtures / "hello").mkdir(parents=True)
    (fixtures / "stream.json").write_text(json.dumps(STREAM))
    (fixtures / "hello" / "stdout").write_text(RECORDED)
    (fixtures / "hello" / "expect.json").write_text(json.dumps(EXPECTED))
    spec = importlib.util.spec_from_file_location("toy_adapter", package / "toy_adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    undo = register(module.ADAPTER)
    try:
        yield module.ADAPTER, fixtures
    finally:
        undo()


def test_a_new_adapter_keeps_the_contract(toy: tuple[Adapter, Path]) -> None:
    adapter, fixtures = toy
    check_words(adapter)
    check_planning(adapter)
    check_refusals(adapter)
    assert check_recordings(adapter, fixtures) == 1


@pytest.mark.parametrize(
    "check", [c for c in CHECKS if not c.other_program], ids=lambda check: check.name
)
async def test_a_new_adapter_passes_the_fault_kit(check: Check, toy: tuple[Adapter, Path]) -> None:
    await run_check(check, read_stream("toy", toy[1] / "stream.json"))


async def test_a_cli_that_prints_only_to_a_terminal_is_read(
    bench: Bench, toy: tuple[Adapter, Path]
) -> None:
    code = (
        "import os, sys\n"
        "assert sys.stdin.read() == 'What is it?'\n"
        "if not os.isatty(1): sys.exit(3)\n"
        "try: open('/dev/tty'); sys.exit(4)\n"  # a terminal, and not its controlling one
        "except OSError: pass\n"
        "sys.stdout.write('\\x1b[32m' + sys.argv[1].replace('\\n', '\\x1b[0m\\r\\n', 1))\n"
    )
    program = [sys.executable, "-c", code, RECORDED]
    for mode in ("auto", "group"):
        given: Any = {"containment": mode, "state_dir": bench.state}
        async with Supervisor(programs={"toy": program}, **given) as supervisor:
            events = await events_of(supervisor, Request(provider="toy", prompt="What is it?"))
        last = events[-1]
        assert isinstance(last, Done), events
        assert last.completion.text == "Hi."


def test_a_contract_that_is_broken_is_seen(toy: tuple[Adapter, Path]) -> None:
    adapter, fixtures = toy
    wrong = {**EXPECTED, "text": "Bye."}
    (fixtures / "hello" / "expect.json").write_text(json.dumps(wrong))
    with pytest.raises(AssertionError, match="hello"):
        check_recordings(adapter, fixtures)
