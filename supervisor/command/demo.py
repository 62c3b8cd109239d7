"""The demonstration: every event as it comes, and the typed completion at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Console
from rich.pretty import Pretty

from supervisor.model.request import Request
from supervisor.recording import DEMO, player
from supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from supervisor.model.events import Event


class Verdict(BaseModel):
    """The answer that the second question of the demonstration asks for."""

    answer: str
    confidence: float


async def play_recordings() -> None:
    """Two recorded runs of claude 2.1.332, played through a fake CLI as a real subprocess."""
    console = Console(highlight=False)
    console.print(
        "Recorded runs of claude 2.1.332, played by a fake CLI that is started, supervised and"
        " cleaned up as the real one would be.\n"
    )
    asked: list[tuple[str, Request[Any]]] = [
        ("text", Request(provider="claude", prompt="What is a nursery?")),
        ("schema", Request(provider="claude", prompt="Is 91 prime?", schema=Verdict)),
    ]
    for name, request in asked:
        async with Supervisor(programs={"claude": player(DEMO / name)}) as supervisor:
            await _show(console, supervisor, request)


async def ask_real_cli(provider: str, prompt: str) -> None:
    """The same with an installed CLI."""
    async with Supervisor() as supervisor:
        request: Request[Any] = Request(provider=provider, prompt=prompt)
        await _show(Console(highlight=False), supervisor, request)


async def _show(console: Console, supervisor: Supervisor, request: Request[Any]) -> None:
    console.print(f"[bold]{request.provider}[/bold] is asked: {request.prompt}")
    async with supervisor.stream(request) as run:
        async for event in run:
            console.print(_line(event), overflow="ellipsis", no_wrap=True, markup=False)
    completion = run.completion
    console.print("\nThe completion:")
    shown = dataclasses.replace(completion, argv=(completion.argv[0], "…"))
    console.print(Pretty(shown, expand_all=False, max_string=200), "\n")


def _line(event: Event) -> str:
    fields = {
        field.name: value
        for field in dataclasses.fields(event)
        if field.name != "kind" and (value := getattr(event, field.name)) not in (None, "", ())
    }
    if event.kind in ("done", "failed"):
        return f"  {event.kind}"
    return f"  {event.kind:11} " + "  ".join(f"{name}={value!r}" for name, value in fields.items())
