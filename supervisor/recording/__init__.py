"""Recorded runs of real CLIs, and the fake CLI that plays them as a real subprocess."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
DEMO = _HERE / "demo"
"""Recordings that the demonstration plays: claude 2.1.332 against a scripted model endpoint."""


def player(recording: Path) -> tuple[str, ...]:
    """The program entry for a fake CLI that plays `recording`: see `Supervisor(programs=...)`."""
    return (sys.executable, "-I", "-S", str(_HERE / "player.py"), str(recording))
