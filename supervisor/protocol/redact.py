"""The command line as it may be shown: no key, no token, no text of the caller's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.model.launch import Launch

HIDDEN = "[secret]"

_SECRET = re.compile(
    r"""(api[-_]?key|token|secret|password|passwd|authorization|bearer|credential|headers?)\w*["']?\s*[=:]"""
    r"""|\bsk-[\w-]{6}|\bxai-[\w-]{6}|\bAIza[\w-]{6}|\bgh[pousr]_\w{6}|\beyJ[\w-]{8}|://[^/\s:]+:[^/\s@]+@""",
    re.IGNORECASE,
)


def shown_argv(program: Sequence[str], launch: Launch) -> tuple[str, ...]:
    """The whole command line with its secrets replaced.

    What the adapter names is hidden, and of the application's own fixed arguments each that looks as
    if it held a secret, a whole argument at a time.
    """
    name, *fixed = program
    hidden = set(launch.secrets)
    return (
        name,
        *(HIDDEN if _SECRET.search(word) else word for word in fixed),
        *(HIDDEN if i in hidden else word for i, word in enumerate(launch.arguments)),
    )
