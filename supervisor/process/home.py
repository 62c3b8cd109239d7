"""The private directory of a run: made before the start, gone at the end.

It lies in a state folder and not under the system's temporary one, which other people can list and a
CLI may look down on: codex 0.171.0 treats a home below it as second-class. The names are short, since
a CLI may put a socket below, whose path has at most 108 bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.model.errors import as_error, failure
from supervisor.model.launch import Places

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from supervisor.model.launch import PrivateFile

_REMOVAL_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a run lives. Nothing exists until `make_home` was called."""

    run_id: str
    path: str

    @property
    def places(self) -> Places:
        return Places(
            work=f"{self.path}/work", files=f"{self.path}/files", temporary=f"{self.path}/tmp"
        )


def default_state_dir(environ: Mapping[str, str]) -> str:
    """Where runs live unless the application says otherwise: the XDG state folder of the user.

    Raises:
        RequestError: `config.invalid` if the environment names no absolute home.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            raise as_error(
                failure(
                    "config.invalid",
                    "There is no HOME to keep the private files of runs under.",
                    hint="Set HOME, or name a folder with Supervisor(state_dir=...).",
                )
            )
        state = f"{home}/.local/state"
    return f"{state}/agent-cli-supervisor"


def name_home(state_dir: str) -> Home:
    """A new name for a run's directory; nothing is made."""
    run_id = secrets.token_hex(6)
    return Home(run_id=run_id, path=os.path.join(os.path.abspath(state_dir), "runs", run_id))


@contextlib.contextmanager
def usable_state(folder: str) -> Generator[None]:
    """Turn an error of the file system into one of ours.

    Raises:
        InternalError: `disk.full`.
        RequestError: `config.invalid`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise as_error(failure("disk.full")) from error
        why = os.strerror(error.errno or 0)
        raise as_error(
            failure(
                "config.invalid",
                f"The state folder cannot be used ({why}): {folder!r}.",
                hint="Name a folder of yours with Supervisor(state_dir=...).",
            )
        ) from error


def make_home(home: Home, files: Iterable[PrivateFile]) -> None:
    """Make the directory (mode 0700) with its files (mode 0600). Blocks.

    Raises:
        OSError: it cannot be made.
    """
    os.mkdir(home.path, 0o700)
    for place in (home.places.work, home.places.files, home.places.temporary):
        os.mkdir(place, 0o700)
    for file in files:
        path = os.path.join(home.places.files, file.name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)


def remove_home(home: Home, tidy: Iterable[str]) -> tuple[str, ...]:
    """Remove the directory, and the `tidy` folders that are empty. Blocks for at most a second.

    Call it when no process of the run is left: one that still writes would win the race.

    Returns:
        A sentence for what could not be removed.
    """
    for folder in reversed(tuple(tidy)):
        with contextlib.suppress(OSError):  # not made, not empty or not ours: nothing to tidy
            os.rmdir(folder)
    for attempt in range(_REMOVAL_TRIES):
        if attempt:
            _open_up(home.path)
            time.sleep(0.05 * attempt)
        shutil.rmtree(home.path, ignore_errors=True)
        if not os.path.lexists(home.path):
            return ()
    return (f"The private directory {home.path!r} could not be removed.",)


def _open_up(path: str) -> None:
    """Give ourselves every right on the directories below: a program may have taken them away."""
    with contextlib.suppress(OSError):
        os.chmod(path, stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(inner):
                    os.chmod(inner, stat.S_IRWXU)
