"""What supervisor and guardian say to each other, the supervisor's side: no I/O.

The guardian's own side is in `guardian.py`, which imports nothing of ours, for the sake of its start
time. Both are described there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GuardedMode = Literal["scope", "loop", "pidns"]
"""How a guardian contains a run.

scope   Landlock keeps the run's signals inside of it, and one signal reaches all of it at once
loop    the guardian kills its children, which all orphans become, until it has none
pidns   the run has a PID namespace of its own
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the CLI's own process used, together with those of its descendants that it waited for.

    Attributes:
        user_seconds, system_seconds: CPU time.
        peak_bytes: the largest resident size that one of them had. Not below the guardian's own size
            at its fork, some 10 MB.
    """

    user_seconds: float
    system_seconds: float
    peak_bytes: int


class Report:
    """What the guardian has said so far. Lines that it cannot have written are passed over.

    Attributes:
        mode: the one in force; None before it is known.
        weakness: the guardian's own words for why that is not the mode that was asked for, or None.
        leader: pid of the CLI, None while it was not started.
        refused: errno of a failed exec.
        broken: errno and place of a failure of the guardian.
        status: wait status of the leader, None while it has not been reaped.
        resources: what the leader used.
        alive: names by pid of what still lived when the kill began.
        proven: whether nothing is left.
    """

    def __init__(self) -> None:
        self.mode: GuardedMode | None = None
        self.weakness: str | None = None
        self.leader: int | None = None
        self.refused: int | None = None
        self.broken: tuple[int, str] | None = None
        self.status: int | None = None
        self.resources: Resources | None = None
        self.alive: dict[int, str] = {}
        self.proven = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what was read from the status pipe, in pieces of any size."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self._take(*line.decode("ascii", "replace").split(" "))
            except (IndexError, TypeError, ValueError):
                continue

    def _take(self, kind: str, *words: str) -> None:
        match kind:
            case "M":
                self._take_mode(words[0], " ".join(words[1:]))
            case "P":
                self.leader = int(words[0])
            case "E":
                self.refused = int(words[0])
            case "F":
                self.broken = int(words[0]), " ".join(words[1:]).strip()
            case "X":
                self._take_end(*words)
            case "K":
                self._take_living(*words)
            case "D":
                self.proven = True
            case _:
                pass

    def _take_mode(self, name: str, why: str) -> None:
        for mode in get_args(GuardedMode):
            if mode == name:
                self.mode = mode
        self.weakness = None if why == "-" else why

    def _take_end(self, status: str, user: str, system: str, peak: str) -> None:
        self.resources = Resources(
            user_seconds=float(user), system_seconds=float(system), peak_bytes=int(peak)
        )
        self.status = int(status)

    def _take_living(self, pid: str, name: str) -> None:
        raw = b"" if name == "-" else bytes.fromhex(name)
        self.alive[int(pid)] = raw.decode("utf-8", "replace")


def pack_program(argv: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """The parcel that tells the guardian what to start.

    A program without a slash is looked for where subprocess would: in the PATH of `environ`.

    Raises:
        ValueError: there is a NUL in an argument or a variable, or a "=" in a variable's name.
    """
    if any("=" in name for name in environ):
        raise ValueError("illegal environment variable name")
    folders = [""] if os.path.dirname(argv[0]) else os.get_exec_path(environ)
    paths = [os.path.join(folder, argv[0]) for folder in folders]
    fields = [*paths, *argv, *(f"{name}={value}" for name, value in environ.items())]
    if any("\0" in field for field in fields):
        raise ValueError("embedded null character")
    return b"\0".join(map(os.fsencode, [f"{len(paths)} {len(argv)}", *fields]))
