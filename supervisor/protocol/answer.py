"""The answer against the caller's own schema, strictly and on our side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import from_json

from supervisor.model.errors import Failure, failure
from supervisor.model.request import model_class
from supervisor.protocol.schema import json_schema, without_nulls

if TYPE_CHECKING:
    from supervisor.model.request import Request


def read_answer(
    request: Request[Any], text: str, data: Any, *, has_data: bool, optional_as_null: bool
) -> tuple[Any, Failure | None]:
    """The answer as the request's schema wants it, or why it cannot be had.

    Args:
        request: with a schema.
        text: the answer's text, read as JSON when the CLI gave no structured answer.
        data: the structured answer; `has_data` tells a null from none.
        optional_as_null: see `Launch`.

    Returns:
        The model's instance (or the plain value for a dict schema) and None, or None and the
        failure. "7" is no number and "null" is a string: nothing is repaired.
    """
    if not has_data:
        try:
            data = from_json(text)
        except ValueError:
            return None, failure("answer.not_json")
    if optional_as_null:
        data = without_nulls(data, json_schema(request))
    model = model_class(request)
    if model is None:
        return _read_plain(request, data)
    try:
        # JSON mode: strict, and yet a date may be a string, since JSON has no other way.
        return model.model_validate_json(json.dumps(data), strict=True), None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return None, _misfit([str(part) for part in first["loc"]], first["msg"])


def _read_plain(request: Request[Any], data: Any) -> tuple[Any, Failure | None]:
    from jsonschema import Draft202012Validator  # slow to import, and few need it
    from jsonschema.exceptions import relevance

    validator: Any = Draft202012Validator(request.schema)  # pyright: ignore[reportArgumentType] -- its stub knows dict only
    errors: list[Any] = sorted(validator.iter_errors(data), key=relevance)
    if not errors:
        return data, None
    error = errors[-1]
    rule = f"the rule {error.validator!r} does not hold"
    return None, _misfit([str(part) for part in error.absolute_path], rule)


def _misfit(path: list[str], rule: str) -> Failure:
    place = ".".join(path) or "the root"
    return failure("answer.schema", f"The answer does not fit the schema at {place}: {rule}.")
