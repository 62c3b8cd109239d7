"""Side tasks that serve a child's other two pipes. None of them raises."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild

_CHUNK = 65536


async def write_stdin(child: Child | GuardedChild, data: bytes) -> None:
    """Write all input and close the pipe.

    A CLI that ends before it has read everything is no error here: what it says itself counts.
    """
    if child.stdin is None:
        return
    try:
        await child.stdin.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        await trio.aclose_forcefully(child.stdin)


def read_now(child: Child | GuardedChild) -> bytes | None:
    """What is in the pipe of standard output, without waiting: b"" at its end, None if it is empty."""
    try:
        return os.read(child.stdout.fileno(), _CHUNK)
    except BlockingIOError:
        return None
    except OSError:  # closed by close() in another task
        return b""


class Tail:
    """Reads a pipe to its end, all the time, and keeps the last `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.finished = trio.Event()

    async def read(self, stream: trio.lowlevel.FdStream) -> None:
        """Serve the pipe until it ends or is closed."""
        try:
            while data := await stream.receive_some(_CHUNK):
                self._kept += data
                if len(self._kept) > 2 * self._limit:  # trimmed now and then: linear in all
                    del self._kept[: -self._limit]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.finished.set()

    def text(self) -> str:
        """What was kept, decoded."""
        return bytes(self._kept[-self._limit :]).decode("utf-8", "replace")
