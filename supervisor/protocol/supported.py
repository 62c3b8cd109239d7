"""What a request asks of a CLI against what the CLI can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisor.model.conversation import UserTurn
from supervisor.model.errors import as_error, failure

if TYPE_CHECKING:
    from supervisor.model.adapter import Adapter
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Request


def check_supported(request: Request[Any], adapter: Adapter) -> None:
    """Refuse what the CLI cannot honour, naming it and what could be asked instead.

    Raises:
        RequestError: `request.unsupported`.
    """
    can, name = adapter.capabilities, adapter.kind
    wants_images = [*request.images, *_shown(request)]
    lists: tuple[tuple[str, object, tuple[Any, ...]], ...] = (
        ("access", request.access, can.access),
        ("billing", request.billing or can.billing[0], can.billing),
        ("effort", request.effort, (None, *can.efforts)),
        ("service_tier", request.service_tier, (None, *can.tiers)),
        *(("images of the kind", image.media_type, can.images) for image in wants_images),
    )
    for what, value, allowed in lists:
        if value not in allowed:
            words = ", ".join(str(each) for each in allowed if each is not None)
            raise unsupported(
                f"{name} has no {what} {value!r}.",
                f"Use one of {words}." if words else "Leave it out.",
            )
    switches: tuple[tuple[str, bool, bool], ...] = (
        ("system", request.system is not None or _has_system(request), can.system),
        ("max_turns", request.max_turns is not None, can.max_turns),
        ("mcp_config", request.mcp_config is not None, can.mcp),
        ('hermetic="strict"', request.hermetic == "strict", can.strict),
        ("resume", request.resume is not None, can.sessions),
        ("keep_session", request.keep_session, can.sessions),
        ("login", request.login is not None, adapter.state_variable is not None),
    )
    for what, wanted, possible in switches:
        if wanted and not possible:
            raise unsupported(
                f"{name} cannot honour {what}.", "Leave it out, or choose another provider."
            )
    if request.hermetic == "strict" and (request.keep_session or request.resume):
        raise unsupported('hermetic="strict" keeps no session.', "Leave one of the two out.")


def unsupported(message: str, hint: str) -> SupervisorError:
    """The error for what a CLI cannot honour."""
    return as_error(failure("request.unsupported", message, hint=hint))


def _shown(request: Request[Any]) -> list[Any]:
    return [i for turn in request.messages if isinstance(turn, UserTurn) for i in turn.images]


def _has_system(request: Request[Any]) -> bool:
    return any(turn.role == "system" for turn in request.messages)
