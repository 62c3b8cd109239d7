"""Fixtures of the tests that start the real vendor CLIs. They are run by scripts/conformance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.clis import RealCli


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


@pytest.fixture
def gemini_0_61_0() -> Path:
    """The program of gemini 0.61.0, a script of Node.js."""
    return _program("SUPERVISOR_REAL_GEMINI_0_61_0")


@pytest.fixture
def grok_1_0_41() -> Path:
    """The native program of grok 1.0.41."""
    return _program("SUPERVISOR_REAL_GROK_1_0_41")


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


@pytest.fixture(params=["claude 2.1.197", "claude 2.1.332", "codex 0.171.0"])
def cli(request: pytest.FixtureRequest, home: Path, state_folder: Path) -> RealCli:
    """Each pinned CLI in turn."""
    return _real_cli(request.param, home, state_folder)


@pytest.fixture(params=["claude 2.1.197", "claude 2.1.332"])
def claude_login(request: pytest.FixtureRequest, home: Path, state_folder: Path) -> RealCli:
    """Each pinned claude in turn."""
    return _real_cli(request.param, home, state_folder)


def _real_cli(name: str, home: Path, state: Path) -> RealCli:
    provider, version = name.split()
    variable = f"SUPERVISOR_REAL_{provider.upper()}_{version.replace('.', '_')}"
    return RealCli(
        provider=provider, version=version, program=_program(variable), home=home, state=state
    )


@pytest.fixture
def state_folder(tmp_path: Path) -> Path:
    """A short path, as a user's is: a socket below it must fit into 108 bytes."""
    return tmp_path.parent / "s"
