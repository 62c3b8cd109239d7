"""A line into JSON objects, and checked looks into them.

Nothing here raises: a line that is no object is `Unrecognized`, a field of the wrong type is absent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

from supervisor.model.events import Unrecognized

if TYPE_CHECKING:
    from supervisor.model.adapter import JsonObject


def read_objects(line: bytes) -> list[JsonObject | Unrecognized]:
    """The objects of a line: one, or several where a CLI prints an array of events.

    claude prints such an array under `--output-format json --verbose` (2.1.197, 2.1.332).
    """
    value = _parse(line)
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    if values and all(isinstance(item, dict) for item in values):
        return list(cast("list[JsonObject]", values))
    return [Unrecognized(type=None, size=len(line))]


def is_utf8(line: bytes) -> bool:
    """Whether a line can be decoded as it is."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse(line: bytes) -> object:
    try:
        return from_json(line)
    except ValueError:
        pass
    # The strict parser refuses bytes that are not UTF-8 and lone surrogates. Both come from tools
    # whose output a CLI quotes, so the line is repaired rather than lost.
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        return encodable(json.loads(text))
    except (ValueError, RecursionError):
        return None


def encodable(value: Any) -> Any:
    """The value with every lone surrogate in its strings replaced by U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [encodable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {encodable(k): encodable(v) for k, v in cast("dict[str, Any]", value).items()}
    return value


def string(value: JsonObject, key: str) -> str | None:
    """The string at `key`, or None."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def flag(value: JsonObject, key: str) -> bool | None:
    """The boolean at `key`, or None."""
    found = value.get(key)
    return found if isinstance(found, bool) else None


def count(value: JsonObject, key: str) -> int | None:
    """The whole number >= 0 at `key`, or None."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        return None
    return found


def number(value: JsonObject, key: str) -> float | None:
    """The finite number at `key`, or None."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        result = float(found)
    except OverflowError:
        return None
    return result if abs(result) < float("inf") else None


def obj(value: JsonObject, key: str) -> JsonObject:
    """The object at `key`, or an empty one."""
    found = value.get(key)
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def objects(value: JsonObject, key: str) -> list[JsonObject]:
    """The objects of the array at `key`; what is no object is left out."""
    found = value.get(key)
    if not isinstance(found, list):
        return []
    return [cast("JsonObject", item) for item in cast("list[Any]", found) if isinstance(item, dict)]


def strings(value: JsonObject, key: str) -> tuple[str, ...] | None:
    """The strings of the array at `key`, or None if there is no array."""
    found = value.get(key)
    if not isinstance(found, list):
        return None
    return tuple(item for item in cast("list[Any]", found) if isinstance(item, str))
