"""What the application's callbacks get to know of a run: counters and plain facts, nothing secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from supervisor.model.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """What a run used, good or bad.

    Attributes:
        provider, login, model: who ran it; None where not known.
        counters: tokens by name (see `Usage`), only those that the CLI reported.
        cost_usd: what the CLI reports, None where it reports nothing.
        metadata: the request's.
    """

    provider: str
    login: str | None
    model: str | None
    counters: Mapping[str, int]
    cost_usd: float | None
    metadata: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """How a run went.

    Attributes:
        provider: who ran it.
        status: "done", "failed", or "left" where nobody read the run to its end or it was cancelled.
        code: of the error; None without one.
        exit_code, signal: how the CLI's own process ended; None where that is not known.
        notices: how many notices came.
        attempts: how many starts of the CLI it took.
        seconds: from the call to the end.
        metadata: the request's.
    """

    provider: str
    status: Literal["done", "failed", "left"]
    code: Code | None
    exit_code: int | None
    signal: int | None
    notices: int
    attempts: int
    seconds: float
    metadata: Mapping[str, JsonValue]
