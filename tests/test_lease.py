"""What a killed supervisor left is removed by the next start, and nothing that may be another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from supervisor.model.adapter import Wanted
from supervisor.process.home import Traces, name_home
from supervisor.process.lease import Reaped, close_home, open_home, reap
from supervisor.process.program import find_files
from tests.fakes import GOOD, STARTED, ask, fake
from tests.test_run import HASTY, appears

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes import Bench

HOST = """
import sys, trio
from supervisor import Request, Supervisor
async def main():
    async with Supervisor(programs={"codex": sys.argv[2:]}, state_dir=sys.argv[1]) as supervisor:
        await supervisor.run(Request(provider="codex", prompt="x"))
trio.run(main)
"""


async def killed_host(bench: Bench) -> str:
    """A host that was killed in the middle of a run; gives the run's id."""
    ready = bench.path / "ready"
    program = fake(["child", "session", "closed"], STARTED, ["touch", str(ready)], ["hang"])
    command = [sys.executable, "-c", HOST, str(bench.state), *program]
    process = await trio.lowlevel.open_process(command)
    await appears(ready)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    (run_id,) = bench.homes()
    return run_id


async def test_the_next_start_removes_what_a_killed_one_left(bench: Bench) -> None:
    await killed_host(bench)
    async with bench.supervisor(GOOD) as supervisor:
        await supervisor.run(ask())
    assert os.listdir(bench.state / "runs") == []


async def test_reap_does_it_by_hand_and_says_what_it_did(bench: Bench) -> None:
    run_id = await killed_host(bench)
    other = bench.state / "runs" / "somebodys"
    other.mkdir()
    found = await trio.to_thread.run_sync(reap, str(bench.state))
    assert found.removed == (run_id,)
    assert found.unknown == ("somebodys",)
    assert found.failed == ()
    assert os.listdir(bench.state / "runs") == ["somebodys"]
    assert reap(str(bench.state)) == Reaped(unknown=("somebodys",))


async def test_a_living_run_is_left_alone(bench: Bench) -> None:
    async with bench.supervisor(STARTED, ["hang"]) as supervisor:
        async with supervisor.stream(ask(timeouts=HASTY)) as run:
            await run.__anext__()
            (run_id,) = bench.homes()
            found = await trio.to_thread.run_sync(reap, str(bench.state))
            assert found == Reaped(running=(run_id,))
            assert bench.homes() == [run_id]


def test_a_directory_without_a_lease_is_left_alone(bench: Bench) -> None:
    mine = bench.state / "runs" / "0123456789ab"
    mine.mkdir(parents=True)
    assert reap(str(bench.state)) == Reaped(unknown=("0123456789ab",))
    assert mine.exists()


def test_a_lease_without_a_directory_is_removed(bench: Bench) -> None:
    runs = bench.state / "runs"
    runs.mkdir(parents=True)
    (runs / "0123456789ab.lease").touch()
    assert reap(str(bench.state)).removed == ("0123456789ab",)
    assert os.listdir(runs) == []


def test_the_folders_that_a_killed_run_made_elsewhere_are_tidied(bench: Bench) -> None:
    runs, full, empty = bench.state / "runs", bench.path / "full", bench.path / "empty"
    runs.mkdir(parents=True)
    (full / "kept").mkdir(parents=True)
    empty.mkdir()
    text = json.dumps({"tidy": [str(full), str(empty), "relative", 7]})
    (runs / "0123456789ab.lease").write_text(text)
    (runs / "0123456789ac.lease").write_text("{broken")
    assert len(reap(str(bench.state)).removed) == 2
    assert full.exists()
    assert not empty.exists()


def test_no_state_folder_is_nothing_to_reap(tmp_path: Path) -> None:
    assert reap(str(tmp_path / "nowhere")) == Reaped()


def test_a_lease_that_was_reaped_while_it_was_taken_is_taken_anew(bench: Bench) -> None:
    """Many starts and many reapers on one folder: nobody loses a living directory."""
    code = (
        "import sys; from supervisor.process.lease import reap\n"
        "for _ in range(300): assert not reap(sys.argv[1]).failed\n"
    )
    reapers = [subprocess.Popen([sys.executable, "-c", code, str(bench.state)]) for _ in range(2)]
    for _ in range(300):
        home = name_home(str(bench.state))
        lease = open_home(home, (), Traces())
        assert os.path.isdir(home.places.work)
        assert close_home(home, lease) == ()
    assert [process.wait(timeout=60) for process in reapers] == [0, 0]
    assert os.listdir(bench.state / "runs") == []


@pytest.mark.parametrize("name", ["work", "files", "tmp"])
def test_the_directory_is_private(bench: Bench, name: str) -> None:
    home = name_home(str(bench.state))
    lease = open_home(home, (), Traces())
    for path in (home.path, os.path.join(home.path, name)):
        assert os.stat(path).st_mode & 0o777 == 0o700
    close_home(home, lease)


def test_files_are_found_by_name_through_links_and_without_end(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "SKILL.md").touch()
    (folder / "a" / "other.md").touch()
    (folder / "a" / "loop").symlink_to(folder)
    wanted = (
        Wanted(folder=str(folder), name="SKILL.md"),
        Wanted(folder=f"{tmp_path}/no", name="x"),
    )
    found = [file.path for file in find_files(wanted)]
    assert str(folder / "a" / "b" / "SKILL.md") in found
    assert len(found) < 50
