"""The search for what a run left behind: by group, by descent and by the mark in the environment.

It proves nothing: a process that clears its environment in a session of its own is not found. That is
why a run contained only so says `proven=False`.
"""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from supervisor.protocol.environment import MARK


class Sweep:
    """Finds and kills the processes of one run. Every method blocks for some milliseconds."""

    def __init__(self, run_id: str, leader: int) -> None:
        self._run_id = run_id
        self._leader = leader
        self._known: dict[int, float] = {}
        self._group_is_ours = True

    def remember(self) -> None:
        """Note the leader's descendants with their start times, before they lose their parent."""
        with contextlib.suppress(psutil.Error, OSError):  # no descriptor may be to be had
            for process in psutil.Process(self._leader).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    self._known[process.pid] = process.create_time()

    def forget_group(self) -> None:
        """The leader is about to be reaped: its group's number may become somebody else's."""
        self._group_is_ours = False

    def look(self) -> dict[int, str]:
        """The names of the run's living processes by pid, without the leader."""
        return {process.pid: _name(process) for process in self._living()}

    def kill(self) -> int:
        """Kill what is found; gives how many that were."""
        found = self._living()
        for process in found:
            # psutil compares the start time first, so a number in new hands is safe.
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        return len(found)

    def _living(self) -> list[psutil.Process]:
        ours = os.getpid()
        return [
            process
            for process in psutil.process_iter()
            if process.pid not in (self._leader, ours) and self._is_of_run(process)
        ]

    def _is_of_run(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            known = self._known.get(process.pid)
            if known is not None and process.create_time() == known:
                return True
            if self._group_is_ours and os.getpgid(process.pid) == self._leader:
                return True
            return process.environ().get(MARK) == self._run_id
        except (psutil.Error, OSError):  # gone, or another user's
            return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "unknown"
