"""The private directory and the processes of one run, from their start until nothing is left."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import trio

from supervisor.process.home import Traces, name_home
from supervisor.process.lease import close_home, open_home, reap
from supervisor.process.modes import Found
from supervisor.process.program import find_program
from supervisor.process.pump import Tail, write_stdin
from supervisor.process.shelter import in_thread, to_the_end
from supervisor.process.start import find_containment, start
from supervisor.protocol.ending import ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.adapter import Adapter
    from supervisor.model.completion import Killed
    from supervisor.model.launch import Launch
    from supervisor.model.request import Limits, Timeouts
    from supervisor.process.child import Child
    from supervisor.process.guarded import GuardedChild
    from supervisor.process.lease import Lease
    from supervisor.process.start import Containment
    from supervisor.protocol.ending import Cause


class Life:
    """One run's hold on the system. Every step of its end is done, also when another one fails.

    Attributes:
        child: the started CLI, None before the start.
        contained: the containment in force.
        killed: what still lived after the CLI's end, and was killed.
        leftovers: what could not be cleaned, a plain sentence each.
        seconds: how long ending and removing took.
        tail: the end of standard error.
    """

    def __init__(
        self, state_dir: str, timeouts: Timeouts, limits: Limits, *, lasting_work: bool = False
    ) -> None:
        self.home = name_home(state_dir, lasting_work=lasting_work)
        self.child: Child | GuardedChild | None = None
        self.contained = Found("group", None)
        self.killed: tuple[Killed, ...] = ()
        self.leftovers: tuple[str, ...] = ()
        self.seconds = 0.0
        self.tail = Tail(limits.stderr_tail)
        self._timeouts = timeouts
        self._launch: Launch | None = None
        self._lease: Lease | None = None
        self._opened = trio.Event()
        self._served = self._ended = self._gone = self._unwanted = False
        self._lock = trio.Lock()

    async def prepare(
        self,
        adapter: Adapter,
        named: Sequence[str] | None,
        environ: Mapping[str, str],
        containment: Containment,
        *,
        reap_first: bool,
    ) -> tuple[str, ...]:
        """Find what to start, and how to contain it.

        Args:
            adapter, named, environ: see `find_program`.
            containment: what the application asks for.
            reap_first: remove what killed predecessors left in the state folder.

        Returns:
            The program and the arguments that always follow it.

        Raises:
            SupervisorError: it is not there.
        """
        if reap_first:
            await in_thread(reap, os.path.dirname(os.path.dirname(self.home.path)))
        self.contained = await find_containment(containment)
        return await in_thread(find_program, adapter, named, environ)

    async def open(
        self, launch: Launch, program: Sequence[str], environ: Mapping[str, str]
    ) -> bool:
        """Make the directory and start the CLI; False if `stop_opening` came first.

        Raises:
            SupervisorError: it does not start.
        """
        self._launch = launch
        traces = Traces(tidy=launch.tidy, discard=launch.discard, logins=launch.logins)
        self._lease = await in_thread(open_home, self.home, launch.files, traces)
        if not self._unwanted:
            self.child = await start(
                self.contained,
                (*program, *launch.arguments),
                environ,
                work=self.home.places.work,
                run_id=self.home.run_id,
                has_stdin=bool(launch.stdin),
                terminal=launch.terminal,
            )
        return self.child is not None

    def opened(self) -> None:
        """The start is over, whatever came of it."""
        self._opened.set()

    async def stop_opening(self) -> None:
        """Start nothing any more, and wait until nothing is being started."""
        self._unwanted = True
        await self._opened.wait()

    def serve(self, nursery: trio.Nursery) -> None:
        """Serve standard input and standard error."""
        assert self.child is not None
        assert self._launch is not None
        self._served = True
        nursery.start_soon(write_stdin, self.child, self._launch.stdin)
        nursery.start_soon(self.tail.read, self.child.stderr)

    async def end(self, cause: Cause) -> None:
        """End the processes; what is in the pipes can still be read."""
        await to_the_end(partial(self._locked, cause, remove=False))

    async def remove(self, cause: Cause) -> None:
        """End the processes, close the pipes, remove the files. Safe to call again, by anybody.

        Takes at most the grace period, the bounds of the child's `end`, the drain limit and the second
        of `remove_home`.
        """
        await to_the_end(partial(self._locked, cause, remove=True))

    async def _locked(self, cause: Cause, *, remove: bool) -> None:
        async with self._lock:
            began = trio.current_time()
            if not self._ended:
                await self._end(cause)
                self._ended = True
            if remove and not self._gone:
                await self._remove()
                self._gone = True
            self.seconds += trio.current_time() - began

    async def _end(self, cause: Cause) -> None:
        if self.child is None or self._launch is None:
            return
        way = ending(cause, leader_ended=self.child.exit is not None)
        grace = self._timeouts.grace if way.asked else 0.0
        try:
            killed, left = await self.child.end(polite=self._launch.polite, grace=grace)
        except (OSError, RuntimeError) as error:  # no descriptor or no thread is to be had
            self.child.kill()
            killed, left = (), (f"The end of the run's processes was not seen: {error}.",)
        self.killed = killed
        self.leftovers = (*self.leftovers, *left)

    async def _remove(self) -> None:
        if self.child is not None:
            if self._served:
                with trio.move_on_after(self._timeouts.drain):
                    await self.tail.finished.wait()
            await self.child.close()
        if self._lease is None:
            return
        try:
            left = await in_thread(close_home, self.home, self._lease)
        except (OSError, RuntimeError) as error:
            self._lease.abandon()
            left = (f"The private directory {self.home.path!r} could not be removed: {error}.",)
        self.leftovers = (*self.leftovers, *left)
