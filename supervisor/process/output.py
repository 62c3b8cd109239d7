"""The channel of standard output: a pipe, or a pseudo-terminal for a CLI that prints only to one."""

from __future__ import annotations

import os
import tty


def open_output(*, terminal: bool) -> tuple[int, int]:
    """Our end and the child's end, neither inheritable.

    The terminal is raw, so that the bytes arrive as the CLI wrote them, and nobody's controlling
    terminal: a CLI that asks for the keyboard finds none. Reading our end fails with EIO when the last
    holder of the other has closed it.
    """
    if not terminal:
        return os.pipe()
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise
    return ours, theirs
