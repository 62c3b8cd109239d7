"""The entry: one object that holds what the application trusts, and starts runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast, get_args

import trio

from supervisor.adapters import find_adapter, provider_names
from supervisor.model.errors import as_error, failure
from supervisor.model.request import BillingPolicy, Data, Request
from supervisor.process.home import default_state_dir
from supervisor.process.shelter import to_the_end
from supervisor.process.start import CONTAINMENTS
from supervisor.protocol.checks import check_request
from supervisor.protocol.supported import check_supported
from supervisor.reports import Reports
from supervisor.run import Run
from supervisor.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

    from supervisor.attempt import Attempt
    from supervisor.model.completion import Completion, SignIn
    from supervisor.model.errors import SupervisorError
    from supervisor.model.reports import Diagnostic, UsageReport
    from supervisor.process.start import Containment
    from supervisor.trusted import Trusted


class Supervisor:
    """Starts runs and answers for what they leave behind: nothing.

    Use it as `async with Supervisor() as supervisor:`, or call `close()` yourself. Two of them in one
    program do not know of each other.

    Args:
        programs: for a provider, the program to start instead of the one on PATH, and arguments that
            always follow it: `{"codex": ["/opt/bin/codex", "-c", "model_provider=\\"mine\\""]}`.
        logins: for a provider, state folders of the CLI by a name of your choice, each with a login:
            `{"codex": {"work": "/home/me/.codex-work"}}`. A Request takes one by `login="work"`.
        max_running: for a provider, how many runs of it may be under way; more wait for their turn.
        billing: the policy of requests that name none, where the CLI can hold it.
        on_usage, on_diagnostic: called once for each run that was started, when nothing of it is left.
            What they raise is logged by its type and changes nothing. `close()` waits for them.
        keep: for a provider, names of variables that the rule for the environment would hold back:
            `{"claude": ["ANTHROPIC_API_KEY"]}`.
        variables: for a provider, variables to set.
        environ: the environment to start from; the process's own by default. It is copied once.
        containment: how processes are contained: "auto" for the strongest mode that this system has and
            that needs no asking, or one by name, which is then an error where it is not to be had:
            "scope", "loop", "pidns" or "group". See `Cleanup.mode`.
        state_dir: where the private directories of runs lie; by default in the user's state folder,
            `$XDG_STATE_HOME/agent-cli-supervisor`.

    Raises:
        RequestError: `config.invalid`.
    """

    def __init__(
        self,
        *,
        programs: Mapping[str, Iterable[str | os.PathLike[str]]] | None = None,
        keep: Mapping[str, Iterable[str]] | None = None,
        variables: Mapping[str, Mapping[str, str]] | None = None,
        logins: Mapping[str, Mapping[str, str | os.PathLike[str]]] | None = None,
        max_running: Mapping[str, int] | None = None,
        billing: BillingPolicy | None = None,
        on_usage: Callable[[UsageReport], Awaitable[object]] | None = None,
        on_diagnostic: Callable[[Diagnostic], Awaitable[object]] | None = None,
        environ: Mapping[str, str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        containment: Containment = "auto",
    ) -> None:
        self._programs = {name: _words("programs", name, words) for name, words in _of(programs)}
        self._keep = {name: _words("keep", name, words) for name, words in _of(keep)}
        self._variables = {name: _pairs(name, pairs) for name, pairs in _of(variables)}
        self._logins = {name: _folders(name, folders) for name, folders in _of(logins)}
        self._turns = {name: Turns(_limit(name, most)) for name, most in _of(max_running)}
        _check_providers(
            programs=programs,
            keep=keep,
            variables=variables,
            logins=logins,
            max_running=max_running,
        )
        if billing is not None and billing not in get_args(BillingPolicy):
            names = ", ".join(get_args(BillingPolicy))
            raise _invalid(f"There is no billing policy {billing!r}.", f"Use one of {names}.")
        self._billing: BillingPolicy | None = billing
        self._reports = Reports(on_usage, on_diagnostic)
        self._trusted: dict[tuple[str, str | None], Trusted] = {}
        if containment not in CONTAINMENTS:
            names = ", ".join(CONTAINMENTS)
            raise _invalid(f"There is no containment {containment!r}.", f"Use one of {names}.")
        self._containment: Containment = containment
        self._environ = dict(os.environ if environ is None else environ)
        self._state_dir = (
            default_state_dir(self._environ) if state_dir is None else os.fspath(state_dir)
        )
        self._runs: set[Run[Any]] = set()
        self._leftovers: dict[str, None] = {}  # in order, each once
        self._reaped = False
        self._closed = False
        self._closing = trio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, request: Request[Data]) -> Completion[Data]:
        """Ask, wait, and give the answer.

        When it returns or raises, no process of the run is alive and its files are gone.

        Raises:
            SupervisorError: the request cannot be started, or the run failed.
        """
        async with self.stream(request) as run:
            async for _ in run:
                pass
        return run.completion

    @asynccontextmanager
    async def stream(self, request: Request[Data]) -> AsyncGenerator[Run[Data]]:
        """Ask, and look on.

        Leaving the block ends the run, wherever it stands; when the block is left, no process of the
        run is alive and its files are gone.

        Raises:
            SupervisorError: on entry, when the request cannot be started. A run that fails later says
                so in its `Failed` event and raises when `completion` is read.
        """
        self._refuse_if_closed()
        check_request(request)
        trusted = self._trust(request)
        async with self._turn(request.provider):
            attempt = await self._prepare(request, trusted, request)
            run = Run(request, attempt, partial(self._prepare, request, trusted))
            async with self._underway(run):
                yield run

    @asynccontextmanager
    async def _underway(self, run: Run[Any]) -> AsyncGenerator[None]:
        self._runs.add(run)
        caught: BaseException | None = None
        try:
            # The first start removes what a killed predecessor left in the same state folder.
            await run.open(reap_first=not self._reaped)
            self._reaped = True
            try:
                async with trio.open_nursery() as nursery:
                    run.serve(nursery)
                    try:
                        yield
                    except BaseException as error:
                        # Raised again below, outside the nursery, where nothing wraps it in a group.
                        caught = error
                    finally:
                        await run.dispose()
                        nursery.cancel_scope.cancel()
            except BaseException:
                if caught is None:
                    raise
        finally:
            await run.dispose()
            self._note_leftovers(run)
            if run.started:
                await self._reports.send(run)
            self._runs.discard(run)
        if caught is not None:
            raise caught

    async def sign_in(self, provider: str, login: str | None = None) -> SignIn:
        """What a CLI says of its login, without a network where the CLI has a command for it.

        Raises:
            SupervisorError: there is no such provider or login, or the CLI does not start.
        """
        self._refuse_if_closed()
        return await self._trust(Request(provider=provider, prompt="", login=login)).sign_in()

    async def close(self) -> None:
        """Refuse new runs, end the outstanding ones, and wait until nothing of them is left.

        It may be called from any task, under cancellation, at the same time and again: every call
        waits for the same end and has the same outcome. The wait is bounded by the longest bound of
        a run's clean-up.

        Raises:
            CleanupError: `cleanup.incomplete`, naming what is left.
        """
        self._closed = True
        await to_the_end(self._end_runs)
        if self._leftovers:
            raise as_error(failure("cleanup.incomplete", " ".join(self._leftovers)))

    async def _end_runs(self) -> None:
        async with self._closing:
            for turns in self._turns.values():
                turns.close()
            runs = tuple(self._runs)
            async with trio.open_nursery() as nursery:
                for run in runs:
                    nursery.start_soon(run.abort, failure("supervisor.closed"))
            for run in runs:
                self._note_leftovers(run)
                await self._reports.send(run)
            await self._reports.settle()

    def _note_leftovers(self, run: Run[Any]) -> None:
        self._leftovers.update(dict.fromkeys(run.leftovers))

    def _trust(self, request: Request[Any]) -> Trusted:
        """What the application says of the request's provider and login.

        Raises:
            RequestError: there is no such provider or login.
        """
        from supervisor.trusted import Trusted

        adapter = find_adapter(request.provider)
        key = (request.provider, request.login)
        if key not in self._trusted:
            self._trusted[key] = Trusted(
                adapter,
                self._environ,
                login=self._login(request),
                programs=self._programs.get(request.provider),
                keep=self._keep.get(request.provider, ()),
                variables=self._variables.get(request.provider, {}),
                state_dir=self._state_dir,
                containment=self._containment,
            )
        return self._trusted[key]

    def _login(self, request: Request[Any]) -> tuple[str, str] | None:
        if request.login is None:
            return None
        known = self._logins.get(request.provider, {})
        if request.login not in known:
            named = f"The logins are {', '.join(sorted(known))}." if known else "No login is named."
            raise as_error(
                failure(
                    "request.invalid",
                    f"There is no login {request.login!r} for {request.provider!r}.",
                    hint=f"{named} Name them with Supervisor(logins=...).",
                )
            )
        return request.login, known[request.login]

    async def _prepare(
        self, own: Request[Data], trusted: Trusted, request: Request[Any]
    ) -> Attempt[Data]:
        """Plan one start for the caller's `own` request; a repair asks another question."""
        # Imported late: they bring the JSON library with them, which a program that only imports this
        # package does not need.
        from supervisor.attempt import Attempt
        from supervisor.process.life import Life
        from supervisor.protocol.asked import asked

        check_supported(request, trusted.adapter)
        plain = asked(request, trusted.adapter.capabilities, self._billing)
        lasting = request.keep_session or request.resume is not None
        life = Life(self._state_dir, request.timeouts, request.limits, lasting_work=lasting)
        surroundings = await trusted.surroundings(plain, life.home.places)
        self._refuse_if_closed()
        return Attempt(own, plain, trusted, surroundings, life)

    @asynccontextmanager
    async def _turn(self, provider: str) -> AsyncGenerator[None]:
        turns = self._turns.get(provider)
        if turns is None:
            yield
            return
        await turns.take()
        try:
            self._refuse_if_closed()
            yield
        finally:
            turns.give()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise as_error(failure("supervisor.closed"))


def _of(mapping: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    return () if mapping is None else mapping.items()


def _words(argument: str, provider: str, words: object) -> tuple[str, ...]:
    if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
        raise _invalid(f"{argument}[{provider!r}] is no list of strings.")
    texts: list[str] = []
    for word in cast("Iterable[str | os.PathLike[str]]", words):
        try:
            text: object = os.fspath(word)
        except TypeError:
            text = None
        if not isinstance(text, str) or not text or "\0" in text:
            raise _invalid(f"{argument}[{provider!r}] holds something that is no usable string.")
        texts.append(text)
    if argument == "programs" and not texts:
        raise _invalid(f"{argument}[{provider!r}] is empty.")
    return tuple(texts)


def _pairs(provider: str, pairs: Mapping[str, str]) -> dict[str, str]:
    for name, value in pairs.items():
        if not _can_be_set(name, value):
            raise _invalid(
                f"variables[{provider!r}] holds a variable that cannot be set: {name!r}."
            )
    return dict(pairs)


def _folders(provider: str, folders: Mapping[str, str | os.PathLike[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, folder in folders.items():
        path = os.fspath(folder)
        if not name or not os.path.isabs(path):
            raise _invalid(f"logins[{provider!r}][{name!r}] is no absolute path of a folder.")
        found[name] = path
    if provider in provider_names() and find_adapter(provider).state_variable is None:
        raise _invalid(
            f"{provider} has no setting that moves its login, so logins cannot name one."
        )
    return found


def _limit(provider: str, most: object) -> int:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise _invalid(f"max_running[{provider!r}] is no whole number of at least 1.")
    return most


def _can_be_set(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name:
        return False
    try:
        return b"\0" not in os.fsencode(name) + os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _check_providers(**arguments: Mapping[str, Any] | None) -> None:
    for argument, mapping in arguments.items():
        for name in mapping or ():
            if name not in provider_names():
                raise _invalid(
                    f"{argument} names the provider {name!r}, which does not exist.",
                    f"The providers are {', '.join(provider_names())}.",
                )


def _invalid(message: str, hint: str | None = None) -> SupervisorError:
    return as_error(failure("config.invalid", message, hint=hint))
