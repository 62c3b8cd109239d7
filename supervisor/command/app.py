"""The sub-commands. This is the only place that reads the process's own arguments and terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import trio
import typer

from supervisor.adapters import find_adapter, provider_names
from supervisor.model.errors import (
    AnswerError,
    AuthError,
    CleanupError,
    CliError,
    LimitError,
    ModelError,
    OutputError,
    PolicyError,
    ProtocolError,
    RequestError,
    RunTimeout,
    SupervisorError,
    as_error,
    failure,
)
from supervisor.model.request import BillingPolicy, Effort, Request, Timeouts
from supervisor.process.start import CONTAINMENTS
from supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisor.command.view import View
    from supervisor.model.completion import Completion
    from supervisor.process.start import Containment

EXIT_CODES: dict[type[SupervisorError], int] = {
    RequestError: 2,
    CliError: 3,
    AuthError: 4,
    LimitError: 5,
    ModelError: 6,
    RunTimeout: 7,
    OutputError: 8,
    ProtocolError: 9,
    PolicyError: 10,
    AnswerError: 11,
}
"""The exit code for each class of errors; every other error gives 1."""

EPILOG = (
    "Exit codes: 0 an answer, 1 an error of this program, 2 the request or an option, 3 the CLI is"
    " missing or does not start, 4 signing in or a key, 5 a limit of the vendor, 6 the model or the"
    " network, 7 our time limit, 8 our size limit, 9 no result from the CLI, 10 a tool was used,"
    " 11 the answer does not fit, 130 Ctrl-C, 143 SIGTERM."
)

app = typer.Typer(
    name="supervisor",
    help="""Ask a coding-agent CLI one question, supervised: typed events, one answer, nothing left.

    Example: supervisor run --provider claude "Explain nurseries in two sentences."
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Stopped(Exception):
    """A signal asked this program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"supervisor {version('agent-cli-supervisor')}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction] -- typer calls it
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command(
    epilog=EPILOG,
    help="""Ask a CLI one question and print its answer.

    The answer goes to standard output. On a terminal the events are shown on standard error as they
    come.

    Example: supervisor run --provider codex "Is 91 prime?"
    """,
)
def run(
    prompt: Annotated[
        str, typer.Argument(help="The question, or - to read it from standard input.")
    ],
    provider: Annotated[str, typer.Option(help=f"One of {', '.join(provider_names())}.")],
    schema: Annotated[
        Path | None,
        typer.Option(help="A file with a JSON Schema; the answer is JSON that fits it."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every event as a line of JSON instead.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The CLI's name for a model.")] = None,
    effort: Annotated[
        str | None, typer.Option(help=f"How much to think: {', '.join(get_args(Effort))}.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Instructions for the model.")] = None,
    billing: Annotated[
        str | None,
        typer.Option(
            help=f"Who may pay: {', '.join(get_args(BillingPolicy))}. By default the subscription,"
            " or the key for a CLI that knows only keys."
        ),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for the whole run.")] = None,
    program: Annotated[
        str | None, typer.Option(help="The CLI's executable, instead of the one on PATH.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Name of a variable to let through, e.g. ANTHROPIC_API_KEY; repeatable."),
    ] = None,
    containment: Annotated[
        str, typer.Option(help=f"How to contain processes: {', '.join(CONTAINMENTS)}.")
    ] = "auto",
) -> None:
    from supervisor.command.view import View

    async def ask(view: View) -> None:
        request: Request[Any] = Request(
            provider=provider,
            prompt=await _read_prompt(prompt),
            system=system,
            model=model,
            schema=None if schema is None else _read_schema(schema),
            effort=cast("Effort | None", effort),
            timeouts=Timeouts() if timeout is None else Timeouts(total=timeout),
            billing=cast("BillingPolicy | None", billing),
        )
        find_adapter(provider)  # an unknown name is answered with the nearest one
        supervisor = Supervisor(
            programs=None if program is None else {provider: [program]},
            keep={provider: keep} if keep else None,
            containment=read_containment(containment),
        )
        async with supervisor:
            completion = await _follow(supervisor, request, view, as_json=as_json)
        if not as_json:
            typer.echo(completion.text)
            view.finish(completion)

    _carry_out(ask, View(provider), as_json=as_json)


@app.command(
    epilog=EPILOG,
    help="""Show what a run is: events as they come, then the typed completion.

    Without --provider a recorded run is played through a fake CLI, as a real subprocess; no CLI, no
    login and no network are needed.

    Example: supervisor demo --provider codex "Is 91 prime?"
    """,
)
def demo(
    prompt: Annotated[str, typer.Argument(help="The question for a real CLI.")] = "Is 91 prime?",
    provider: Annotated[
        str | None, typer.Option(help="Ask this CLI instead of playing the recording.")
    ] = None,
) -> None:
    from supervisor.command.demo import ask_real_cli, play_recordings
    from supervisor.command.view import View

    async def show(view: View) -> None:
        if provider is None:
            await play_recordings()
        else:
            await ask_real_cli(provider, prompt)

    _carry_out(show, View(provider or "claude"), as_json=False)


@app.command(
    help="""Remove what runs left whose supervisor was killed, and say what was found.

    The next run in the same state folder does it by itself. What may be another's is left alone.

    Example: supervisor reap
    """,
)
def reap(
    state_dir: Annotated[
        Path | None, typer.Option(help="The state folder, instead of the user's own.")
    ] = None,
) -> None:
    from supervisor.process.home import default_state_dir
    from supervisor.process.lease import reap as reap_runs

    folder = default_state_dir(os.environ) if state_dir is None else str(state_dir)
    found = reap_runs(folder)
    for run_id in found.removed:
        typer.echo(f"removed {run_id}")
    for run_id in found.running:
        typer.echo(f"left alone {run_id}: its supervisor lives")
    for name in found.unknown:
        typer.echo(f"left alone {name!r}: nothing proves whose it is")
    for sentence in found.failed:
        typer.echo(sentence, err=True)
    typer.echo(f"{len(found.removed)} removed, {found.killed} processes ended, in {folder}")
    if found.failed:
        raise typer.Exit(1)


@app.command(
    help="""Start fake CLIs with one fault each and show what the supervisor makes of them, here.

    Nothing outside this machine is asked, and no real CLI is started.

    Example: supervisor selftest
    """,
)
def selftest(
    containment: Annotated[
        str, typer.Option(help=f"How to contain processes: {', '.join(CONTAINMENTS)}.")
    ] = "auto",
) -> None:
    from supervisor.command.selftest import selftest as run_all
    from supervisor.command.view import View

    passed = False

    async def work(_view: View) -> None:
        nonlocal passed
        passed = await run_all(read_containment(containment))

    _carry_out(work, View("selftest"), as_json=False)
    if not passed:
        raise typer.Exit(1)


async def _follow(
    supervisor: Supervisor, request: Request[Any], view: View, *, as_json: bool
) -> Completion[Any]:
    from supervisor.command.wire import event_line

    async with supervisor.stream(request) as events:
        with view:
            async for event in events:
                if as_json:
                    typer.echo(event_line(event))
                else:
                    view.show(event)
    return events.completion


async def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    data = await trio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise as_error(
            failure(
                "request.invalid",
                f"Standard input is no UTF-8: byte {error.start} cannot be read.",
                hint="Convert the text to UTF-8 first.",
            )
        ) from None


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(path.read_text())
    except OSError as error:
        raise as_error(
            failure("request.invalid", f"The schema file {str(path)!r}: {error.strerror}.")
        ) from None
    except ValueError as error:
        raise as_error(
            failure("request.invalid", f"The schema file {str(path)!r} is no JSON: {error}.")
        ) from None
    if not isinstance(schema, dict):
        raise as_error(
            failure("request.invalid", f"The schema file {str(path)!r} holds no JSON object.")
        )
    return cast("dict[str, Any]", schema)


def _carry_out(work: Callable[[View], Awaitable[None]], view: View, *, as_json: bool) -> None:
    """Run `work` to its end; a signal cancels it, and what it started is cleaned up first."""
    try:
        trio.run(_until_signal, work, view)
    except SupervisorError as error:
        if as_json and error.partial is None and not isinstance(error, CleanupError):
            from supervisor.command.wire import error_line

            typer.echo(error_line(error))  # no event told it
        view.fail(error)
        raise typer.Exit(exit_code(error)) from None
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except _Stopped as stopped:
        raise typer.Exit(128 + stopped.number) from None


async def _until_signal(work: Callable[[View], Awaitable[None]], view: View) -> None:
    caught: BaseException | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                nonlocal caught
                async for number in signals:
                    caught = _Stopped(number)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(listen)
            try:
                await work(view)
            except (SupervisorError, BrokenPipeError) as error:
                caught = caught or error
            nursery.cancel_scope.cancel()
    if caught is not None:
        raise caught


def read_containment(name: str) -> Containment:
    """The containment of that name.

    Raises:
        RequestError: there is none.
    """
    if name not in CONTAINMENTS:
        raise as_error(
            failure(
                "request.invalid",
                f"There is no containment {name!r}.",
                hint=f"Use one of {', '.join(CONTAINMENTS)}.",
            )
        )
    return name


def exit_code(error: SupervisorError) -> int:
    """The exit code for an error, by its class."""
    return EXIT_CODES.get(type(error), 1)
