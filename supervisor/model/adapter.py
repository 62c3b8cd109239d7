"""What a vendor's adapter must offer. All knowledge of a vendor sits in its one module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from supervisor.model.completion import Billing, Exit
    from supervisor.model.errors import Failure
    from supervisor.model.events import Record
    from supervisor.model.launch import Launch, Places
    from supervisor.model.request import Request

JsonObject = dict[str, Any]
"""A decoded JSON object. Its values are looked at through checked getters only."""


class Decoder(Protocol):
    """Reads the events of one run. It is fresh for each run, has no clock and never raises."""

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        """What one object of the stream means.

        Args:
            value: the decoded object, every string of which can be encoded as UTF-8.
            size: bytes of the line that it stood in.
            at: aware time of the line's arrival; reset times in a stream may be relative to it.
        """
        ...

    def billing(self) -> Billing:
        """Who pays, by the evidence that has come so far."""
        ...


class Adapter(Protocol):
    """One vendor's CLI. Everything here is pure: text in, values out."""

    @property
    def kind(self) -> str:
        """The provider's name in a Request."""
        ...

    @property
    def program(self) -> str:
        """What the CLI's executable is called on PATH."""
        ...

    @property
    def tested_versions(self) -> tuple[str, ...]:
        """The versions that the conformance suite runs, oldest first."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that say where the CLI's own state lies; they always pass."""
        ...

    def natives(self, program: str, machine: str) -> tuple[str, ...]:
        """Paths at which the native binary may lie when `program` is a package's launcher.

        Args:
            program: real path of the executable that was found, links resolved.
            machine: the processor, as `os.uname().machine` says it.
        """
        ...

    def looks_for(self, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """What of the user's own files the plan must know of: a folder and a file's name each.

        The folder is searched a few levels deep before the plan is made.
        """
        ...

    def plan(
        self,
        request: Request[Any],
        places: Places,
        environ: Mapping[str, str],
        found: Sequence[str] = (),
    ) -> Launch:
        """How to start the CLI for a request.

        Args:
            request: one that passed `protocol.checks.check_request`.
            places: the run's private directory.
            environ: the variables that will reach the child, before the plan's own.
            found: the paths that `looks_for` asked for, in order; a link's target too.

        Raises:
            RequestError: what the CLI cannot honour or bear.
            AuthError: the billing policy cannot hold with these variables.
        """
        ...

    def decoder(self, request: Request[Any], environ: Mapping[str, str]) -> Decoder:
        """A fresh decoder for one run."""
        ...

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """The cause of an end without a terminal event, read from standard error; None if unknown.

        Args:
            exit: how the process ended.
            stderr: the kept tail, decoded, without colour codes.
        """
        ...
