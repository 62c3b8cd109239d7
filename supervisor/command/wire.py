"""Events and errors as JSON, one object a line."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from supervisor.model.errors import SupervisorError

if TYPE_CHECKING:
    from supervisor.model.events import Event


def event_line(event: Event) -> str:
    """One event as a line of JSON: its `kind` and its fields. What is not known is null."""
    return json.dumps(_plain(event), ensure_ascii=False)


def error_line(error: SupervisorError) -> str:
    """An error that came before any event, in the form of the `failed` event."""
    return json.dumps({"error": _plain(error), "kind": "failed"}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, SupervisorError):
        return {**_plain(value.failure), "partial": _plain(value.partial)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] -- any dict
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] -- any list
    if isinstance(value, datetime):
        return value.isoformat()
    return value
