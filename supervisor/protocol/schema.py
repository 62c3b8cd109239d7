"""A caller's schema, rewritten for what a vendor's server or CLI accepts.

What can be loosened is loosened, since the answer is checked on our side against the caller's own
schema (see `answer`). What cannot be expressed is refused before the start, with its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from supervisor.model.errors import as_error, failure
from supervisor.model.request import model_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from supervisor.model.adapter import JsonObject
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Request

_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf")
_SINGLES = ("items", "additionalProperties", "not")

# What draft-07 has and claude's validator was seen to take (2.1.197 and 2.1.332). Both refuse every
# keyword outside it; 2.1.197 then drops the whole schema without a word, so it must not get there.
# `format` is left out because 2.1.197 refuses all formats.
_DRAFT_07 = frozenset(
    {
        *("$ref", "$defs", "definitions", "type", "enum", "const", "title", "description"),
        *("default", "examples", "anyOf", "oneOf", "allOf", "not", "properties", "required"),
        *("additionalProperties", "patternProperties", "minProperties", "maxProperties", "items"),
        *("minItems", "maxItems", "uniqueItems", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
        *("readOnly", "writeOnly", "deprecated"),
    }
)

# What OpenAI's documentation of strict structured outputs lists as supported. The real server answers
# 400 invalid_json_schema to the rest, after the run has started.
_STRICT = frozenset(
    {
        *("$ref", "$defs", "definitions", "type", "enum", "const", "title", "description", "anyOf"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
    }
)
_STRICT_INEXPRESSIBLE = ("not", "if", "then", "else", "patternProperties", "prefixItems")


def json_schema(request: Request[Any]) -> JsonObject:
    """The request's schema as a JSON Schema object; the caller's own is not touched.

    Raises:
        RequestError: the pydantic model has no JSON Schema, or the root is no object.
    """
    model = model_class(request)
    if model is not None:
        from pydantic.errors import PydanticUserError

        try:
            schema = model.model_json_schema()
        except PydanticUserError as error:
            raise _unsupported("#", f"the model {model.__name__} has no JSON Schema") from error
    else:
        schema = dict(cast("Mapping[str, Any]", request.schema))
    return _object_root(schema)


def draft_07_schema(schema: JsonObject) -> JsonObject:
    """The schema without what claude's validator refuses; it is looser, never stricter."""
    kept = {key: value for key, value in schema.items() if key in _DRAFT_07}
    return _children(kept, "#", lambda child, _path: draft_07_schema(child))


def strict_schema(schema: JsonObject) -> JsonObject:
    """The schema in the form that OpenAI's strict mode demands.

    Every property is required and no other allowed; a property that was optional may be null.

    Raises:
        RequestError: a keyword that strict mode cannot express, named with its path.
    """
    return _strict(schema, "#")


def without_nulls(value: Any, schema: JsonObject) -> Any:
    """The answer to a strict schema, without the nulls that stand for an absent property."""
    return _without_nulls(value, schema, schema)


def _object_root(schema: JsonObject) -> JsonObject:
    """A recursive model has a reference as its root: put the definition itself there."""
    root = _resolve(schema, schema)
    if root is not schema:
        root = {**root, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
    if root.get("type") != "object":
        raise _unsupported("#", "the root of a schema must be an object")
    return root


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    for _ in range(32):  # a reference to a reference; a circle of them has no meaning
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for part in reference[2:].split("/"):
            found = cast("JsonObject", found).get(part) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise _unsupported(reference, "the reference leads nowhere")
        schema = cast("JsonObject", found)
    raise _unsupported("#", "the references of the schema lead in a circle")


def _children(
    schema: JsonObject, path: str, rewrite: Callable[[JsonObject, str], JsonObject]
) -> JsonObject:
    """The schema with `rewrite` done to each schema directly inside it."""

    def one(child: Any, where: str) -> Any:
        return rewrite(cast("JsonObject", child), where) if isinstance(child, dict) else child

    result = dict(schema)
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            inside = cast("JsonObject", schema[key])
            result[key] = {n: one(c, f"{path}/{key}/{n}") for n, c in inside.items()}
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            items = cast("list[Any]", schema[key])
            result[key] = [one(c, f"{path}/{key}/{i}") for i, c in enumerate(items)]
    for key in _SINGLES:
        if key in schema:
            result[key] = one(schema[key], f"{path}/{key}")
    return result


def _strict(schema: JsonObject, path: str) -> JsonObject:
    if "$ref" in schema:  # strict mode refuses any other keyword beside a reference
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        return _children({"$ref": schema["$ref"], **definitions}, path, _strict)
    for keyword in _STRICT_INEXPRESSIBLE:
        if keyword in schema:
            raise _unsupported(path, f"the keyword {keyword!r} has no strict form")
    schema = _one_of_as_any_of(_merged_all_of(schema, path))
    kept = {key: value for key, value in schema.items() if key in _STRICT}
    rewritten = _children(kept, path, _strict)
    return _closed(rewritten, path) if _is_object(rewritten) else rewritten


def _merged_all_of(schema: JsonObject, path: str) -> JsonObject:
    if "allOf" not in schema:
        return schema
    parts = cast("list[JsonObject]", schema["allOf"])
    if len(parts) != 1:
        raise _unsupported(path, "the keyword 'allOf' with several parts has no strict form")
    return {**{k: v for k, v in schema.items() if k != "allOf"}, **parts[0]}


def _one_of_as_any_of(schema: JsonObject) -> JsonObject:
    if "oneOf" not in schema:
        return schema
    return {("anyOf" if key == "oneOf" else key): value for key, value in schema.items()}


def _is_object(schema: JsonObject) -> bool:
    kind: Any = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _closed(schema: JsonObject, path: str) -> JsonObject:
    properties = cast("JsonObject", schema.get("properties", {}))
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict) or (not properties and extra is not False):
        raise _unsupported(path, "an object with free keys has no strict form")
    required = set(cast("list[str]", schema.get("required", [])))
    nullable = {
        name: child if name in required else _nullable(cast("JsonObject", child))
        for name, child in properties.items()
    }
    return {
        **schema,
        "properties": nullable,
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(schema: JsonObject) -> JsonObject:
    if _allows_null(schema):
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _allows_null(schema: JsonObject) -> bool:
    kind: Any = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    return any(isinstance(b, dict) and _allows_null(cast("JsonObject", b)) for b in branches)


def _without_nulls(value: Any, schema: JsonObject, root: JsonObject) -> Any:
    schema = _resolve(schema, root)
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return cast("list[Any]", value)
        return [
            _without_nulls(v, cast("JsonObject", items), root) for v in cast("list[Any]", value)
        ]
    if not isinstance(value, dict):
        return value
    properties = _fitting(cast("JsonObject", value), schema, root)
    required = set(cast("list[str]", schema.get("required", [])))
    result: JsonObject = {}
    for key, item in cast("JsonObject", value).items():
        child = properties.get(key)
        if isinstance(child, dict):
            child = cast("JsonObject", child)
            if item is None and key not in required and not _allows_null(_resolve(child, root)):
                continue
            item = _without_nulls(item, child, root)
        result[key] = item
    return result


def _fitting(value: JsonObject, schema: JsonObject, root: JsonObject) -> JsonObject:
    """The properties of the branch of a union that the value was written for."""
    schema = _resolve(schema, root)
    own = cast("JsonObject", schema.get("properties", {}))
    if own and value.keys() <= own.keys():
        return own
    branches = (branch for key in _LISTS for branch in schema.get(key, []))
    for branch in branches:
        if isinstance(branch, dict):
            found = _fitting(value, cast("JsonObject", branch), root)
            if found and value.keys() <= found.keys():
                return found
    return own


def _unsupported(path: str, what: str) -> SupervisorError:
    return as_error(
        failure(
            "request.unsupported",
            f"The schema cannot be sent: {what}, at {path}.",
            hint="Change the schema at that place, or ask without one and read the text.",
        )
    )
