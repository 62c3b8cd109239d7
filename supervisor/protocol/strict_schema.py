"""The form of a schema that OpenAI's strict mode demands, and the way back from its answers.

Its documented rules: every object is closed and every property required; an optional property is one
that may be null; a reference stands alone; no default, oneOf, allOf, not or if. The real server answers
400 invalid_json_schema to anything else, after the run has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from supervisor.protocol.schema import (
    ANNOTATIONS,
    LISTS,
    check_references,
    children,
    resolve,
    unsupported,
)

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

_TYPES: Mapping[type[Any], str] = {
    list: "array",
    dict: "object",
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
    tags = _tags(schema, schema)

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
        if _is(rewritten, "array") and "items" not in rewritten:
            raise unsupported(path, "an array without one kind of items has no strict form")
        if not _is(rewritten, "object"):
            return rewritten
        always = {name for place, name in tags if place == id(part)}
        return _closed(rewritten, part, path, schema, always)

    sent = _strict(schema, "#")
    check_references(sent)
    return sent


def without_nulls(value: Any, schema: JsonObject) -> Any:
    """The answer to a strict schema, without the nulls that stand for an absent property.

    Args:
        value: the answer.
        schema: the caller's own, not its strict form.
    """
    return _Reading(schema).without_nulls(value, schema)


def allows_null(schema: Any, root: JsonObject, depth: int = 0) -> bool:
    """Whether null fits a schema."""
    if not isinstance(schema, dict):
        return schema is not False
    inside = resolve(cast("JsonObject", schema), root)
    if not _is_one(None, inside):
        return False
    for key, fit in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        branches = cast("list[Any]", inside.get(key) or [])
        if branches and (
            depth == _DEPTH or not fit(allows_null(branch, root, depth + 1) for branch in branches)
        ):
            return False
    return True


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


def _is(schema: JsonObject, name: str) -> bool:
    kind: Any = schema.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _closed(
    schema: JsonObject, own: JsonObject, path: str, root: JsonObject, always: set[str]
) -> JsonObject:
    properties = cast("JsonObject", schema.get("properties", {}))
    extra = schema.get("additionalProperties")
    # Properties that are given, if none, are all that are meant: a model or a tool without any.
    free = not properties and ("properties" not in schema or extra is True)
    if isinstance(extra, dict) or (free and extra is not False):
        raise unsupported(path, "an object with free keys has no strict form")
    always = always | set(cast("list[str]", schema.get("required", [])))
    originals = cast("JsonObject", own.get("properties", {}))

    def nullable(name: str, child: Any) -> Any:
        original = originals[name]
        if name in always or allows_null(original, root) or _is_fixed(original, root):
            return child
        return {"anyOf": [child, {"type": "null"}]}

    return {
        **schema,
        "properties": {name: nullable(name, child) for name, child in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _is_fixed(schema: Any, root: JsonObject) -> bool:
    """Whether a property has one value, there or not. As null it would tell no branch from another."""
    inside = resolve(cast("JsonObject", schema), root)
    return "const" in inside and inside["const"] == schema.get("default", inside.get("default"))


def _tags(part: Any, root: JsonObject) -> set[tuple[int, str]]:
    """The properties, with the id of their schema, that tell the branches of unions apart.

    Pydantic refuses a value without its tag even where the tag has a default, so null must not be
    offered for it.
    """
    if isinstance(part, list):
        return {tag for item in cast("list[Any]", part) for tag in _tags(item, root)}
    if not isinstance(part, dict):
        return set()
    inside = cast("JsonObject", part)
    found = {tag for item in inside.values() for tag in _tags(item, root)}
    told: Any = inside.get("discriminator")
    if isinstance(told, dict) and ("oneOf" in inside or "anyOf" in inside):
        name = str(cast("JsonObject", told).get("propertyName"))
        found |= {(id(leaf), name) for leaf in _leaves(inside, root, set())}
    return found


def _leaves(schema: JsonObject, root: JsonObject, seen: set[int]) -> list[JsonObject]:
    """The schema, or the branches of its unions; one that holds itself is not followed again."""
    inside = resolve(schema, root)
    if id(inside) in seen:
        return []
    seen.add(id(inside))
    branches = [
        cast("JsonObject", branch)
        for key in LISTS
        for branch in cast("list[Any]", inside.get(key) or [])
        if isinstance(branch, dict)
    ]
    own = [inside] if not branches or "properties" in inside or "items" in inside else []
    return own + [leaf for branch in branches for leaf in _leaves(branch, root, seen)]


class _Reading:
    """One answer on its way back. What was found to fit is kept: branches may look much alike."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[tuple[int, int], bool] = {}

    def without_nulls(self, value: Any, schema: Any) -> Any:
        if not isinstance(schema, dict) or not isinstance(value, (list, dict)):
            return value
        inside = self._branch(value, cast("JsonObject", schema))
        if inside is None:
            return cast("Any", value)
        if isinstance(value, list):
            items = inside.get("items")
            return [self.without_nulls(item, items) for item in cast("list[Any]", value)]
        properties = cast("JsonObject", inside.get("properties", {}))
        required = set(cast("list[str]", inside.get("required", [])))
        return {
            key: self.without_nulls(item, properties.get(key))
            for key, item in cast("JsonObject", value).items()
            if item is not None
            or key in required
            or key not in properties
            or allows_null(properties[key], self._root)
        }

    def _branch(self, value: Any, schema: JsonObject) -> JsonObject | None:
        """The schema, or the branch of a union inside it, that the value was written for."""
        leaves = _leaves(schema, self._root, set())
        if len(leaves) == 1:
            return leaves[0]
        fitting = [leaf for leaf in leaves if self._fits_leaf(value, leaf)]
        if isinstance(value, dict):  # the strict form has all properties, so all is the likelier
            keys = cast("JsonObject", value).keys()
            fitting.sort(key=lambda leaf: leaf.get("properties", {}).keys() != keys)
        return fitting[0] if fitting else None

    def _fits(self, value: Any, schema: Any) -> bool:
        """Whether a value may have been written for a schema, by its types and fixed values."""
        if not isinstance(schema, dict):
            return schema is not False
        leaves = _leaves(cast("JsonObject", schema), self._root, set())
        return any(self._fits_leaf(value, leaf) for leaf in leaves)

    def _fits_leaf(self, value: Any, schema: JsonObject) -> bool:
        if not isinstance(value, (list, dict)):
            return _is_one(value, schema)
        place = (id(cast("object", value)), id(schema))
        if place not in self._known:
            self._known[place] = _is_one(value, schema) and self._fits_inside(value, schema)
        return self._known[place]

    def _fits_inside(self, container: Any, schema: JsonObject) -> bool:
        if isinstance(container, list):
            items = schema.get("items")
            return all(self._fits(item, items) for item in cast("list[Any]", container))
        value = cast("JsonObject", container)
        properties = cast("JsonObject", schema.get("properties", {}))
        required = set(cast("list[str]", schema.get("required", [])))
        return value.keys() <= properties.keys() and all(
            (item is None and name not in required) or self._fits(item, properties[name])
            for name, item in value.items()
        )


def _is_one(value: Any, schema: JsonObject) -> bool:
    """Whether a value has the type that a schema asks for, and is one of its values."""
    name = _type_of(value)
    number = name == "integer" and _is(schema, "number")
    if "type" in schema and not number and not _is(schema, name):
        return False
    if "const" in schema:
        return bool(schema["const"] == value)
    return "enum" not in schema or value in schema["enum"]
