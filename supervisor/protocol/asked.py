"""From the caller's request to the one that an adapter plans for: one prompt, one schema, one payer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supervisor.model.conversation import AssistantTurn, UserTurn
from supervisor.protocol.decision import decision_prompt, decision_schema
from supervisor.protocol.transcript import split

if TYPE_CHECKING:
    from supervisor.model.adapter import Capabilities
    from supervisor.model.errors import Failure
    from supervisor.model.request import BillingPolicy, Request


def asked(
    request: Request[Any], capabilities: Capabilities, default: BillingPolicy | None
) -> Request[Any]:
    """The request as it is planned: messages and tools are gone, the billing policy is decided.

    Args:
        request: one that passed `protocol.checks`.
        capabilities: of the CLI.
        default: the application's own policy for requests that name none.

    Raises:
        RequestError: the schema has no JSON form.
    """
    system, prompt, images = request.system, request.prompt, request.images
    if request.messages:
        own, prompt, shown = split(request.messages)
        system = "\n\n".join(text for text in (system, own) if text is not None) or None
        images = (*shown, *images)
    schema: Any = request.schema
    if request.tools:
        schema = decision_schema(request)
        prompt = f"{prompt}\n\n{decision_prompt(request)}"
    policy = request.billing
    if policy is None:
        policy = default if default in capabilities.billing else capabilities.billing[0]
    return replace(
        request,
        prompt=prompt,
        messages=(),
        system=system,
        images=images,
        schema=schema,
        tools=(),
        billing=policy,
    )


def repaired(
    request: Request[Any], answer: str, misfit: Failure, session: str | None
) -> Request[Any]:
    """The second round after an answer that missed its schema: it says what was wrong, nothing else.

    Args:
        request: the caller's own.
        answer: what the model had answered.
        misfit: why that will not do.
        session: the session to go on with; without one the conversation is told anew.
    """
    complaint = UserTurn(text=misfit.message)
    if session is not None:
        return replace(
            request, prompt=complaint.text, messages=(), images=(), resume=session, repair=0
        )
    said = request.messages or (UserTurn(text=request.prompt, images=request.images),)
    return replace(
        request,
        prompt="",
        images=request.images if request.messages else (),
        messages=(*said, AssistantTurn(text=answer or "(nothing)"), complaint),
        repair=0,
    )
