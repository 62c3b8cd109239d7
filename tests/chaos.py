"""Many runs with random faults, cancels and closes, from one seed."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from supervisor import Limits, Request, Supervisor, SupervisorError, Timeouts
from supervisor.faults import read_stream, scripted, stream_names

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.faults.stream import Step, Stream

TIMEOUTS = Timeouts(start=5, idle=5, total=5, linger=0.1, grace=0.1, drain=0.1)
RUN_BOUND = 40.0
"""Seconds that no run may take: its limits and clean-up on two busy cores, many times over."""


@dataclass
class Tally:
    """What was seen."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: float = 0.0


def faults(chance: random.Random, stream: Stream) -> list[Step]:
    """A CLI with up to three things wrong with it."""
    steps: list[Step] = []
    for name in ("SIGTERM", "SIGINT"):
        if chance.random() < 0.2:
            steps.append(["ignore", name])
    while chance.random() < 0.5 and len(steps) < 5:
        steps.append(
            [
                "child",
                chance.choice(("same", "session", "daemon")),
                chance.choice(("hold", "closed")),
            ]
        )
    if chance.random() < 0.5:
        steps.append(["read"])
    if chance.random() < 0.2:
        steps.append(["stderr_filler", 200_000])
    body = [*stream.opening(), *stream.message("yes"), *stream.ending("yes")]
    spoil = chance.random()
    if spoil < 0.15:
        body = body[:-1]
    elif spoil < 0.25:
        body.insert(chance.randrange(len(body)), ["filler", chance.choice((10, 300_000, 4 << 20))])
    elif spoil < 0.35:
        body.insert(chance.randrange(len(body)), ["write", "ff7b220a"])
    elif spoil < 0.40:
        body.insert(chance.randrange(len(body)), ["flood", stream.status])
    end = chance.random()
    if end < 0.1:
        body.append(["exit", chance.randrange(1, 255)])
    elif end < 0.2:
        body.append(["kill", chance.choice(("SIGKILL", "SIGTERM", "SIGSEGV"))])
    elif end < 0.3:
        body.append(["hang"])
    return steps + body


async def chaos(folder: Path, seed: int, runs: int, at_once: int, **options: Any) -> Tally:
    """Make `runs` runs, `at_once` at a time, each by its own fault and its own fate."""
    tally = Tally()
    chance = random.Random(seed)
    limiter = trio.CapacityLimiter(at_once)

    async def one(number: int, own: random.Random) -> None:
        stream = read_stream(own.choice(stream_names()))
        program = scripted(*faults(own, stream))
        request: Request[Any] = Request(
            provider=stream.provider,
            prompt="x" * own.choice((1, 1000, 300_000)),
            billing="any",
            timeouts=TIMEOUTS,
            limits=Limits(answer=1 << 20, line=3 << 20, stdout=8 << 20),
        )
        fate = own.choices(
            ("read", "cancel", "break", "close", "raise"), (0.55, 0.2, 0.1, 0.1, 0.05)
        )[0]
        when = own.choice((0.0, 0.005, 0.02, 0.05, 0.2))
        supervisor = Supervisor(
            programs={stream.provider: program},
            variables={stream.provider: stream.variables},
            state_dir=folder,
            **options,
        )
        async with limiter:
            began = trio.current_time()
            try:
                end = await live(supervisor, request, fate, when)
            except Exception as error:
                tally.wrong.append(f"run {number}: {error!r}")
                return
            took = trio.current_time() - began
            tally.longest = max(tally.longest, took)
            tally.ends[f"{fate}: {end}"] += 1
            if took > RUN_BOUND:
                tally.wrong.append(f"run {number}: {took:.1f} s")
            if fate == "read" and end == "no end":
                tally.wrong.append(f"run {number}: no terminal event")

    async with trio.open_nursery() as nursery:
        for number in range(runs):
            nursery.start_soon(one, number, random.Random(chance.random()))
    return tally


class Boom(Exception):
    """An error of the caller's own code."""


async def live(supervisor: Supervisor, request: Request[Any], fate: str, when: float) -> str:
    """One run and its fate; how it ended."""
    terminal: list[str] = []

    async def follow() -> None:
        async with supervisor.stream(request) as run:
            async for event in run:
                if event.kind in ("done", "failed"):
                    terminal.append(event.kind)
                elif fate == "break":
                    break
                elif fate == "raise":
                    raise Boom

    try:
        if fate == "cancel":
            with trio.move_on_after(when):
                await follow()
        elif fate == "close":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(closed_run, follow)
                await trio.sleep(when)
                await supervisor.close()
        else:
            await follow()
    except Boom:
        pass
    finally:
        await supervisor.close()
    if len(terminal) > 1:
        raise AssertionError(f"{len(terminal)} terminal events")
    return terminal[0] if terminal else "no end"


async def closed_run(follow: Any) -> None:
    try:
        await follow()
    except SupervisorError as error:
        if error.code != "supervisor.closed":
            raise


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
