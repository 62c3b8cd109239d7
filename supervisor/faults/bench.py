"""Where a check works: a state folder of its own, and eyes for what is left behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import trio

from supervisor.faults.stream import scripted
from supervisor.model.events import Done, Failed
from supervisor.model.request import Request, Timeouts
from supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from supervisor.faults.stream import Step, Stream
    from supervisor.model.completion import Completion, Partial
    from supervisor.model.errors import SupervisorError
    from supervisor.model.events import Event

BOUND = 30.0
"""Seconds that no check takes unless something hangs."""

HASTY = Timeouts(start=10, idle=10, total=20, linger=0.2, grace=0.2, drain=0.2)


class CheckError(Exception):
    """A check found what it must not find; the text says it in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave: its events in order, and its completion or its error."""

    events: tuple[Event, ...]
    completion: Completion[Any] | None
    error: SupervisorError | None

    @property
    def code(self) -> str:
        """ "ok", or the error's code."""
        return "ok" if self.error is None else self.error.code

    def good(self, text: str = "The answer.") -> Completion[Any]:
        """The completion, which must hold `text`."""
        require(self.completion is not None, f"the run failed with {self.code}")
        assert self.completion is not None
        require(self.completion.text == text, "the answer is not the one that was given")
        return self.completion

    def bad(self, *codes: str) -> Partial:
        """What was there, after a failure with one of the codes."""
        require(self.error is not None, "the run is called a success")
        assert self.error is not None
        require(self.code in codes, f"the error is {self.code} and not {' or '.join(codes)}")
        require(self.error.partial is not None, "the error holds no partial")
        assert self.error.partial is not None
        return self.error.partial


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """One check's place.

    Attributes:
        stream: the dialect that the scripted CLI speaks.
        folder: the check's own directory.
        options: further arguments for each Supervisor.
    """

    stream: Stream
    folder: Path
    options: Mapping[str, Any]

    @property
    def ledger(self) -> Path:
        """Where every process of a scripted CLI enters itself: see the step "ledger"."""
        return self.folder / "ledger"

    @property
    def runs(self) -> Path:
        """The folder of the private directories."""
        return self.folder / "state" / "runs"

    def path(self, name: str) -> str:
        """A path in the check's own directory."""
        return str(self.folder / name)

    def program(self, *steps: Step) -> tuple[str, ...]:
        """A scripted CLI that enters its processes in the ledger."""
        return scripted(["ledger", str(self.ledger)], *steps)

    def supervisor(self, *steps: Step, **given: Any) -> Supervisor:
        """A supervisor over a scripted CLI."""
        return self.over(self.program(*steps), **given)

    def over(self, program: tuple[str, ...], **given: Any) -> Supervisor:
        """A supervisor over any program."""
        options: dict[str, Any] = {
            "state_dir": self.folder / "state",
            "variables": {self.stream.provider: self.stream.variables},
            **self.options,
            **given,
        }
        return Supervisor(programs={self.stream.provider: program}, **options)

    def ask(self, prompt: str = "What is it?", **given: Any) -> Request[Any]:
        """A request with short limits."""
        options: dict[str, Any] = {"timeouts": HASTY, "billing": "any", **given}
        return Request(provider=self.stream.provider, prompt=prompt, **options)

    async def run(self, *steps: Step, **given: Any) -> Outcome:
        """One run to its end."""
        async with self.supervisor(*steps) as supervisor:
            return await outcome_of(supervisor, self.ask(**given))

    def alive(self) -> list[int]:
        """The processes of the ledger that live, by number and start time."""
        if not self.ledger.exists():
            return []
        entries = [line.split() for line in self.ledger.read_text().splitlines()]
        return [int(pid) for pid, ticks in entries if _lives(int(pid), ticks)]

    def require_clean(self) -> None:
        """Nothing may be left: no process, no directory, no lease."""
        left = [f"{pid}" for pid in self.alive()]
        require(not left, f"processes are left: {', '.join(left)}")
        files = os.listdir(self.runs) if self.runs.exists() else []
        require(not files, f"files are left: {', '.join(files)}")


class Work(Protocol):
    """The body of a check."""

    async def __call__(self, bench: Workbench) -> None: ...


def require(holds: bool, otherwise: str) -> None:
    """Fail the check with a sentence unless `holds`."""
    if not holds:
        raise CheckError(otherwise)


async def outcome_of(supervisor: Supervisor, request: Request[Any]) -> Outcome:
    """A run's events and end. There must be exactly one terminal event, the last one."""
    async with supervisor.stream(request) as run:
        events = tuple([event async for event in run])
    terminal = [event for event in events if isinstance(event, (Done, Failed))]
    require(len(terminal) == 1 and events[-1] is terminal[0], "there is not one terminal event")
    last = terminal[0]
    if isinstance(last, Done):
        return Outcome(events=events, completion=last.completion, error=None)
    return Outcome(events=events, completion=None, error=last.error)


async def appears(path: str) -> None:
    """Wait for a sign that a scripted CLI gives."""
    await _until(lambda: os.path.exists(path), "the sign of the scripted CLI did not come")


async def all_gone(bench: Workbench, seconds: float) -> None:
    """Wait until no process of the ledger lives."""
    with trio.move_on_after(seconds):
        await _until(lambda: not bench.alive(), "")
    left = bench.alive()
    require(not left, f"{len(left)} processes live {seconds:g} s later")


async def _until(holds: Callable[[], bool], otherwise: str) -> None:
    with trio.move_on_after(BOUND):
        while not holds():  # noqa: ASYNC110 -- no event crosses a process
            await trio.sleep(0.005)
        return
    raise CheckError(otherwise)


def _lives(pid: int, ticks: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X") and fields[19] == ticks
