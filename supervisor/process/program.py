"""What lies on the disk that a plan must know of: the executable, and files that adapters look for."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from supervisor.model.errors import as_error, failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.adapter import Adapter


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


def find_files(wanted: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The paths of files by folder and name, each with the target of its links. Blocks."""
    found: dict[str, None] = {}
    for folder, name in wanted:
        for path, folders, files in os.walk(folder, followlinks=True):
            if path.count(os.sep) - folder.count(os.sep) >= _DEPTH:
                folders.clear()
            if name in files:
                whole = os.path.join(path, name)
                found.update({whole: None, os.path.realpath(whole): None})
    return tuple(found)
