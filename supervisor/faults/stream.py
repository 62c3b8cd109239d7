"""A vendor's event stream in its smallest true form, for CLIs that are made to fail on purpose."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        variables: what the CLI must find set to start at all.
    """

    provider: str
    start: str
    status: str
    text: tuple[str, ...]
    end: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

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


def read_stream(provider: str, path: Path | None = None) -> Stream:
    """The stream of a provider of this package, or the one in a file for another's.

    Raises:
        KeyError: there is none.
    """
    if path is None:
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
        variables=found.get("variables", {}),
    )


def _filled(line: str, text: str) -> str:
    return line.replace("@TEXT@", json.dumps(text, ensure_ascii=False)[1:-1])
