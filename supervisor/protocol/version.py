"""What a CLI prints for `--version`, and versions compared."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(?<![\d.])(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?![\d.])")


def read_version(text: str) -> str | None:
    """The first version of three numbers in a text, None without one."""
    found = _VERSION.search(text)
    return None if found is None else ".".join(found.groups())


def version_key(version: str) -> tuple[int, ...]:
    """What versions of three numbers are ordered by."""
    return tuple(int(part) for part in version.split("."))
