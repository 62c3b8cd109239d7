"""Bytes in, lines out.

Lines end at byte 0x0A and nothing else: the CLIs put U+2028 and U+0085 raw into their JSON (codex
0.171.0), where `str.splitlines` would cut. Decoding comes afterwards, on whole lines, so that a
character split over two reads stays whole. The pieces of an unfinished line are kept in a list and
joined once, which keeps the cost linear in the size of the line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A line that was longer than the limit; `size` is its length in bytes without the newline."""

    size: int


class Framer:
    """Cuts a byte stream into lines, without their newline, holding at most `limit` bytes of one.

    Blank lines are passed over and a carriage return before the newline is taken off.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | Dropped]:
        """The lines that `data` completes."""
        lines: list[bytes | Dropped] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            lines.extend(self._take())
            start = end + 1
        if start < len(data):
            self._keep(data[start:])
        return lines

    def finish(self) -> list[bytes | Dropped]:
        """The last line if it has no newline. Call it once, at the end of the stream."""
        return self._take()

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> list[bytes | Dropped]:
        size, pieces = self._size, self._pieces
        self._size, self._pieces = 0, []
        if size > self._limit:
            return [Dropped(size=size)]
        line = b"".join(pieces).removesuffix(b"\r")
        return [line] if line.strip() else []
