"""The self-test: every check of the fault kit, on this machine, as a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from supervisor.faults import CHECKS, Check, CheckError, read_stream, run_check, stream_names
from supervisor.process.start import find_containment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.process.modes import Found
    from supervisor.process.start import Containment

AT_ONCE = 4
"""Checks that run at the same time; most of their time is waiting for a limit."""


async def selftest(containment: Containment) -> bool:
    """Run all checks and print the table; whether all passed.

    Where the mode in force proves nothing, the checks that need a proof are shown as not proven.
    """
    console, began = Console(highlight=False), time.monotonic()
    contained = await find_containment(containment)
    proven, options = contained.mode != "group", {"containment": containment}
    found: dict[tuple[str, str], str | None] = {}
    limiter = trio.CapacityLimiter(AT_ONCE)
    wanted = [check for check in CHECKS if proven or not check.proven_only]

    async def one(check: Check, provider: str) -> None:
        async with limiter:
            try:
                await run_check(check, read_stream(provider), options)
                found[check.name, provider] = None
            except CheckError as error:
                found[check.name, provider] = str(error)
        status.update(f"{len(found)} of {len(wanted) * len(stream_names())} checks")

    with console.status("starting") as status:
        async with trio.open_nursery() as nursery:
            for check in wanted:
                for provider in stream_names():
                    nursery.start_soon(one, check, provider)
    console.print(_table(found, contained, proven=proven))
    failed = {key: why for key, why in found.items() if why is not None}
    for (name, provider), why in sorted(failed.items()):
        console.print(Text(f"{provider}: {name}: {why}", style="red"))
    seconds = time.monotonic() - began
    console.print(f"{len(found) - len(failed)} passed, {len(failed)} failed, in {seconds:.0f} s")
    return not failed


def _table(found: Mapping[tuple[str, str], str | None], contained: Found, *, proven: bool) -> Table:
    title = f"containment: {contained.mode}"
    if contained.reason is not None:
        title += f" ({contained.reason})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("check")
    for provider in stream_names():
        table.add_column(provider)
    for check in CHECKS:
        if check.proven_only and not proven:
            cells = [Text("not proven", style="yellow")] * len(stream_names())
        else:
            cells = [_cell(found[check.name, provider]) for provider in stream_names()]
        table.add_row(check.name, *cells)
    return table


def _cell(why: str | None) -> Text:
    return Text("pass", style="green") if why is None else Text("FAIL", style="bold red")
