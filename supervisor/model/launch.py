"""How a CLI is to be started: the plan that an adapter makes and the process layer carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

PoliteSignal = Literal["INT", "TERM"]
"""The signal on which a CLI tidies up after itself before it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Absolute paths of a run's private directory. They need not exist yet.

    Attributes:
        work: the working directory.
        files: what the plan asks to be written lies here.
        temporary: the CLI's TMPDIR.
    """

    work: str
    files: str
    temporary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateFile:
    """A file (mode 0600) that must lie in `Places.files` before the start."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a CLI.

    Attributes:
        arguments: what follows the program on the command line.
        stdin: all that is written to standard input, which is then closed.
        environment: variables to set; what the application named wins over them.
        files: written before the start.
        silent_while_thinking: the event stream says nothing while the model works, so silence is
            no sign of a hang.
        optional_as_null: the schema was sent with every property required and the optional ones
            nullable, so a null in the answer stands for an absent property.
        polite: the signal to ask with before SIGKILL.
        secrets: positions in `arguments` that nobody may see.
        tidy: directories outside the private one that the CLI makes for this run; each is removed
            at the end if it is empty, the last of a path first.
    """

    arguments: tuple[str, ...]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: tuple[PrivateFile, ...] = ()
    silent_while_thinking: bool = False
    optional_as_null: bool = False
    polite: PoliteSignal = "TERM"
    secrets: tuple[int, ...] = ()
    tidy: tuple[str, ...] = ()
