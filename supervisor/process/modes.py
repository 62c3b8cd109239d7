"""Which containment is to be had here: a guardian around a trivial program tells, nobody guesses."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from supervisor.model.errors import CliError
from supervisor.process.guarded import guardian_environment, start_guarded

if TYPE_CHECKING:
    from supervisor.model.completion import Mode
    from supervisor.process.guarded import GuardedChild
    from supervisor.process.guardian_protocol import GuardedMode

PROBE_WAIT = 10.0
"""Seconds for one probe; some 30 milliseconds are usual."""

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe has found.

    Attributes:
        mode: the mode that is to be had.
        reason: why nothing stronger, or not the mode that was asked for: a plain sentence. None if
            there is nothing to say.
    """

    mode: Mode
    reason: str | None


_found: dict[Mode, Found] = {}


async def find_mode(wanted: Mode = "scope") -> Found:
    """The containment that is to be had: the wanted one, or the next weaker one that works.

    The strongest that needs no asking is `scope`, then `loop`, then `group`. `pidns` is another world
    for the CLI, so it is never fallen back to; where it does not work, `scope` is tried instead.
    Each is tried once for each process; two first calls at once may try twice.

    Raises:
        CliError: the system is so short of processes, files or memory that no probe can tell.
    """
    if wanted not in _found:
        _found[wanted] = await _try(wanted)
    return _found[wanted]


async def _try(wanted: Mode) -> Found:
    if wanted == "group":
        return Found("group", None)
    unusable = _unusable()
    if unusable is not None:
        return Found("group", unusable)
    result = await _probe(wanted)
    if isinstance(result, Found):
        return result
    if wanted != "pidns":
        return Found("group", result)
    return Found((await find_mode("scope")).mode, result)


def _unusable() -> str | None:
    """Why no guardian can even be tried."""
    if sys.platform != "linux":
        return "Guardians need Linux."
    if getattr(sys, "frozen", False):
        return "This program is frozen: it has no Python interpreter to run a guardian with."
    if not os.path.basename(sys.executable or "").startswith(("python", "pypy")):
        # Started with the guardian's arguments, another program would do who knows what.
        return f"sys.executable ({sys.executable!r}) is no Python interpreter."
    return None


async def _probe(mode: GuardedMode) -> Found | str:
    """What a real guardian says, or a sentence on how it failed."""
    result: Found | str = "The guardian does not answer."
    with trio.move_on_after(PROBE_WAIT):
        try:
            child = await start_guarded(
                [sys.executable, "-I", "-S", "-c", ""],
                guardian_environment(),
                work="/",
                run_id="probe",
                has_stdin=False,
                mode=mode,
            )
        except CliError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _SHORTAGES:
                raise
            return error.failure.message
        try:
            await child.wait()
            result = _verdict(child)
        finally:
            await child.abandon()
        if not child.proven:
            return "The guardian cannot prove that nothing is left."
    return result


def _verdict(child: GuardedChild) -> Found | str:
    if child.exit is None or child.exit.code != 0:
        return "A program does not run below the guardian."
    return Found(child.mode, _sentence(child.weakness))


def _sentence(weakness: str | None) -> str | None:
    """The guardian's own words as a sentence."""
    if weakness is None:
        return None
    word, _, number = weakness.partition(" ")
    match word:
        case "abi" if number == "0":
            return "The kernel has no Landlock, or it is switched off or forbidden here."
        case "abi":
            return f"Landlock cannot fence signals in this kernel (ABI {number}; Linux 6.12 has 6)."
        case "refused":
            return f"Landlock refuses the fence: {os.strerror(int(number))}."
        case "witness":
            return "The fence cannot be tested: this process may not be signalled by its own child."
        case _:
            return "Landlock's fence was raised and did not hold."
