"""What lies on the disk that a plan must know of: the executable, and files that adapters look for."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from supervisor.model.adapter import FoundFile
from supervisor.model.errors import as_error, failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from supervisor.model.adapter import Adapter, Wanted


def find_program(
    adapter: Adapter, named: Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The absolute path of the program, and the arguments that always follow it. Blocks.

    Args:
        adapter: says what the program is called, and where a package hides its native binary.
        named: the application's own choice: a path or a name, then fixed arguments.
        environ: the child's environment: its PATH counts, not ours.

    Raises:
        CliError: `cli.not_found`.
    """
    first, *rest = named or (adapter.program,)
    found = shutil.which(first, path=environ.get("PATH", os.defpath))
    if found is None:
        raise as_error(
            failure("cli.not_found", f"There is no executable {first!r} for {adapter.kind!r}.")
        )
    real = os.path.realpath(found)
    for native in adapter.natives(real, os.uname().machine):
        if os.access(native, os.X_OK):
            return (native, *rest)
    return (os.path.abspath(found), *rest)


_DEPTH = 5
"""How many levels of folders are searched: a user's folder may hold a link to its own parent."""
_READ = 1 << 20


def find_files(wanted: Sequence[Wanted]) -> tuple[FoundFile, ...]:
    """What an adapter looks for, each file with the target of its links. Blocks."""
    found: dict[str, FoundFile] = {}
    for each in wanted:
        for path in _paths(each):
            for name in (path, os.path.realpath(path)):
                found[name] = FoundFile(path=name, content=_content(name) if each.read else None)
    return tuple(found.values())


def _paths(wanted: Wanted) -> Iterator[str]:
    for path, folders, files in os.walk(wanted.folder, followlinks=True):
        depth = path.count(os.sep) - wanted.folder.count(os.sep)
        if depth >= _DEPTH or not wanted.deep:
            folders.clear()
        if wanted.name in files:
            yield os.path.join(path, wanted.name)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(_READ)
    except OSError:
        return None


def stamp_of(paths: Sequence[str]) -> tuple[tuple[int, int] | None, ...]:
    """What tells whether files have changed: the time and size of each, None for one not there."""

    def stamp(path: str) -> tuple[int, int] | None:
        try:
            state = os.stat(path)
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size

    return tuple(stamp(path) for path in paths)
