from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.chaos import chaos, open_descriptors

if TYPE_CHECKING:
    from pathlib import Path

RUNS = 300
"""The long series of 2,000 is `scripts/soak chaos`."""


async def test_chaos(tmp_path: Path) -> None:
    before = open_descriptors()
    tally = await chaos(tmp_path, seed=1, runs=RUNS, at_once=20)
    assert tally.wrong == []
    assert sum(tally.ends.values()) == RUNS
    assert os.listdir(tmp_path / "runs") == []
    assert open_descriptors() <= before
