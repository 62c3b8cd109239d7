"""Every way in which a run can end, and what is done about it: one table.

    leader  cause     asked first  rest read  verdict by
    ended   itself    -            yes        evidence
    ended   any other -            no         the cause
    alive   stays     yes          no         evidence
    alive   limit     yes          no         the cause, or the error that the CLI reported before
    alive   breach    no           no         the cause
    alive   closed    yes          no         the cause
    alive   left      yes          no         nobody: the consumer has gone

Who holds the pipes and how the CLI takes a signal changes nothing in it: a descendant that holds a pipe
is killed before the rest is read, and a CLI that ignores the polite signal is killed after the grace
period. A breach is ended without a word, since each moment more may cost money or change a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from supervisor.model.errors import Failure

Cause = Literal["itself", "stays", "limit", "breach", "closed", "left"]
"""Why a run ends.

itself: the leader ended.
stays: its turn or its output ended, and the leader stayed past the linger limit.
limit: one of our limits of time or size.
breach: a tool or a key that the request does not allow.
closed: close() was called.
left: the consumer left the block or was cancelled.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is done about an end.

    Attributes:
        asked: the leader gets its polite signal and the grace period before SIGKILL.
        rest_read: what is still in the pipe is read and counts.
    """

    asked: bool
    rest_read: bool


_ALIVE: dict[Cause, Ending] = {
    "stays": Ending(asked=True, rest_read=False),
    "limit": Ending(asked=True, rest_read=False),
    "breach": Ending(asked=False, rest_read=False),
    "closed": Ending(asked=True, rest_read=False),
    "left": Ending(asked=True, rest_read=False),
}
_ENDED: dict[Cause, Ending] = {
    "itself": Ending(asked=False, rest_read=True),
    "stays": Ending(asked=False, rest_read=True),
    "limit": Ending(asked=False, rest_read=False),
    "breach": Ending(asked=False, rest_read=False),
    "closed": Ending(asked=False, rest_read=False),
    "left": Ending(asked=False, rest_read=False),
}

_BREACHES = ("auth.", "policy.")


def cause_of(fact: Failure | None) -> Cause:
    """The kind of cause behind a failure of ours, or `stays` without one."""
    if fact is None:
        return "stays"
    if fact.code == "supervisor.closed":
        return "closed"
    return "breach" if fact.code.startswith(_BREACHES) else "limit"


def ending(cause: Cause, *, leader_ended: bool) -> Ending:
    """The row of the table."""
    return _ENDED[cause] if leader_ended else _ALIVE[cause]
