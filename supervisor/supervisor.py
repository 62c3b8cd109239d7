"""The entry: one object that holds what the application trusts, and starts runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import trio

from supervisor.adapters import find_adapter, provider_names
from supervisor.model.errors import as_error, failure
from supervisor.process.home import default_state_dir
from supervisor.process.program import find_files
from supervisor.process.shelter import in_thread, to_the_end
from supervisor.process.start import CONTAINMENTS
from supervisor.protocol.checks import check_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType

    from supervisor.model.completion import Completion
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Data, Request
    from supervisor.process.start import Containment
    from supervisor.run import Run


class Supervisor:
    """Starts runs and answers for what they leave behind: nothing.

    Use it as `async with Supervisor() as supervisor:`, or call `close()` yourself. Two of them in one
    program do not know of each other.

    Args:
        programs: for a provider, the program to start instead of the one on PATH, and arguments that
            always follow it: `{"codex": ["/opt/bin/codex", "-c", "model_provider=\\"mine\\""]}`.
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
        environ: Mapping[str, str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        containment: Containment = "auto",
    ) -> None:
        self._programs = {name: _words("programs", name, words) for name, words in _of(programs)}
        self._keep = {name: _words("keep", name, words) for name, words in _of(keep)}
        self._variables = {name: _pairs(name, pairs) for name, pairs in _of(variables)}
        _check_providers(programs=programs, keep=keep, variables=variables)
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
        run = await self._new_run(request)
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
                        yield run
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
            self._runs.discard(run)
            self._note_leftovers(run)
        if caught is not None:
            raise caught

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
            runs = tuple(self._runs)
            async with trio.open_nursery() as nursery:
                for run in runs:
                    nursery.start_soon(run.abort, failure("supervisor.closed"))
            for run in runs:
                self._note_leftovers(run)

    def _note_leftovers(self, run: Run[Any]) -> None:
        self._leftovers.update(dict.fromkeys(run.leftovers))

    async def _new_run(self, request: Request[Data]) -> Run[Data]:
        # Imported late: it brings the JSON library with it, which a program that only imports this
        # package does not need.
        from supervisor.run import Run, Trusted

        self._refuse_if_closed()
        check_request(request)
        adapter = find_adapter(request.provider)
        trusted = Trusted(
            adapter,
            self._environ,
            programs=self._programs.get(request.provider),
            keep=self._keep.get(request.provider, ()),
            variables=self._variables.get(request.provider, {}),
        )
        found = await in_thread(find_files, adapter.looks_for(trusted.known))
        self._refuse_if_closed()
        return Run(request, adapter, trusted, found, self._state_dir, self._containment)

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
