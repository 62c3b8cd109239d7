"""A caller's schema: taken apart, and rewritten for the validator of claude.

What is rewritten for a vendor is looser than the caller's own or as strict, never stricter, since the
answer is checked on our side against the caller's own (see `answer`). What cannot be expressed is
refused before the start, with its path. The strict form for codex is in `strict_schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from supervisor.model.errors import as_error, failure
from supervisor.model.request import model_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from supervisor.model.adapter import JsonObject
    from supervisor.model.errors import SupervisorError
    from supervisor.model.request import Request

MAPS = ("properties", "$defs", "definitions", "patternProperties")
LISTS = ("anyOf", "oneOf", "allOf")
SINGLES = ("items", "additionalProperties", "not")
ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "$comment", "title", "description", "default", "examples"),
        *("discriminator", "readOnly", "writeOnly", "deprecated"),
    }
)
"""Keywords that allow or forbid nothing."""

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
_REFERENCES = 32  # a reference to a reference and so on; a circle of them has no meaning


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
            raise unsupported("#", f"the model {model.__name__} has no JSON Schema") from error
    else:
        schema = dict(cast("Mapping[str, Any]", request.schema))
    return _object_root(schema)


def draft_07_schema(schema: JsonObject) -> JsonObject:
    """The schema without what claude's validator refuses; it is looser, never stricter.

    Raises:
        RequestError: a reference that leads outside of what can be sent.
    """

    def rewrite(part: Any, path: str) -> Any:
        if not isinstance(part, dict):
            return part
        loosened = _loosened(cast("JsonObject", part), schema)
        reference = loosened.get("$ref")
        if isinstance(reference, str) and not _is_sent(reference):
            raise unsupported(path, f"the reference {reference!r} leads to what is not sent")
        kept = {key: value for key, value in loosened.items() if key in _DRAFT_07}
        return children(kept, path, rewrite)

    sent = rewrite(schema, "#")
    check_references(sent)
    return sent


def resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """What a schema says, its references followed.

    Raises:
        RequestError: a reference leads nowhere, or in a circle.
    """
    for _ in range(_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        found = _target(reference, root)
        if not isinstance(found, dict):
            raise unsupported(reference, "the reference leads nowhere")
        schema = cast("JsonObject", found)
    raise unsupported("#", "the references of the schema lead in a circle")


def check_references(sent: JsonObject) -> None:
    """Refuse references into what the rewriting has left out or put elsewhere.

    Raises:
        RequestError: one leads nowhere.
    """

    def look(part: Any, path: str) -> None:
        if isinstance(part, dict):
            inside = cast("JsonObject", part)
            reference = inside.get("$ref")
            if isinstance(reference, str) and _target(reference, sent) is None:
                raise unsupported(reference, "the reference leads nowhere in what can be sent")
            children(inside, path, look)

    look(sent, "#")


def _target(reference: str, root: JsonObject) -> Any:
    """What a reference leads to; None for nothing, and for a name, as of "$anchor"."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for part in unquote(reference.removeprefix("#")).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = cast("JsonObject", found).get(name) if isinstance(found, dict) else None
    return found


def children(schema: JsonObject, path: str, rewrite: Callable[[Any, str], Any]) -> JsonObject:
    """The schema with `rewrite` done to each schema directly inside it, true and false among them."""
    result = dict(schema)
    for key in MAPS:
        if isinstance(schema.get(key), dict):
            inside = cast("JsonObject", schema[key])
            result[key] = {n: rewrite(c, f"{path}/{key}/{n}") for n, c in inside.items()}
    for key in LISTS:
        if isinstance(schema.get(key), list):
            items = cast("list[Any]", schema[key])
            result[key] = [rewrite(c, f"{path}/{key}/{i}") for i, c in enumerate(items)]
    for key in SINGLES:
        if isinstance(schema.get(key), dict):
            result[key] = rewrite(schema[key], f"{path}/{key}")
    return result


def names_in(schema: Any) -> set[str]:
    """Every name of a property that a schema has anywhere."""
    found: set[str] = set()
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            found |= names_in(item)
    elif isinstance(schema, dict):
        for key, item in cast("JsonObject", schema).items():
            if key == "properties" and isinstance(item, dict):
                found |= cast("JsonObject", item).keys()
            found |= names_in(item)
    return found


def unsupported(path: str, what: str) -> SupervisorError:
    """The error for what cannot be sent, naming the place."""
    return as_error(
        failure(
            "request.unsupported",
            f"The schema cannot be sent: {what}, at {path}.",
            hint="Change the schema at that place, or ask without one and read the text.",
        )
    )


def _object_root(schema: JsonObject) -> JsonObject:
    """A recursive model has a reference as its root: put the definition itself there."""
    root = resolve(schema, schema)
    if root is not schema:
        root = {**root, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
    if root.get("type") != "object":
        raise unsupported("#", "the root of a schema must be an object")
    return root


def _is_sent(reference: str) -> bool:
    return reference == "#" or reference.removeprefix("#/").split("/")[0] in _DRAFT_07


def _loosened(schema: JsonObject, root: JsonObject) -> JsonObject:
    """The schema without what would forbid more once a keyword beside or inside it is gone."""
    result = dict(schema)
    if "prefixItems" in result:  # `items` speaks of what comes behind them
        result.pop("items", None)
    if _loses(result.get("not"), root, set()):
        del result["not"]
    branches = cast("list[Any]", result.get("oneOf") or [])
    if any(_loses(branch, root, set()) for branch in branches):
        del result["oneOf"]  # several may fit now
        result.setdefault("anyOf", branches)
    return result


def _loses(schema: Any, root: JsonObject, seen: set[int]) -> bool:
    """Whether something that forbids is dropped anywhere inside, or where a reference leads."""
    if not isinstance(schema, dict) or id(cast("object", schema)) in seen:
        return False
    inside = cast("JsonObject", schema)
    seen.add(id(inside))
    if any(key not in _DRAFT_07 and key not in ANNOTATIONS for key in inside):
        return True
    lost = "$ref" in inside and _loses(_target(str(inside["$ref"]), root), root, seen)

    def look(child: Any, _path: str) -> Any:
        nonlocal lost
        lost = lost or _loses(child, root, seen)
        return child

    children(inside, "#", look)
    return lost
