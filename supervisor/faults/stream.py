"""A vendor's event stream in its smallest true form, for CLIs that are made to fail on purpose."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_STREAMS = _HERE / "streams"

Step = list[Any]
"""One step of a scripted CLI: see the head of `cli.py`."""


def scripted(*steps: Step) -> tuple[str, ...]:
    """The program entry for a scripted CLI: see `Supervisor(programs=...)`."""
    return (sys.executable, "-I", "-S", str(_HERE / "cli.py"), json.dumps(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Lines of a vendor's stream.

    Attributes:
        provider: whose.
        start: the line that opens a run.
        status: a line that shows no progress.
        text: the lines of one message, with `@TEXT@` where the text stands.
        end: the line of a good end, with `@TEXT@` where the answer stands, if it stands there.
    """

    provider: str
    start: str
    status: str
    text: tuple[str, ...]
    end: str

    def opening(self) -> list[Step]:
        """The steps that begin a run."""
        return [["print", self.start]]

    def message(self, text: str) -> list[Step]:
        """The steps that say a text."""
        return [["print", _filled(line, text)] for line in self.text]

    def ending(self, text: str) -> list[Step]:
        """The steps of a good end with the answer `text`."""
        return [["print", _filled(self.end, text)]]

    def whole(self, text: str = "The answer.") -> list[Step]:
        """The steps of a good run."""
        return [*self.opening(), *self.message(text), *self.ending(text)]


def stream_names() -> tuple[str, ...]:
    """The providers whose streams this package has."""
    return tuple(sorted(path.stem for path in _STREAMS.glob("*.json")))


def read_stream(provider: str) -> Stream:
    """The stream of a provider of this package.

    Raises:
        KeyError: there is none.
    """
    path = _STREAMS / f"{provider}.json"
    if provider not in stream_names():
        raise KeyError(provider)
    found = json.loads(path.read_text())
    return Stream(
        provider=provider,
        start=found["start"],
        status=found["status"],
        text=tuple(found["text"]),
        end=found["end"],
    )


def _filled(line: str, text: str) -> str:
    return line.replace("@TEXT@", json.dumps(text, ensure_ascii=False)[1:-1])
