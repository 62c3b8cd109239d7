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

    from supervisor.model.launch import LinkedLogin, PrivateFile

_REMOVAL_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a run has to do with outside of its private directory. See `Launch`."""

    tidy: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()
    logins: tuple[LinkedLogin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a run lives. Nothing exists until `make_home` was called."""

    run_id: str
    path: str

    work: str | None = None
    """A working directory that outlives the run: some CLIs find a session by where it was held."""

    @property
    def places(self) -> Places:
        return Places(
            run_id=self.run_id,
            work=self.work or f"{self.path}/work",
            files=f"{self.path}/files",
            state=f"{self.path}/state",
            temporary=f"{self.path}/tmp",
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


def name_home(state_dir: str, *, lasting_work: bool = False) -> Home:
    """A new name for a run's directory; nothing is made.

    Args:
        state_dir: where it lies.
        lasting_work: the working directory is the one that all runs with kept sessions share, empty.
    """
    run_id, state = secrets.token_hex(6), os.path.abspath(state_dir)
    work = os.path.join(state, "sessions") if lasting_work else None
    return Home(run_id=run_id, path=os.path.join(state, "runs", run_id), work=work)


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


def make_home(home: Home, files: Iterable[PrivateFile], logins: Iterable[LinkedLogin]) -> None:
    """Make the directory (mode 0700) with its files (mode 0600) and links. Blocks.

    Raises:
        OSError: it cannot be made.
    """
    os.mkdir(home.path, 0o700)
    places = home.places
    os.makedirs(places.work, mode=0o700, exist_ok=home.work is not None)
    for place in (places.files, places.state, places.temporary):
        os.mkdir(place, 0o700)
    for login in logins:
        if os.path.exists(login.source):
            os.symlink(os.path.realpath(login.source), os.path.join(places.state, login.name))
    for file in files:
        path = os.path.join(getattr(places, file.place), file.name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)


def remove_home(home: Home, traces: Traces) -> tuple[str, ...]:
    """Remove the directory, and the traces of the run elsewhere. Blocks for at most a second.

    A login that the CLI refreshed in a private state folder is brought back first.

    Call it when no process of the run is left: one that still writes would win the race.

    Returns:
        A sentence for what could not be removed.
    """
    left = tuple(
        f"The login that was refreshed during the run could not be put back to {login.source!r}."
        for login in traces.logins
        if not _bring_back(os.path.join(home.places.state, login.name), login.source)
    )
    if left:
        return left  # the newest login is in the private directory, which must stay
    for folder in traces.discard:
        if home.run_id in os.path.basename(folder):  # whatever else is asked for is not ours
            shutil.rmtree(folder, ignore_errors=True)
    for folder in reversed(traces.tidy):
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


def _bring_back(path: str, source: str) -> bool:
    """Put a login that took the place of its link where the user's own is; False if that failed.

    A CLI writes through the link, or replaces it by a new file. The user's own may have been refreshed
    meanwhile, by a run elsewhere: the newer one stays.
    """
    try:
        mine = os.lstat(path)
    except OSError:
        return True  # removed, or never made
    if not stat.S_ISREG(mine.st_mode):
        return True
    target = os.path.realpath(source)
    beside = f"{target}.{secrets.token_hex(6)}"
    try:
        try:
            if os.stat(target).st_mtime_ns >= mine.st_mtime_ns:
                return True
        except FileNotFoundError:
            return True  # the user signed out while the run went on
        with open(path, "rb") as new, open(beside, "xb", opener=_private) as copy:
            shutil.copyfileobj(new, copy)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(beside, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


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
