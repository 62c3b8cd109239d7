"""Who a run's private directory belongs to, so that a later start can remove what a killed one left.

Beside each directory `runs/ID` lies a file `runs/ID.lease`, made before it and removed after it, on
which the owner holds a lock. The kernel gives a lock free when its holder has ended, however that
came, so a lease that can be locked has no owner any more. Process numbers prove less: they are used
again, and differ between containers that share a folder. The file's text names the owner for people,
and the folders elsewhere that the run may have made.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from supervisor.model.launch import LinkedLogin
from supervisor.process.home import Home, Traces, make_home, remove_home, usable_state
from supervisor.process.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from supervisor.model.launch import PrivateFile

_NAME = re.compile(r"([0-9a-f]{12})\.lease")
_SUFFIX = ".lease"


class Lease:
    """A held lease. Release it when the directory is gone."""

    def __init__(self, path: str, descriptor: int, traces: Traces) -> None:
        self._path = path
        self._descriptor = descriptor
        self.traces = traces

    def release(self) -> None:
        """Remove the lease and give the lock free."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)

    def abandon(self) -> None:
        """Give the lock free and leave the lease, so that a later start tries to clean again."""
        os.close(self._descriptor)


def open_home(home: Home, files: Iterable[PrivateFile], traces: Traces) -> Lease:
    """Make a run's directory with its files, under a lease. Blocks.

    Raises:
        InternalError: `disk.full`.
        RequestError: `config.invalid` if the state folder cannot be used, or has no locks.
    """
    runs = os.path.dirname(home.path)
    with usable_state(runs):
        os.makedirs(runs, mode=0o700, exist_ok=True)
        lease = _take_lease(home, traces)
        try:
            make_home(home, files, traces.logins)
        except OSError:
            close_home(home, lease)
            raise
    return lease


def close_home(home: Home, lease: Lease) -> tuple[str, ...]:
    """Remove a run's directory and its lease. Blocks; see `remove_home`.

    Returns:
        A sentence for what could not be removed. A later start tries again.
    """
    left = remove_home(home, lease.traces)
    if left:
        lease.abandon()
    else:
        lease.release()
    return left


def _take_lease(home: Home, traces: Traces) -> Lease:
    path = home.path + _SUFFIX
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A later start may have found the lease before it was locked, and removed it.
            if _is_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _text(traces), 0)
                return Lease(path, descriptor, traces)
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What `reap` found in a state folder.

    Attributes:
        removed: ids of runs whose owner had ended and whose directory is gone now.
        killed: how many of their processes were still alive, and were killed.
        running: ids of runs whose owner lives; they were left alone.
        unknown: names that carry no lease and may be anybody's; they were left alone.
        failed: a sentence for each directory that could not be removed.
    """

    removed: tuple[str, ...] = ()
    killed: int = 0
    running: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def reap(state_dir: str) -> Reaped:
    """Remove what runs left whose owner was killed. Blocks.

    It touches only directories whose lease it could lock, and processes that carry such a run's mark.
    """
    runs = os.path.join(os.path.abspath(state_dir), "runs")
    try:
        names = sorted(os.listdir(runs))
    except OSError:
        return Reaped()
    ids = [found[1] for name in names if (found := _NAME.fullmatch(name))]
    removed: list[str] = []
    running: list[str] = []
    failed: list[str] = []
    killed = 0
    for run_id in ids:
        home = Home(run_id=run_id, path=os.path.join(runs, run_id))
        with _ownerless(home) as lease:
            if lease is None:
                running.append(run_id)
                continue
            killed += _kill_marked(run_id)
            left = close_home(home, lease)
            failed += left
            if not left:
                removed.append(run_id)
    known = {*ids, *(run_id + _SUFFIX for run_id in ids)}
    return Reaped(
        removed=tuple(removed),
        killed=killed,
        running=tuple(running),
        unknown=tuple(name for name in names if name not in known),
        failed=tuple(failed),
    )


@contextlib.contextmanager
def _ownerless(home: Home) -> Generator[Lease | None]:
    """The lease of a run that nobody owns any more, or None. The block must end the lease."""
    path = home.path + _SUFFIX
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # released a moment ago, or another user's
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        yield None
        return
    if not _is_at(path, descriptor):
        os.close(descriptor)
        yield None
        return
    yield Lease(path, descriptor, _traces_of(descriptor))


def _kill_marked(run_id: str) -> int:
    """Kill the processes that a run without a guardian left behind; gives how many they were."""
    sweep, killed = Sweep(run_id, leader=0), 0
    sweep.forget_group()
    for _ in range(50):  # each round kills what it finds; a chain of forks needs a few
        found = sweep.kill()
        killed += found
        if not found:
            break
    return killed


def _is_at(path: str, descriptor: int) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _text(traces: Traces) -> bytes:
    owner = psutil.Process()
    return json.dumps(
        {
            "pid": owner.pid,
            "started": owner.create_time(),
            "tidy": traces.tidy,
            "discard": traces.discard,
            "logins": [[login.source, login.name] for login in traces.logins],
        }
    ).encode()


def _traces_of(descriptor: int) -> Traces:
    """What a lease names. Only empty or marked folders will be removed, and only a login that lies in
    the run's own directory is brought back, so a broken text is harmless."""
    try:
        text = json.loads(os.pread(descriptor, 1 << 16, 0))
        return Traces(
            tidy=_paths(text.get("tidy", [])),
            discard=_paths(text.get("discard", [])),
            logins=tuple(
                LinkedLogin(source=source, name=os.path.basename(name))
                for source, name in text.get("logins", [])
                if os.path.isabs(source)
            ),
        )
    except (ValueError, TypeError, AttributeError):
        return Traces()


def _paths(named: list[object]) -> tuple[str, ...]:
    return tuple(path for path in named if isinstance(path, str) and os.path.isabs(path))
