from __future__ import annotations

from itertools import pairwise
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from supervisor.protocol.framer import Dropped, Framer

LIMIT = 40
BYTES = st.lists(
    st.sampled_from(
        [b"\n", b"\r\n", b" ", b"{}", b"x" * 30, "é\u2028\u0085".encode(), b"\xff\x00"]
    ),
    max_size=40,
).map(b"".join)


def frames(chunks: list[bytes], limit: int = LIMIT) -> list[bytes | Dropped]:
    framer = Framer(limit)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    return lines + framer.finish()


@given(BYTES, st.data())
def test_cutting_the_stream_anywhere_changes_nothing(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    whole = frames([stream])
    assert frames(pieces) == whole
    assert frames([stream[i : i + 1] for i in range(len(stream))]) == whole


@given(BYTES)
def test_lines_end_at_0x0a_only_and_nothing_is_lost(stream: bytes) -> None:
    expected: list[bytes | Dropped] = []
    for line in stream.split(b"\n"):
        if len(line) > LIMIT:
            expected.append(Dropped(size=len(line)))
        elif line.removesuffix(b"\r").strip():
            expected.append(line.removesuffix(b"\r"))
    assert frames([stream]) == expected


def test_a_dropped_line_does_not_take_its_neighbours_with_it() -> None:
    assert frames([b"a\n" + b"x" * 41 + b"\nb\n"]) == [b"a", Dropped(size=41), b"b"]
    assert frames([b"x" * 25, b"x" * 25]) == [Dropped(size=50)]


def test_a_line_at_the_limit_passes() -> None:
    assert frames([b"x" * LIMIT + b"\n"]) == [b"x" * LIMIT]


def test_a_32_mb_line_costs_linear_time() -> None:
    def seconds(size: int) -> float:
        framer, chunk = Framer(64 << 20), b"x" * 65536
        began = process_time()
        for _ in range(size // len(chunk)):
            framer.feed(chunk)
        (line,) = framer.feed(b"\n")
        assert isinstance(line, bytes)
        assert len(line) == size
        return process_time() - began

    small, large = min(seconds(4 << 20) for _ in range(3)), seconds(32 << 20)
    # Eight times the size: a quadratic framer needs 64 times as long.
    assert large < max(24 * small, 0.5)
