"""The built wheel, installed where nothing can be written, is all that a user needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *options,
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_types_and_recordings_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "supervisor/py.typed" in names
    assert "supervisor/recording/demo/text/stdout" in names
    assert not [name for name in names if name.split("/")[0] in ("tests", "fixtures", "scripts")]


def test_the_demonstration_runs_from_a_read_only_installation(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import sys, supervisor.command; print(supervisor.__file__, file=sys.stderr);"
        "sys.argv[1:] = ['demo']; supervisor.command.main()"
    )
    command = [sys.executable, "-c", code]
    if os.getuid() == 0:
        # Root may write anywhere, so the folder itself is made read-only, for this process alone.
        mount = (
            f"mount --bind '{site}' '{site}' && mount -o remount,ro,bind '{site}' && exec \"$@\""
        )
        command = ["unshare", "--mount", "sh", "-c", mount, "sh", *command]
    else:
        for path in [site, *site.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(site)}
    done = subprocess.run(
        command, env=environ, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.decode().strip() == str(site / "supervisor" / "__init__.py")
    assert b"data=Verdict(" in done.stdout
    if os.getuid() != 0:
        for path in [site, *site.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o700)
