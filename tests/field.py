"""What the tests of field cases share: recorded lines of a CLI, changed where a case needs it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from supervisor import Supervisor
from tests.fakes import RECORDINGS, Bench, Step, ask

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor import Event, Request

Line = dict[str, Any]

BOUND = 20.0
"""Seconds that nothing here takes unless it hangs."""


def lines(case: str) -> list[Line]:
    """The events of a recorded run; what is no object is left out."""
    found: list[Line] = []
    for line in (RECORDINGS / case / "stdout").read_text().splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += value if isinstance(value, list) else [value]
    return found


def signed_in(case: str) -> list[Line]:
    """A recorded run of claude, as it is with a login in place of the key of the recording."""
    return [_with_login(line) for line in lines(case)]


def _with_login(line: Line) -> Line:
    return {**line, "apiKeySource": "none"} if "apiKeySource" in line else line


def say(*values: Line | str) -> list[Step]:
    """The steps that print events, or lines of text as they are."""
    return [["print", v if isinstance(v, str) else json.dumps(v)] for v in values]


def stderr_of(case: str) -> str:
    """What a real CLI wrote to standard error in a recorded run."""
    return (RECORDINGS / case / "stderr").read_text()


def stored(bench: Bench, data: bytes, name: str = "stdout") -> Step:
    """The step that prints bytes which are too many for an argument, or no text."""
    path = bench.path / f"{name}.bytes"
    path.write_bytes(data)
    return ["file", str(path)]


def joined(*values: Line | str) -> bytes:
    """Events as the bytes of a stream."""
    texts = (v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values)
    return "".join(f"{text}\n" for text in texts).encode()


# ---- claude

_INIT, *_, _MESSAGE, _, _, _, _RESULT = signed_in("claude/c-stream-partial")
HELLO = "Hello from the fake model."


def init(**changes: Any) -> Line:
    return {**_INIT, **changes}


def assistant(text: str = HELLO, **changes: Any) -> Line:
    message = {**_MESSAGE["message"], "content": [{"type": "text", "text": text}]}
    return {**_MESSAGE, "message": message, **changes}


def result(**changes: Any) -> Line:
    return {**_RESULT, **changes}


def answer(text: str = HELLO, **changes: Any) -> list[Line]:
    """A whole good run."""
    return [init(), assistant(text), result(result=text, **changes)]


# ---- codex

THREAD, TURN, *_, COMPLETED = lines("codex/a4-reasoning-two-messages")


def said(text: str) -> Line:
    return {
        "type": "item.completed",
        "item": {"id": "item_1", "type": "agent_message", "text": text},
    }


def turn(text: str = HELLO, **usage: int) -> list[Line]:
    """A whole good run; with counters, those and no others."""
    return [THREAD, TURN, said(text), {**COMPLETED, "usage": usage or COMPLETED["usage"]}]


def turn_failed(message: str) -> list[Line]:
    """A run that ends in an error."""
    error = {"type": "error", "message": message}
    return [THREAD, TURN, error, {"type": "turn.failed", "error": {"message": message}}]


def whole(provider: str, text: str = HELLO) -> list[Line]:
    """A good run of claude or codex."""
    return answer(text) if provider == "claude" else turn(text)


# ---- gemini


def keyed(bench: Bench) -> dict[str, Any]:
    """What a supervisor of gemini is given: it is driven with a key."""
    environ = {"HOME": str(bench.path), "PATH": os.environ["PATH"], "GEMINI_API_KEY": "planted"}
    return {"environ": environ, "keep": {"gemini": ["GEMINI_API_KEY"]}}


# ---- CLIs of a few lines of Python

PRELUDE = """
import json, os, sys

def say(*lines):
    for line in lines:
        print(json.dumps(line), flush=True)

def codex(text, **usage):
    say({"type": "thread.started", "thread_id": "t-1"}, {"type": "turn.started"})
    item = {"id": "item_0", "type": "agent_message", "text": text}
    say({"type": "item.completed", "item": item})
    say({"type": "turn.completed", "usage": usage or {"input_tokens": 3, "output_tokens": 2}})

def codex_failed(message):
    say({"type": "thread.started", "thread_id": "t-1"}, {"type": "turn.started"})
    say({"type": "error", "message": message})
    say({"type": "turn.failed", "error": {"message": message}})
    sys.exit(1)

def claude(text, source="none", result={}, **start):
    first, second, last = json.load(open(sys.argv[1]))
    second["message"]["content"][0]["text"] = text
    say({**first, "apiKeySource": source, **start}, second, {**last, "result": text, **result})

def gemini(text, **stats):
    stats = stats or {"total_tokens": 134, "input_tokens": 120, "output_tokens": 9, "cached": 50,
                      "input": 70}
    say({"type": "init", "session_id": "s-1", "model": "gemini-2.5-pro"})
    say({"type": "message", "role": "assistant", "content": text, "delta": True})
    counted = {**stats, "models": {"gemini-2.5-pro": stats}}
    say({"type": "result", "status": "success", "stats": counted})

def agy(text):
    usage = {"input_tokens": 12400, "output_tokens": 589, "total_tokens": 12989}
    here = {"conversation_id": "c-1"}
    step = {**here, "step_index": 1, "state": "DONE", "step_type": "agent_response",
            "text_delta": text, "usage": usage}
    last = {**here, "status": "SUCCESS", "response": text, "num_turns": 1, "usage": usage}
    say({"event": "init", **here, "init": {"tools": [], "permission_mode": "request-review"}})
    say({"event": "step_update", "step_update": step}, {"event": "result", "result": last})

def grok(text):
    usage = {"input_tokens": 111, "output_tokens": 47}
    say({"type": "available_commands", "tools": [], "commands": []})
    say({"type": "text", "data": text}, {"type": "usage", "usage": usage})
    say({"type": "end", "stopReason": "end_turn", "usage": usage, "num_turns": 1})

def after(flag):
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else None
"""
"""What each of them begins with. The first argument is a file with the events of a good claude run."""


def program(bench: Bench, code: str, *arguments: object) -> list[str]:
    """A program entry for a CLI that is a few lines of Python."""
    path = bench.path / "answer.json"
    path.write_text(json.dumps(answer()))
    return [sys.executable, "-c", PRELUDE + code, str(path), *map(str, arguments)]


def running(bench: Bench, provider: str, code: str, *arguments: object, **given: Any) -> Supervisor:
    """A supervisor over such a CLI."""
    programs = {provider: program(bench, code, *arguments)}
    return Supervisor(programs=programs, state_dir=bench.state, **given)


def starts(path: Path) -> int:
    """How often a CLI was started that adds a line to a file each time."""
    return len(path.read_text().splitlines()) if path.exists() else 0


COUNTS = 'open(sys.argv[2], "a").write("started\\n")\n'
"""Code that adds that line; the file is the program's own first argument."""


def question(provider: str, **given: Any) -> Request[Any]:
    return ask(provider=provider, **given)


def kinds(events: list[Event], kind: str) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if event.kind == kind]
