"""Fixtures of the tests that start the real vendor CLIs. They are run by scripts/conformance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.clis import RealCli
from tests.conformance.table import FILES, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


PINNED = ("claude 2.1.197", "claude 2.1.332", "codex 0.171.0", "gemini 0.61.0", "grok 1.0.41")


_TABLE = pytest.StashKey[Table]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty table."""
    config.stash[_TABLE] = Table(PINNED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Enter the outcome of each case into the table."""
    report = yield
    column = getattr(item, "callspec", None)
    name = None if column is None else column.params.get("cli")
    if name is not None and item.path.name in FILES and (report.when == "call" or report.failed):
        notes = dict(item.user_properties)
        item.config.stash[_TABLE].enter(
            getattr(item, "originalname", item.name),
            name,
            passed=report.passed,
            note=notes.get("cell"),
        )
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and keep it where scripts/conformance asks for it."""
    table = config.stash[_TABLE]
    if not table.cells:
        return
    terminalreporter.section("CLI x scenario")
    terminalreporter.write_line(table.markdown())
    place = os.environ.get("SUPERVISOR_CONFORMANCE_TABLE")
    if place is not None:
        Path(place).write_text(table.markdown())


@pytest.fixture
def cell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Note what the right outcome is for this CLI where it is another than for the rest."""
    return lambda text: record_property("cell", text)


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
    """A fresh private home folder with the empty settings folders of the CLIs."""
    folder = tmp_path / "home"
    for name in (".claude", ".codex", ".gemini", ".grok"):
        (folder / name).mkdir(parents=True)
    return folder


@pytest.fixture(params=PINNED)
def cli(request: pytest.FixtureRequest, home: Path, state_folder: Path) -> RealCli:
    """Each pinned CLI in turn."""
    return real_cli(request.param, home, state_folder)


@pytest.fixture(params=["claude 2.1.197", "claude 2.1.332"])
def claude_login(request: pytest.FixtureRequest, home: Path, state_folder: Path) -> RealCli:
    """Each pinned claude in turn."""
    return real_cli(request.param, home, state_folder)


def real_cli(name: str, home: Path, state: Path) -> RealCli:
    """A pinned CLI by its name and version."""
    provider, version = name.split()
    variable = f"SUPERVISOR_REAL_{provider.upper()}_{version.replace('.', '_')}"
    return RealCli(
        provider=provider, version=version, program=_program(variable), home=home, state=state
    )


@pytest.fixture
def state_folder(tmp_path: Path) -> Path:
    """A short path, as a user's is: a socket below it must fit into 108 bytes."""
    return tmp_path.parent / "s"
