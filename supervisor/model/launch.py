"""How a CLI is to be started: the plan that an adapter makes and the process layer carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.model.errors import Failure
    from supervisor.model.request import Effort

PoliteSignal = Literal["INT", "TERM"]
"""The signal on which a CLI tidies up after itself before it ends."""

EffortSource = Literal["request", "configuration"]
"""Who chose the effort: the request, or the user's configuration of the CLI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Absolute paths of a run's private directory. They need not exist yet.

    Attributes:
        run_id: twelve hexadecimal digits that no other run has.
        work: the working directory.
        files: what the plan asks to be written lies here.
        state: a private state folder for the CLI, where the plan asks for one.
        temporary: the CLI's TMPDIR.
    """

    run_id: str
    work: str
    files: str
    state: str
    temporary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateFile:
    """A file (mode 0600) that must lie in the private directory before the start.

    Attributes:
        name: below `place`; it may name folders, which are made.
        content: its bytes.
        place: the folder of `Places`.
    """

    name: str
    content: bytes
    place: Literal["files", "state", "work"] = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedLogin:
    """A login file of the user that a private state folder must show.

    A link to it lies in `Places.state`. A CLI that replaces the link by a newer file has refreshed the
    login: that file then takes the place of the user's own.

    Attributes:
        source: the user's own file; one that does not exist is passed over.
        name: what it is called in `Places.state`.
    """

    source: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a CLI.

    Attributes:
        arguments: what follows the program on the command line.
        stdin: all that is written to standard input, which is then closed.
        environment: variables to set; what the application named wins over them.
        files: written before the start.
        logins: shown in the private state folder, and brought back from it.
        terminal: standard output is a pseudo-terminal and no pipe, for a CLI that prints only to one.
        silent_while_thinking: the event stream says nothing while the model works, so silence is
            no sign of a hang.
        optional_as_null: the schema was sent with every property required and the optional ones
            nullable, so a null in the answer stands for an absent property.
        polite: the signal to ask with before SIGKILL.
        secrets: positions in `arguments` that nobody may see.
        tidy: directories outside the private one that the CLI makes for this run; each is removed
            at the end if it is empty, the last of a path first.
        discard: directories outside the private one that belong to this run alone and are removed whole
            at its end. The last part of each path must hold the run's id.
        model: the model that is asked for, by the request or by the user's own configuration.
        effort: the level that is sent, None if the CLI's default is left in force.
        effort_source: where that level is from.
        loaded: what of the user's own configuration is known to reach the model all the same.
        warnings: what the caller should know of the plan.
    """

    arguments: tuple[str, ...]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: tuple[PrivateFile, ...] = ()
    logins: tuple[LinkedLogin, ...] = ()
    terminal: bool = False
    silent_while_thinking: bool = False
    optional_as_null: bool = False
    polite: PoliteSignal = "TERM"
    secrets: tuple[int, ...] = ()
    tidy: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()
    model: str | None = None
    effort: Effort | None = None
    effort_source: EffortSource | None = None
    loaded: tuple[str, ...] = ()
    warnings: tuple[Failure, ...] = ()
