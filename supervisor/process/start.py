"""Starts a CLI in the containment that is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from supervisor.model.completion import Mode
from supervisor.model.errors import as_error, failure
from supervisor.process.child import start_child
from supervisor.process.guarded import start_guarded
from supervisor.process.modes import Found, find_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild

Containment = Literal["auto"] | Mode
"""What the application asks for: `auto` is the strongest mode that needs no asking."""

CONTAINMENTS: tuple[Containment, ...] = ("auto", *get_args(Mode))


async def find_containment(wanted: Containment) -> Found:
    """The mode that is in force for `wanted`, with the reason why nothing stronger is.

    Raises:
        RequestError: `config.invalid` if a mode that was asked for by name is not to be had.
        CliError: the system has no room to tell.
    """
    if wanted == "auto":
        return await find_mode("scope")
    found = await find_mode(wanted)
    if found.mode != wanted:
        raise as_error(
            failure(
                "config.invalid",
                f"The containment {wanted!r} is not to be had here. {found.reason or ''}".strip(),
                hint='Leave containment at "auto", or name another mode.',
            )
        )
    return found


async def start(
    found: Found,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    work: str,
    run_id: str,
    has_stdin: bool,
    terminal: bool,
) -> Child | GuardedChild:
    """Start a CLI. See `start_child` and `start_guarded` for what it raises."""
    if found.mode == "group":
        return await start_child(
            argv, environ, work=work, run_id=run_id, has_stdin=has_stdin, terminal=terminal
        )
    return await start_guarded(
        argv,
        environ,
        work=work,
        run_id=run_id,
        has_stdin=has_stdin,
        terminal=terminal,
        mode=found.mode,
    )
