"""What a vendor's adapter must offer. All knowledge of a vendor sits in its one module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from supervisor.model.completion import SignIn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from supervisor.model.completion import Billing, Exit
    from supervisor.model.conversation import MediaType
    from supervisor.model.errors import Failure
    from supervisor.model.events import Record
    from supervisor.model.launch import Launch, Places
    from supervisor.model.request import Access, BillingPolicy, Effort, Request, ServiceTier

JsonObject = dict[str, Any]
"""A decoded JSON object. Its values are looked at through checked getters only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a CLI can honour. A request that asks for more is refused before anything is planned.

    Attributes:
        access: see `Request.access`.
        billing: the policies that can hold; the first is the default.
        efforts, tiers: the levels and tiers that can be sent; none of them if empty.
        images: the kinds of pictures that it takes.
        system, max_turns, mcp, strict: whether `Request.system`, `max_turns`, `mcp_config` and
            `hermetic="strict"` can be honoured.
        sessions: whether a session can be kept, and be gone on with.
    """

    access: tuple[Access, ...] = ("none",)
    billing: tuple[BillingPolicy, ...] = ("subscription", "api_key", "any")
    efforts: tuple[Effort, ...] = ()
    tiers: tuple[ServiceTier, ...] = ("auto", "default")
    images: tuple[MediaType, ...] = ()
    system: bool = True
    max_turns: bool = False
    mcp: bool = False
    strict: bool = False
    sessions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Files of the user that a plan must know of.

    Attributes:
        folder: searched a few levels deep, links followed.
        name: what such a file is called.
        read: whether its content is needed, and not only its path; at most a MiB is read.
        deep: whether the folders below are searched too.
    """

    folder: str
    name: str
    read: bool = False
    deep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file that was looked for; `content` is None unless it was to be read and could be."""

    path: str
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All that a plan may know besides the request.

    Attributes:
        places: the run's private directory.
        environ: the variables that will reach the child, before the plan's own.
        found: the files that `Adapter.looks_for` asked for, in order; a link's target too.
        version: what the CLI calls its version, None unless `Adapter.needs_version`.
        sign_in: what the CLI says of its login, None unless it was asked.
    """

    places: Places
    environ: Mapping[str, str]
    found: tuple[FoundFile, ...] = ()
    version: str | None = None
    sign_in: SignIn | None = None


class Decoder(Protocol):
    """Reads the events of one run. It is fresh for each run, has no clock and never raises."""

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        """What one object of the stream means.

        Args:
            value: the decoded object, every string of which can be encoded as UTF-8.
            size: bytes of the line that it stood in.
            at: aware local time of the line's arrival; reset times in a stream may be relative to it,
                or a clock's face in the machine's zone.
        """
        ...

    def billing(self) -> Billing:
        """Who pays, by the evidence that has come so far."""
        ...


class Adapter(ABC):
    """One vendor's CLI: subclass it in one module. Everything here is pure: text in, values out.

    Attributes:
        kind: the provider's name in a Request.
        program: what the CLI's executable is called on PATH.
        tested_versions: the versions that the conformance suite runs, oldest first.
        capabilities: what the CLI can honour.
        variables: environment variables that say where the CLI's own state lies; they always pass.
        state_variable: the one of them that moves the state folder, and the login with it; None if none
            does.
        needs_version: whether the plan depends on the CLI's version, which is then asked for first.
        sign_in_arguments: how the CLI is asked who is signed in, without a network; None if it
            cannot be.
    """

    kind: ClassVar[str]
    program: ClassVar[str]
    tested_versions: ClassVar[tuple[str, ...]]
    capabilities: ClassVar[Capabilities]
    variables: ClassVar[tuple[str, ...]] = ()
    state_variable: ClassVar[str | None] = None
    needs_version: ClassVar[bool] = False
    sign_in_arguments: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """How to start the CLI for a request.

        Args:
            request: one that passed `protocol.checks` and went through `protocol.asked`: it has a
                prompt and no messages, a schema and no tools, and its billing policy is decided.
            surroundings: what else is known.

        Raises:
            RequestError: what the CLI cannot honour or bear.
            AuthError: the billing policy cannot hold with these variables.
        """

    @abstractmethod
    def decoder(self, request: Request[Any], surroundings: Surroundings) -> Decoder:
        """A fresh decoder for one run."""

    @abstractmethod
    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """The cause of an end without a terminal event, read from standard error; None if unknown.

        Args:
            exit: how the process ended.
            stderr: the kept tail, decoded, without colour codes.
        """

    def natives(self, program: str, machine: str) -> tuple[str, ...]:
        """Paths at which the native binary may lie when `program` is a package's launcher.

        Args:
            program: real path of the executable that was found, links resolved.
            machine: the processor, as `os.uname().machine` says it.
        """
        return ()

    def looks_for(self, request: Request[Any], environ: Mapping[str, str]) -> tuple[Wanted, ...]:
        """What of the user's own files the plan must know of."""
        return ()

    def asks_sign_in(self, request: Request[Any], surroundings: Surroundings) -> bool:
        """Whether that is asked before a run, because no event of the run will say who pays."""
        return False

    def login_files(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Paths of the files in which the CLI keeps the user's login, whether they exist or not."""
        return ()

    def sign_in(self, exit: Exit, stdout: str, stderr: str) -> SignIn:  # noqa: A002
        """What the CLI's answer to `sign_in_arguments` says."""
        return SignIn(state="unknown", payer="unknown", evidence=f"{self.kind} cannot be asked")
