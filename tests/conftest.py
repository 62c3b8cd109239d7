"""What holds for every test: a clean environment, and nothing left behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest

from tests.fakes import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The same examples each time: what fails on one machine fails on all. A shared machine may be slow.
hypothesis.settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")

PASSED = ("PATH", "HOME", "LANG", "TMPDIR", "TZ", "VIRTUAL_ENV")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test sees no variable of the machine that it did not set, and a HOME of its own."""
    for name in list(os.environ):
        if name not in PASSED and not name.startswith(("LC_", "PYTEST_", "SUPERVISOR_REAL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def state_folder(tmp_path: Path) -> Path:
    """The folder below which a test's runs keep their state."""
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_left(clean_environment: None, state_folder: Path) -> Iterator[None]:
    """Fail a test that leaves a process or a descriptor.

    Processes are looked for by their environment: those whose parent has ended are nobody's children
    any more. Every run's TMPDIR lies in its state folder.
    """
    before = len(os.listdir("/proc/self/fd"))
    yield
    after = len(os.listdir("/proc/self/fd"))
    left = of_folder(state_folder)
    names = [process.info for process in left]
    for process in left:
        process.kill()
    assert names == []
    assert after <= before, "descriptors were left open"


def of_folder(folder: Path) -> list[psutil.Process]:
    """Living processes of runs whose state lies in a folder."""
    found = []
    for process in psutil.process_iter(["pid", "name", "cmdline", "status"]):
        try:
            temporary = process.environ().get("TMPDIR", "")
        except psutil.Error:
            continue
        if temporary.startswith(f"{folder}/") and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Supervisors over scripted CLIs, with their state in the test's folder."""
    return Bench(tmp_path)
