"""The answer against the caller's own schema, strictly and on our side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import from_json

from supervisor.model.conversation import ToolCall
from supervisor.model.errors import Failure, failure
from supervisor.model.request import model_class
from supervisor.protocol.decision import read_decision
from supervisor.protocol.schema import json_schema, names_in
from supervisor.protocol.strict_schema import without_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.model.conversation import Decision
    from supervisor.model.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a structured answer gives.

    Attributes:
        data: as the request's schema wants it; None for a call.
        decision: where tools are offered.
        text: the final answer's own text, where the CLI's text is the decision around it.
    """

    data: Any = None
    decision: Decision | None = None
    text: str | None = None


def read_outcome(
    own: Request[Any],
    request: Request[Any],
    text: str,
    data: Any,
    *,
    has_data: bool,
    optional_as_null: bool,
) -> tuple[Answer, Failure | None]:
    """The answer as the caller's request wants it, or why it cannot be had.

    Args:
        own: the caller's request.
        request: the same as `asked` makes it, with the schema that was sent.
        text: the answer's text, read as JSON when the CLI gave no structured answer.
        data: the structured answer; `has_data` tells a null from none.
        optional_as_null: see `Launch`.
    """
    if not own.tools:
        value, misfit = read_answer(
            own, text, data, has_data=has_data, optional_as_null=optional_as_null
        )
        return Answer(data=value), misfit
    step, misfit = read_answer(
        request, text, data, has_data=has_data, optional_as_null=optional_as_null
    )
    if misfit is not None:
        return Answer(), misfit
    decision, content = read_decision(step)
    if isinstance(decision, ToolCall):
        return Answer(decision=decision, text=""), None
    if own.schema is None:
        return Answer(decision=decision, text=content), None
    value, misfit = read_answer(own, "", content, has_data=True, optional_as_null=False)
    final = json.dumps(content, ensure_ascii=False)
    return Answer(data=value, decision=decision, text=final), misfit


def read_answer(
    request: Request[Any], text: str, data: Any, *, has_data: bool, optional_as_null: bool
) -> tuple[Any, Failure | None]:
    """The answer to a request's own schema, or why it cannot be had.

    Returns:
        The model's instance (or the plain value for a dict schema) and None, or None and the
        failure. "7" is no number and "null" is a string: nothing is repaired.
    """
    source: str | None = None if has_data else text
    try:
        value = data if source is None else from_json(source)
        pruned = without_nulls(value, json_schema(request)) if optional_as_null else value
        if source is None or pruned != value:
            source = json.dumps(pruned)
    except (ValueError, RecursionError):
        return None, failure("answer.not_json")
    if model_class(request) is None:
        return _read_plain(request, pruned)
    return _read_model(request, source)


def _read_model(request: Request[Any], source: str) -> tuple[Any, Failure | None]:
    model = model_class(request)
    assert model is not None
    try:
        # JSON mode: strict, and yet a date may be a string, since JSON has no other way.
        return model.model_validate_json(source, strict=True), None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return None, _misfit(request, first["loc"], first["type"])
    except Exception as error:  # the model's own validators may raise anything
        return None, _misfit(
            request, (), f"the model's own check failed with {type(error).__name__}"
        )


def _read_plain(request: Request[Any], data: Any) -> tuple[Any, Failure | None]:
    from jsonschema import Draft202012Validator  # slow to import, and few need it
    from jsonschema.exceptions import relevance
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind: Any = validator_for(request.schema, default=Draft202012Validator)  # pyright: ignore[reportArgumentType] -- its stub knows dict only
    nothing_fetched = cast("Any", Registry)()
    validator: Any = kind(request.schema, registry=nothing_fetched)
    errors: list[Any] = sorted(validator.iter_errors(data), key=relevance)
    if not errors:
        return data, None
    return None, _misfit(request, errors[-1].absolute_path, str(errors[-1].validator))


def _misfit(request: Request[Any], path: Iterable[Any], rule: str) -> Failure:
    """The place and the rule, and nothing that the model wrote: a key may be text of its own."""
    known = names_in(json_schema(request))
    parts = [str(p) if isinstance(p, int) or p in known else "*" for p in path]
    place = ".".join(parts) or "the root"
    return failure("answer.schema", f"The answer does not fit the schema at {place}: {rule}.")
