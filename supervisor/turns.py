"""A place in the queue of runs that may be under way at once."""

from __future__ import annotations

from collections import deque

import trio

from supervisor.model.errors import as_error, failure


class Turns:
    """At most `most` holders at a time, in the order of asking, until it is closed."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[trio.Event] = deque()
        self._closed = False

    async def take(self) -> None:
        """Wait for a place. Give it back with `give`.

        Raises:
            ClosedError: it was closed meanwhile.
        """
        if self._free > 0:
            self._free -= 1
            return
        called = trio.Event()
        self._waiting.append(called)
        try:
            await called.wait()
        except trio.Cancelled:
            if called.is_set() and not self._closed:
                self.give()  # the place was handed over in the moment of the cancellation
            elif called in self._waiting:
                self._waiting.remove(called)
            raise
        if self._closed:
            raise as_error(failure("supervisor.closed"))

    def give(self) -> None:
        """Hand the place to the next in the queue."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._free += 1

    def close(self) -> None:
        """Send everybody away who waits."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().set()
