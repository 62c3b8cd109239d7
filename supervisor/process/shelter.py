"""Work that must come to its end, and threads that it never has to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typing_extensions import TypeVarTuple, Unpack

    Given = TypeVarTuple("Given")

Result = TypeVar("Result")

_THREADS = 64
_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("supervisor threads")


async def in_thread(work: Callable[[Unpack[Given]], Result], *given: *Given) -> Result:
    """Run blocking work in a thread, and wait for it whatever happens to the caller.

    The threads are counted apart from the host application's: if that fills its own with work that
    blocks, our clean-up still goes on.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await trio.to_thread.run_sync(work, *given, limiter=limiter)


async def to_the_end(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, neither cancelled nor interrupted; it must be bounded by itself.

    A shield alone does not do: trio raises KeyboardInterrupt in the main task at whatever it waits for
    there. So the work is a task of its own, which the main task cannot leave behind; an interrupt is
    raised when the work is done.
    """

    @trio.lowlevel.enable_ki_protection
    async def sheltered() -> None:
        with trio.CancelScope(shield=True):
            await work()

    with trio.CancelScope(shield=True):
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sheltered)
        except BaseExceptionGroup as group:
            raise _leading(group) from None


def _leading(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that counts: an interrupt before any other."""
    first: BaseException | None = None
    for error in group.exceptions:
        leaf = _leading(error) if isinstance(error, BaseExceptionGroup) else error  # pyright: ignore[reportUnknownArgumentType] -- a group of anything
        if isinstance(leaf, KeyboardInterrupt):
            return leaf
        first = first or leaf
    assert first is not None, "a group holds at least one error"
    return first
