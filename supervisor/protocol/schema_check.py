"""Whether a caller's schema is one, before anything is planned or paid for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from supervisor.model.errors import SupervisorError, as_error, failure
from supervisor.protocol.schema import resolve

if TYPE_CHECKING:
    from supervisor.model.request import Request


def check_schema(request: Request[Any]) -> None:
    """Refuse what is neither a pydantic model class nor a JSON Schema.

    Raises:
        RequestError: `request.invalid`, saying what is wrong with it.
    """
    schema = cast("object", request.schema)
    if schema is None:
        return
    if isinstance(schema, type):
        from pydantic import BaseModel

        if not issubclass(schema, BaseModel):
            raise _invalid(f"it is the class {schema.__name__}, and no pydantic model")
    elif isinstance(schema, Mapping):
        _check_json_schema(cast("Mapping[str, Any]", schema))
    else:
        raise _invalid(f"it is {type(schema).__name__}")


def check_tools(request: Request[Any]) -> None:
    """Refuse tools that cannot be offered.

    Raises:
        RequestError: `request.invalid`, naming the tool.
    """
    names: set[str] = set()
    for tool in request.tools:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) or tool.name in names:
            raise as_error(
                failure(
                    "request.invalid",
                    f"The tool's name {tool.name!r} cannot be used, or is used twice.",
                    hint="Use letters, digits, _ and -, at most 64, and each name once.",
                )
            )
        names.add(tool.name)
        try:
            tool.description.encode()
            _check_json_schema(tool.parameters)
            parameters = dict(tool.parameters)
            # The root of a model that holds itself is a reference.
            root = resolve(parameters, parameters)
        except (UnicodeEncodeError, SupervisorError) as error:
            raise _invalid(f"the tool {tool.name!r} has unusable parameters or text") from error
        if root.get("type") != "object":
            raise _invalid(f"the parameters of the tool {tool.name!r} are no object at the root")


def _check_json_schema(schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator  # slow to import, and few need it
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        plain = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid("it is no JSON") from error
    _check_parts(plain)
    validator: Any = validator_for(plain, default=Draft202012Validator)
    try:
        validator.check_schema(plain)
    except SchemaError as error:
        place = "/".join(["#", *(str(part) for part in error.absolute_path)])
        raise _invalid(f"it breaks the rules of JSON Schema at {place}") from error


def _check_parts(part: Any) -> None:
    """References must stay inside, since nothing is fetched; patterns must be patterns."""
    if isinstance(part, list):
        for item in cast("list[Any]", part):
            _check_parts(item)
    if not isinstance(part, dict):
        return
    inside = cast("dict[str, Any]", part)
    for key in ("$ref", "$dynamicRef"):
        reference = inside.get(key)
        if isinstance(reference, str) and not reference.startswith("#"):
            raise _invalid(f"the reference {reference!r} leads outside of it")
    patterns: list[Any] = [inside.get("pattern")]
    if isinstance(inside.get("patternProperties"), dict):
        patterns += inside["patternProperties"]
    for pattern in patterns:
        if isinstance(pattern, str):
            try:
                re.compile(pattern)
            except re.error as error:
                raise _invalid(f"the pattern {pattern!r} is none") from error
    for item in inside.values():
        _check_parts(item)


def _invalid(why: str) -> SupervisorError:
    return as_error(
        failure(
            "request.invalid",
            f"The schema cannot be used: {why}.",
            hint="Give a pydantic model class, or a JSON Schema as a dict.",
        )
    )
