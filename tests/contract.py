"""What every adapter must hold, whoever wrote it: checks that need only the adapter and its fixtures.

A fixture folder holds `stream.json` (see `supervisor.faults.read_stream`) and a folder for each
recorded run with `stdout`, `stderr` and `expect.json`.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from supervisor import Exit, Request, RequestError
from supervisor.model.adapter import Surroundings
from supervisor.model.events import Unrecognized
from supervisor.model.launch import Places
from supervisor.protocol.accumulate import Accumulator, End
from supervisor.protocol.asked import asked
from supervisor.protocol.checks import check_request
from supervisor.protocol.decode import read_objects
from supervisor.protocol.framer import Dropped, Framer
from supervisor.protocol.supported import check_supported

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from supervisor.model.adapter import Adapter
    from supervisor.model.launch import Launch

PLACES = Places(
    run_id="0123456789ab",
    work="/s/runs/0123456789ab/work",
    files="/s/runs/0123456789ab/files",
    state="/s/runs/0123456789ab/state",
    temporary="/s/runs/0123456789ab/tmp",
)
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEYS: Mapping[str, dict[str, str]] = {"gemini": {"GEMINI_API_KEY": "made-up"}}
"""What a CLI that knows only keys must be given."""

PROMPTS = (
    "What is it?",
    "-x",
    "--help",
    "/help me",
    "!ls",
    "a\r\n \u2028b",
    "é😀 \\ \"'`$",
    "x" * 9,
)


def around(adapter: Adapter) -> Surroundings:
    """Surroundings without any file of a user."""
    environ = {"HOME": "/home/user", **KEYS.get(adapter.kind, {})}
    return Surroundings(places=PLACES, environ=environ, version="999.0.0")


def planned(adapter: Adapter, **given: Any) -> Launch:
    """The plan for a request that goes the way of a real one."""
    request = Request(**{"provider": adapter.kind, "prompt": "What is it?", **given})
    check_request(request)
    check_supported(request, adapter)
    return adapter.plan(asked(request, adapter.capabilities, None), around(adapter))


def check_planning(adapter: Adapter) -> None:
    """A plan is the same each time, carries the prompt as data, and stays in the private places."""
    for prompt in PROMPTS:
        launch = planned(adapter, prompt=prompt)
        assert launch == planned(adapter, prompt=prompt)
        carried = [launch.stdin, *(file.content for file in launch.files)]
        carried += [word.encode() for word in launch.arguments]
        forms = (prompt.encode(), json.dumps(prompt)[1:-1].encode())
        forms += (json.dumps(prompt, ensure_ascii=False)[1:-1].encode(),)
        assert any(form in text for form in forms for text in carried), prompt
        bare = [i for i, word in enumerate(launch.arguments) if word == prompt and len(prompt) > 1]
        assert bare == [], prompt
    names = [(file.place, file.name) for file in launch.files]
    assert len(set(names)) == len(names)
    assert all(".." not in name and not name.startswith("/") for _, name in names)
    assert all("0123456789ab" in path.rpartition("/")[2] for path in launch.discard)
    assert all(0 <= position < len(launch.arguments) for position in launch.secrets)


def check_refusals(adapter: Adapter) -> None:
    """What the capabilities leave out is refused by name; what they name is planned."""
    can = adapter.capabilities
    for level in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"):
        if level not in can.efforts:
            refused(adapter, {"effort": level})
            continue
        launch = planned(adapter, effort=level)
        assert (launch.effort, launch.effort_source) == (level, "request")
    wishes: tuple[tuple[bool, dict[str, Any]], ...] = (
        (can.system, {"system": "Be brief."}),
        (can.max_turns, {"max_turns": 3}),
        (can.mcp, {"mcp_config": {"toy": {"command": "/bin/true"}}}),
        (can.sessions, {"resume": "3f0c6d1e-5a3b-4c1d-9e8f-0a1b2c3d4e5f"}),
        (can.sessions, {"keep_session": True}),
        (can.strict, {"hermetic": "strict"}),
        ("read" in can.access, {"access": "read", "workspace": "/home/user/project"}),
        (True, {"model": "some-model"}),
        (True, {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    )
    for possible, wish in wishes:
        if possible:
            planned(adapter, **wish)
        else:
            refused(adapter, wish)


def refused(adapter: Adapter, wish: dict[str, Any]) -> None:
    """A wish that is told to be none before anything starts."""
    with pytest.raises(RequestError) as caught:
        planned(adapter, **wish)
    assert caught.value.code == "request.unsupported", wish


def check_recordings(adapter: Adapter, folder: Path, at: datetime = AT) -> int:
    """Each recorded run means what its expectation says. Gives how many there were."""
    cases = sorted(path.parent for path in folder.glob("*/expect.json"))
    for case in cases:
        found, expected = reading(adapter, case, at)
        assert found == {key: expected[key] for key in found}, case.name
    return len(cases)


def reading(adapter: Adapter, case: Path, at: datetime) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a recorded run means now, and what it should."""
    expected = json.loads((case / "expect.json").read_text())
    stdout, stderr = (
        path.read_bytes() if (path := case / name).exists() else b""
        for name in ("stdout", "stderr")
    )
    schema = {"type": "object"} if expected["schema"] else None
    request: Request[Any] = Request(provider=adapter.kind, prompt="x", billing="any", schema=schema)
    decoder = adapter.decoder(request, around(adapter))
    kept = Accumulator(request, optional_as_null=False)
    framer, unrecognized = Framer(request.limits.line_bytes), 0
    for line in [*framer.feed(stdout), *framer.finish()]:
        assert not isinstance(line, Dropped)
        for value in read_objects(line):
            known = not isinstance(value, Unrecognized)
            for record in decoder.record(value, len(line), at) if known else (value,):
                unrecognized += isinstance(record, Unrecognized)
                kept.take(record)
    used = kept.violation is not None and kept.violation.code == "policy.tool_used"
    kept.violation = None  # recordings of agent runs use tools, and still have an outcome
    number = expected["signal"]
    ended = Exit(
        code=expected["exit_code"],
        signal=None if number is None else int(getattr(signal, number)),
        ended_by_us=False,
    )
    diagnosis = adapter.diagnose(ended, stderr.decode("utf-8", "replace"))
    verdict = kept.settle(End(exit=ended, diagnosis=diagnosis))
    fact, usage, text = verdict.failure, kept.usage, verdict.text
    counters = ("input", "cache_read", "cache_write", "output", "reasoning")
    found = {
        "outcome": "ok" if fact is None else fact.code,
        "status": None if fact is None else fact.status,
        "resets_at": fact.resets_at.isoformat() if fact and fact.resets_at else None,
        "text": text if len(text) < 200 else f"{len(text)} characters",
        "model": kept.model,
        "payer": decoder.billing().payer,
        "usage": None if usage is None else [getattr(usage, name) for name in counters],
        "unrecognized": unrecognized,
        "tool_used": used,
    }
    return found, expected


def check_words(adapter: Adapter) -> None:
    """What an adapter says of itself."""
    assert adapter.kind.isidentifier()
    assert adapter.program
    assert adapter.capabilities.billing
    assert adapter.capabilities.access[0] == "none"
    assert dataclasses.is_dataclass(adapter.capabilities)
    assert adapter.natives("/usr/bin/anything", "x86_64") == ()
    found = adapter.sign_in(Exit(code=0, signal=None, ended_by_us=False), "", "")
    assert found.state == "unknown"
    assert adapter.diagnose(Exit(code=0, signal=None, ended_by_us=False), "") is None
