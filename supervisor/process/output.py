"""The channel of standard output: a pipe, or a pseudo-terminal for a CLI that prints only to one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tty

_PIPE_BYTES = 1 << 20


def open_output(*, terminal: bool) -> tuple[int, int]:
    """Our end and the child's end, neither inheritable.

    The terminal is raw, so that the bytes arrive as the CLI wrote them, and nobody's controlling
    terminal: a CLI that asks for the keyboard finds none. Reading our end fails with EIO when the last
    holder of the other has closed it.
    """
    if not terminal:
        ours, theirs = os.pipe()
        # A CLI that exits with output unwritten loses it: gemini 0.61.0 prints the whole prompt again
        # and does not wait. The system grants the size, or the usual 64 KiB stay.
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return ours, theirs
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise
    return ours, theirs
