"""Scripted CLIs for tests: each is a real subprocess, started through the door that users have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor import Event, Request, Supervisor, SupervisorError
from supervisor.faults import scripted

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDINGS = FIXTURES / "recordings"

Step = list[Any]


def fake(*steps: Step) -> list[str]:
    """The program entry for a scripted CLI."""
    return list(scripted(*steps))


def recorded(case: str) -> Step:
    """A step that prints what a real CLI printed, e.g. "codex/b1-schema-ok"."""
    return ["file", str(RECORDINGS / case / "stdout")]


GOOD = recorded("codex/a4-reasoning-two-messages")
"""A good codex turn; its answer is "second message"."""

STATUS = '{"type":"system","subtype":"status"}'

STARTED = ["print", '{"type":"thread.started","thread_id":"t-1"}']


def message(text: str) -> Step:
    """A codex message event."""
    item = {"id": "item_0", "type": "agent_message", "text": text}
    return ["print", json.dumps({"type": "item.completed", "item": item})]


COMPLETED = ["print", '{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":2}}']


@dataclass(frozen=True)
class Bench:
    """A test's own folder, and supervisors that keep their state in it."""

    path: Path

    @property
    def state(self) -> Path:
        return self.path / "state"

    def supervisor(self, *steps: Step, provider: str = "codex", **given: Any) -> Supervisor:
        return Supervisor(programs={provider: fake(*steps)}, state_dir=self.state, **given)

    def homes(self) -> list[str]:
        """The private directories that exist."""
        runs = self.state / "runs"
        return (
            sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.exists() else []
        )


def ask(prompt: str = "What is it?", provider: str = "codex", **given: Any) -> Request[Any]:
    return Request(provider=provider, prompt=prompt, **given)


async def events_of(supervisor: Supervisor, request: Request[Any]) -> list[Event]:
    """All events of a run, read to the end."""
    async with supervisor.stream(request) as run:
        return [event async for event in run]


async def error_of(supervisor: Supervisor, request: Request[Any]) -> SupervisorError:
    """The error that a run ends in, which must also be its one terminal event."""
    events = await events_of(supervisor, request)
    assert [event.kind for event in events if event.kind in ("done", "failed")] == ["failed"]
    last = events[-1]
    assert last.kind == "failed"
    return last.error
