"""The form of a schema that OpenAI's strict mode demands, and the way back from its answers.

Its documented rules: every object is closed and every property required; an optional property is one
that may be null; a reference stands alone; no default, oneOf, allOf, not or if. The real server answers
400 invalid_json_schema to anything else, after the run has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from supervisor.protocol.schema import ANNOTATIONS, children, resolve, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.model.adapter import JsonObject

_SENT = frozenset(
    {
        *("$ref", "$defs", "definitions", "type", "enum", "const", "title", "description", "anyOf"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
    }
)
_INEXPRESSIBLE = ("not", "if", "then", "else", "patternProperties", "prefixItems")
_DEFINITIONS = ("$defs", "definitions")
_DEPTH = 64
"""How deep a union is looked into for the branch of a value; one may hold itself."""

_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def strict_schema(schema: JsonObject) -> JsonObject:
    """The strict form of a schema whose root is an object.

    Raises:
        RequestError: what has no strict form, named with its path.
    """
    if "anyOf" in schema or "oneOf" in schema:
        raise unsupported("#", "a union at the root has no strict form")

    def rewrite(child: Any, path: str) -> Any:
        if not isinstance(child, dict):
            raise unsupported(path, "a value of any kind has no strict form")
        return _strict(cast("JsonObject", child), path)

    def _strict(part: JsonObject, path: str) -> JsonObject:
        part = _merged_all_of(part, path)
        if "$ref" in part:
            kept = {key: part[key] for key in ("$ref", *_DEFINITIONS) if key in part}
            return children(kept, path, rewrite)
        kept = _typed(_sent(part, path), path)
        rewritten = children(kept, path, rewrite)
        return _closed(rewritten, part, path, schema) if _is_object(rewritten) else rewritten

    return _strict(schema, "#")


def without_nulls(value: Any, schema: JsonObject) -> Any:
    """The answer to a strict schema, without the nulls that stand for an absent property.

    Args:
        value: the answer.
        schema: the caller's own, not its strict form.
    """
    return _without_nulls(value, schema, schema)


def allows_null(schema: Any, root: JsonObject, depth: int = 0) -> bool:
    """Whether null fits a schema."""
    if not isinstance(schema, dict):
        return schema is not False
    inside = resolve(cast("JsonObject", schema), root)
    if "const" in inside:
        return inside["const"] is None
    if "enum" in inside:
        return None in inside["enum"]
    kind: Any = inside.get("type")
    if kind is not None:
        return kind == "null" or (isinstance(kind, list) and "null" in kind)
    branches = [*inside.get("anyOf", []), *inside.get("oneOf", [])]
    if branches:
        return depth < _DEPTH and any(allows_null(b, root, depth + 1) for b in branches)
    parts = inside.get("allOf", [])
    return depth < _DEPTH and all(allows_null(p, root, depth + 1) for p in parts)


def _merged_all_of(schema: JsonObject, path: str) -> JsonObject:
    """A schema with one part in `allOf`, as one. Some generators wrap a reference so."""
    if "allOf" not in schema:
        return schema
    parts = cast("list[Any]", schema["allOf"])
    outer = {key: value for key, value in schema.items() if key != "allOf"}
    if len(parts) != 1 or not isinstance(parts[0], dict):
        raise unsupported(path, "the keyword 'allOf' with several parts has no strict form")
    inner = cast("JsonObject", parts[0])
    says = outer.keys() - ANNOTATIONS - set(_DEFINITIONS)
    if says & inner.keys() or ("$ref" in inner and says):
        raise unsupported(path, "the keyword 'allOf' beside others has no strict form")
    return {**outer, **inner}


def _sent(schema: JsonObject, path: str) -> JsonObject:
    """What of it can be sent, `oneOf` as the `anyOf` that it nearly is."""
    for keyword in _INEXPRESSIBLE:
        if keyword in schema:
            raise unsupported(path, f"the keyword {keyword!r} has no strict form")
    if isinstance(schema.get("items"), (list, bool)):
        raise unsupported(path, "an array without one kind of items has no strict form")
    if "oneOf" in schema and "anyOf" in schema:
        raise unsupported(path, "'oneOf' beside 'anyOf' has no strict form")
    renamed = {("anyOf" if key == "oneOf" else key): value for key, value in schema.items()}
    return {key: value for key, value in renamed.items() if key in _SENT}


def _typed(schema: JsonObject, path: str) -> JsonObject:
    """Strict mode wants a type wherever there is no union."""
    if "type" in schema or "anyOf" in schema:
        return schema
    if "properties" in schema:
        return {**schema, "type": "object"}
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else []
    kinds = sorted({_type_of(value) for value in cast("list[Any]", values)})
    if not kinds or "" in kinds:
        raise unsupported(path, "a value of any kind has no strict form")
    return {**schema, "type": kinds[0] if len(kinds) == 1 else kinds}


def _type_of(value: object) -> str:
    return next((name for kind, name in _TYPES.items() if type(value) is kind), "")


def _is_object(schema: JsonObject) -> bool:
    kind: Any = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _closed(schema: JsonObject, own: JsonObject, path: str, root: JsonObject) -> JsonObject:
    properties = cast("JsonObject", schema.get("properties", {}))
    extra = schema.get("additionalProperties")
    # Properties that are given, if none, are all that are meant: a model or a tool without any.
    free = not properties and ("properties" not in schema or extra is True)
    if isinstance(extra, dict) or (free and extra is not False):
        raise unsupported(path, "an object with free keys has no strict form")
    required = set(cast("list[str]", schema.get("required", [])))
    originals = cast("JsonObject", own.get("properties", {}))

    def nullable(name: str, child: Any) -> Any:
        if name in required or allows_null(originals[name], root):
            return child
        return {"anyOf": [child, {"type": "null"}]}

    return {
        **schema,
        "properties": {name: nullable(name, child) for name, child in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _without_nulls(value: Any, schema: Any, root: JsonObject) -> Any:
    if not isinstance(schema, dict) or not isinstance(value, (list, dict)):
        return value
    inside = _branch(value, cast("JsonObject", schema), root, 0)
    if inside is None:
        return cast("Any", value)
    if isinstance(value, list):
        items = inside.get("items")
        return [_without_nulls(item, items, root) for item in cast("list[Any]", value)]
    properties = cast("JsonObject", inside.get("properties", {}))
    required = set(cast("list[str]", inside.get("required", [])))
    return {
        key: _without_nulls(item, properties.get(key), root)
        for key, item in cast("JsonObject", value).items()
        if item is not None
        or key in required
        or key not in properties
        or allows_null(properties[key], root)
    }


def _branch(value: Any, schema: JsonObject, root: JsonObject, depth: int) -> JsonObject | None:
    """The schema, or the branch of a union inside it, that the value was written for."""
    schema = resolve(schema, root)
    if _describes(value, schema, root):
        return schema
    if depth < _DEPTH:
        for key in ("anyOf", "oneOf", "allOf"):
            for branch in cast("list[Any]", schema.get(key) or []):
                if isinstance(branch, dict):
                    found = _branch(value, cast("JsonObject", branch), root, depth + 1)
                    if found is not None:
                        return found
    return None


def _describes(value: Any, schema: JsonObject, root: JsonObject) -> bool:
    if isinstance(value, list):
        return isinstance(schema.get("items"), dict)
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return False
    own, given = cast("JsonObject", properties), cast("JsonObject", value)
    return given.keys() <= own.keys() and all(_tagged(given[n], own[n], root) for n in given)


def _tagged(value: Any, schema: Any, root: JsonObject) -> bool:
    """Whether a value is one of those that a property is limited to; most are not limited.

    Null is passed: it may stand for an absent property.
    """
    if value is None or not isinstance(schema, dict):
        return True
    inside = resolve(cast("JsonObject", schema), root)
    if "const" in inside:
        return bool(inside["const"] == value)
    return "enum" not in inside or value in inside["enum"]
