"""Counters of several rounds added up: a sum exists only where every part does."""

from __future__ import annotations

from supervisor.model.completion import Cost, Usage

_COUNTERS = ("input", "cache_read", "cache_write", "output", "reasoning")


def summed_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """The tokens of two rounds together; a cumulative second one holds the first already."""
    if first is None or second is None:
        return None
    if second.cumulative:
        return second
    names = {*first.by_model, *second.by_model}
    return Usage(
        input=_sum(first.input, second.input),
        cache_read=_sum(first.cache_read, second.cache_read),
        cache_write=_sum(first.cache_write, second.cache_write),
        output=_sum(first.output, second.output),
        reasoning=_sum(first.reasoning, second.reasoning),
        by_model={
            name: whole
            for name in sorted(names)
            if (whole := _either(first.by_model.get(name), second.by_model.get(name)))
        },
    )


def summed_cost(first: Cost | None, second: Cost | None) -> Cost | None:
    """What two rounds cost together."""
    if first is None or second is None:
        return None
    return Cost(reported_usd=first.reported_usd + second.reported_usd)


def reported(usage: Usage) -> dict[str, int]:
    """The counters that were reported, by name."""
    values = {name: getattr(usage, name) for name in _COUNTERS}
    return {name: value for name, value in values.items() if value is not None}


def _either(first: Usage | None, second: Usage | None) -> Usage | None:
    # A model that took part in one round only has no missing part.
    return summed_usage(first, second) if first and second else first or second


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
