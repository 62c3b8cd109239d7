"""The adapters by name.

Those of this package are found by looking into it and imported on first use; others are registered.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

from supervisor.model.errors import as_error, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.model.adapter import Adapter

_RETIRED = {
    **dict.fromkeys(
        ("deepseek", "zhipu", "glm", "mimo", "minimax", "openrouter", "qwen", "custom"),
        "It was never a CLI of its own; reach such a model through a CLI's own configuration.",
    ),
    **dict.fromkeys(
        ("kimi", "kimi-code", "kimi_code"),
        "Register an adapter for this CLI with supervisor.register(...).",
    ),
    "claude_code": 'Use "claude".',
    "codex-pool": 'Use "codex".',
    "codex_pool": 'Use "codex".',
}
_registered: dict[str, Adapter] = {}


def provider_names() -> tuple[str, ...]:
    """The names that a Request may use, in order."""
    ours = {module.name for module in pkgutil.iter_modules(__path__)}
    return tuple(sorted(ours | _registered.keys()))


def register(adapter: Adapter) -> Callable[[], None]:
    """Make an adapter known by its `kind`, for the whole process.

    Returns:
        A function that takes it back; to call it again does nothing.

    Raises:
        RequestError: `config.invalid` if the name is taken.
    """
    if adapter.kind in provider_names():
        raise as_error(
            failure(
                "config.invalid",
                f"There is an adapter named {adapter.kind!r} already.",
                hint="Give the adapter another kind, or undo the first registration.",
            )
        )
    _registered[adapter.kind] = adapter

    def undo() -> None:
        if _registered.get(adapter.kind) is adapter:
            del _registered[adapter.kind]

    return undo


def find_adapter(name: str) -> Adapter:
    """The adapter of that name.

    Raises:
        RequestError: `provider.not_found`, with the nearest names.
    """
    names = provider_names()
    if name in _registered:
        return _registered[name]
    if name in names:
        found: Adapter = importlib.import_module(f"{__name__}.{name}").ADAPTER
        return found
    near = difflib.get_close_matches(name, names, n=1)
    known = f"The providers are {', '.join(names)}."
    hint = _RETIRED.get(name) or (f"Did you mean {near[0]!r}? {known}" if near else known)
    raise as_error(failure("provider.not_found", f"There is no provider {name!r}.", hint=hint))
