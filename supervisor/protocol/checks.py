"""What can be told about a request before anything is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from supervisor.model.errors import as_error, failure
from supervisor.model.request import MAX_ANSWER, MIB, BillingPolicy, Effort
from supervisor.protocol.schema_check import check_schema

if TYPE_CHECKING:
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Request


def check_request(request: Request[Any]) -> None:
    """Refuse what no CLI could be given.

    Raises:
        RequestError: `request.invalid` or `request.too_large`, naming the field.
    """
    _check_text("prompt", request.prompt)
    if not request.prompt.strip():
        raise _invalid("The prompt is empty.", "Put the question into prompt.")
    for name, text in (("system", request.system), ("model", request.model)):
        if text is not None:
            _check_text(name, text)
            if not text.strip():
                raise _invalid(f"The field {name} is empty.", f"Give {name} a value or leave it.")
    if request.model is not None and request.model.startswith("-"):
        raise _invalid("The model's name begins with a dash.", "Give the name itself, no flag.")
    if request.effort is not None and request.effort not in get_args(Effort):
        raise _invalid(
            f"There is no such effort: {request.effort!r}.",
            f"Use one of {', '.join(get_args(Effort))}.",
        )
    if request.billing not in get_args(BillingPolicy):
        raise _invalid(
            f"There is no such billing policy: {request.billing!r}.",
            f"Use one of {', '.join(get_args(BillingPolicy))}.",
        )
    check_schema(request)
    _check_limits(request)
    size = len(request.prompt.encode())
    if size > request.limits.prompt:
        raise as_error(
            failure(
                "request.too_large",
                f"The prompt has {size} bytes, and the limit is {request.limits.prompt}.",
                hint="Send less, or raise Limits(prompt=...).",
            )
        )


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise _invalid(f"The field {name} is {type(text).__name__} and no text.", "Give a str.")
    if "\0" in text:
        raise _invalid(f"The field {name} holds a NUL character.", "Take the NUL characters out.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(
            f"The field {name} holds a lone surrogate at character {error.start}.",
            "Decode the text with errors='replace' where it was read.",
        ) from None


def _check_limits(request: Request[Any]) -> None:
    timeouts, limits = request.timeouts, request.limits
    for name in ("start", "idle", "tool", "total", "linger", "grace", "drain"):
        seconds: object = getattr(timeouts, name)
        if seconds is None and name not in ("linger", "grace", "drain"):
            continue
        if not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise _invalid(
                f"The time limit {name} is {seconds!r}.", f"Give Timeouts({name}=...) seconds >= 0."
            )
    for name in ("prompt", "answer", "line", "stdout", "stderr_tail"):
        size: object = getattr(limits, name)
        if (size is not None or name != "line") and (not isinstance(size, int) or size <= 0):
            raise _invalid(
                f"The size limit {name} is {size!r}.", f"Give Limits({name}=...) bytes > 0."
            )
    if limits.answer > MAX_ANSWER:
        raise _invalid(
            f"The limit of the answer is {limits.answer} bytes.",
            f"Give Limits(answer=...) at most {MAX_ANSWER}.",
        )
    if limits.line_bytes < 2 * limits.answer + MIB:
        raise _invalid(
            "The limit of a line is too small for the limit of the answer.",
            "Give Limits(line=...) at least 2 * answer + 1 MiB, or lower Limits(answer=...).",
        )


def _invalid(message: str, hint: str) -> SupervisorError:
    return as_error(failure("request.invalid", message, hint=hint))
