"""How each real CLI is pointed at the loopback model endpoint, and what it makes of its answers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor import Supervisor
from supervisor.adapters import find_adapter

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.model.adapter import Capabilities
    from supervisor.model_server import ModelServer

MADE_UP = "sk-made-up-000000"
KEYS = {
    "claude": ["ANTHROPIC_API_KEY"],
    "codex": ["CODEX_API_KEY"],
    "gemini": ["GEMINI_API_KEY"],
    "grok": ["XAI_API_KEY"],
}


@dataclass(frozen=True)
class RealCli:
    """One pinned CLI with a private home."""

    provider: str
    version: str
    program: Path
    home: Path
    state: Path

    @property
    def name(self) -> str:
        return f"{self.provider} {self.version}"

    @property
    def capabilities(self) -> Capabilities:
        """What its adapter says that it can honour."""
        return find_adapter(self.provider).capabilities

    def supervisor(self, server: ModelServer | str, **given: Any) -> Supervisor:
        """A supervisor whose CLI asks `server` with a made-up key that is named, as a user must."""
        return Supervisor(**{**self.options(server), **given})

    def options(self, server: ModelServer | str) -> dict[str, Any]:
        """The arguments of `supervisor`."""
        url = server if isinstance(server, str) else server.url
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": MADE_UP,
            "CODEX_API_KEY": MADE_UP,
            "GEMINI_API_KEY": MADE_UP,
            "XAI_API_KEY": MADE_UP,
        }
        variables = {
            "claude": {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_MAX_RETRIES": "1"},
            "gemini": {"GOOGLE_GEMINI_BASE_URL": url},
            "grok": {"GROK_XAI_API_BASE_URL": f"{url}/v1"},
        }
        return {
            "programs": {self.provider: [str(self.program), *self._fixed(url)]},
            "keep": {self.provider: KEYS[self.provider]},
            "variables": {self.provider: variables.get(self.provider, {})},
            "environ": environ,
            "state_dir": self.state,
        }

    def _fixed(self, url: str) -> list[str]:
        if self.provider != "codex":
            return []
        provider = {
            "name": "loopback",
            "base_url": f"{url}/v1",
            "wire_api": "responses",
            "env_key": "CODEX_API_KEY",
        }
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in provider.items())
        retries = "request_max_retries = 0, stream_max_retries = 0"
        return [
            *("-c", f"model_providers.loopback={{ {table}, {retries} }}"),
            *("-c", 'model_provider="loopback"'),
        ]

    def homes(self) -> list[str]:
        """The private directories of runs that exist."""
        runs = self.state / "runs"
        return [path.name for path in runs.iterdir()] if runs.exists() else []
