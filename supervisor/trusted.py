"""What the application says of one provider, and what is found out before a run: never in a Request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from supervisor.model.adapter import Surroundings
from supervisor.model.completion import Exit
from supervisor.model.launch import Launch
from supervisor.model.request import Limits, Timeouts
from supervisor.process.life import Life
from supervisor.process.program import find_files, stamp_of
from supervisor.process.pump import Tail
from supervisor.process.shelter import in_thread
from supervisor.protocol.environment import base_environment, child_environment
from supervisor.protocol.version import read_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.adapter import Adapter
    from supervisor.model.completion import SignIn
    from supervisor.model.launch import Places
    from supervisor.model.request import Request
    from supervisor.process.start import Containment

_PROBE = Timeouts(total=20.0, grace=1.0)
_PROBE_BYTES = 256 * 1024


class Trusted:
    """One provider with one login, as the application wants it.

    Attributes:
        adapter: the provider's.
        login: name of the application's login, None for the CLI's own.
        programs: the program to start and its fixed arguments, None for the one on PATH.
        keep: names of variables to let through.
        variables: variables to set.
        base: what passes of the environment, see `base_environment`.
        known: `base` with `variables`: what an adapter may rely on.
        state_dir, containment: see `Supervisor`.
    """

    def __init__(
        self,
        adapter: Adapter,
        environ: Mapping[str, str],
        *,
        login: tuple[str, str] | None,
        programs: Sequence[str] | None,
        keep: Sequence[str],
        variables: Mapping[str, str],
        state_dir: str,
        containment: Containment,
    ) -> None:
        self.adapter = adapter
        self.login = None if login is None else login[0]
        self.programs = programs
        self.keep = tuple(keep)
        self.variables = dict(variables)
        if login is not None and adapter.state_variable is not None:
            self.variables[adapter.state_variable] = login[1]
        self.base = base_environment(environ, (*adapter.variables, *self.keep))
        self.known = {**self.base, **self.variables}
        self.state_dir = state_dir
        self.containment: Containment = containment
        self._answers: dict[object, Answer] = {}

    def environment(self, launch: Launch, life: Life) -> dict[str, str]:
        """The child's whole environment."""
        # A state folder that the plan makes private wins over the one of the user or of the login.
        moved = {
            name: value
            for name, value in launch.environment.items()
            if name == self.adapter.state_variable
        }
        return child_environment(
            self.base,
            launch.environment,
            self.keep,
            {**self.variables, **moved},
            temporary=life.home.places.temporary,
            run_id=life.home.run_id,
        )

    async def surroundings(self, request: Request[Any], places: Places) -> Surroundings:
        """What a plan may know, asked from the disk and from the CLI itself where the plan needs it.

        Raises:
            SupervisorError: the CLI cannot be started.
        """
        adapter = self.adapter
        found = await in_thread(find_files, adapter.looks_for(request, self.known))
        version = await self.version() if adapter.needs_version else None
        known = Surroundings(places=places, environ=self.known, found=found, version=version)
        sign_in = await self.sign_in() if adapter.asks_sign_in(request, known) else None
        return Surroundings(
            places=places, environ=self.known, found=found, version=version, sign_in=sign_in
        )

    async def version(self) -> str | None:
        """What the CLI calls its version; None if it does not say."""
        answer = await self._ask(("--version",))
        return read_version(answer.stdout + answer.stderr)

    async def sign_in(self) -> SignIn:
        """Who is signed in, by the CLI's own word.

        Raises:
            SupervisorError: the CLI cannot be started.
        """
        arguments = self.adapter.sign_in_arguments
        if arguments is None:
            return self.adapter.sign_in(Exit(code=None, signal=None, ended_by_us=False), "", "")
        answer = await self._ask(arguments)
        return self.adapter.sign_in(answer.exit, answer.stdout, answer.stderr)

    async def _ask(self, arguments: tuple[str, ...]) -> Answer:
        """Start the CLI for a word about itself; an answer stands until the login files change."""
        files = self.adapter.login_files(self.known)
        key = (arguments, await in_thread(stamp_of, files))
        if key not in self._answers:
            self._answers[key] = await ask(self, arguments)
        return self._answers[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a CLI printed when it was asked about itself."""

    exit: Exit
    stdout: str
    stderr: str


async def ask(trusted: Trusted, arguments: tuple[str, ...]) -> Answer:
    """Start a CLI, contained like a run, and read what it prints, for at most 20 seconds.

    Raises:
        SupervisorError: it does not start.
    """
    launch = Launch(arguments=arguments)
    life = Life(trusted.state_dir, _PROBE, Limits())
    printed = Tail(_PROBE_BYTES)
    try:
        environ = trusted.environment(launch, life)
        program = await life.prepare(
            trusted.adapter, trusted.programs, environ, trusted.containment, reap_first=False
        )
        await life.open(launch, program, environ)
        child = life.child
        assert child is not None
        with trio.move_on_after(_PROBE.total or 0):
            async with trio.open_nursery() as nursery:
                life.serve(nursery)
                nursery.start_soon(printed.read, child.stdout)
                await child.wait()
                await life.end("itself")
    finally:
        life.opened()
        await life.remove("left")
    ended = child.exit or Exit(code=None, signal=None, ended_by_us=True)
    return Answer(exit=ended, stdout=printed.text(), stderr=life.tail.text())
