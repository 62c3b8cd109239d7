"""Fixtures of the tests that start the real vendor CLIs. They are run by scripts/conformance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _program(variable: str) -> Path:
    path = os.environ.get(variable)
    if path is None:
        pytest.fail(f"{variable} is not set: run scripts/conformance", pytrace=False)
    return Path(path)


@pytest.fixture
def claude_2_1_197() -> Path:
    """The native program of claude 2.1.197."""
    return _program("SUPERVISOR_REAL_CLAUDE_2_1_197")


@pytest.fixture
def claude_2_1_332() -> Path:
    """The native program of claude 2.1.332."""
    return _program("SUPERVISOR_REAL_CLAUDE_2_1_332")


@pytest.fixture
def codex_0_171_0() -> Path:
    """The native program of codex 0.171.0."""
    return _program("SUPERVISOR_REAL_CODEX_0_171_0")


@pytest.fixture(params=["2.1.197", "2.1.332"])
def claude(request: pytest.FixtureRequest) -> Path:
    """The native program of claude, once in each pinned version."""
    return _program(f"SUPERVISOR_REAL_CLAUDE_{request.param.replace('.', '_')}")


@pytest.fixture(params=["0.171.0"])
def codex(request: pytest.FixtureRequest) -> Path:
    """The native program of codex, once in each pinned version."""
    return _program(f"SUPERVISOR_REAL_CODEX_{request.param.replace('.', '_')}")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A fresh private home folder with the empty settings folders of both CLIs."""
    folder = tmp_path / "home"
    for name in (".claude", ".codex"):
        (folder / name).mkdir(parents=True)
    return folder
