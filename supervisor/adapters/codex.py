"""OpenAI Codex (`codex exec --json`), answer mode.

Facts are from recorded runs of 0.171.0.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, cast

from supervisor.model.adapter import Adapter, Capabilities, Wanted
from supervisor.model.completion import Billing, SignIn, Usage
from supervisor.model.errors import Failure, as_error, failure
from supervisor.model.events import (
    ErrorReported,
    FileChanged,
    Notice,
    Reasoning,
    Record,
    Started,
    Text,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unrecognized,
    UsageReported,
)
from supervisor.model.launch import Launch, LinkedLogin, PrivateFile
from supervisor.protocol.decode import count, obj, objects, string
from supervisor.protocol.limit_text import read_limit, read_reset, read_retry_after
from supervisor.protocol.schema import json_schema
from supervisor.protocol.strict_schema import strict_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from supervisor.model.adapter import FoundFile, JsonObject, Surroundings
    from supervisor.model.completion import Exit
    from supervisor.model.errors import Code
    from supervisor.model.request import Effort, Request

_CHARACTER_LIMIT = 1_048_576  # "Input exceeds the maximum length", exit 1
_ARGUMENT_LIMIT = 131_071  # Linux refuses a longer single argument with E2BIG

# What the model could act with. A name that the CLI does not know ends the start with an error, which
# is wanted: a renamed tool must not come back unseen.
_FEATURES_OFF = (
    *("shell_tool", "unified_exec", "code_mode_host", "view_image", "image_generation"),
    *("apps", "plugins", "remote_plugin", "tool_suggest", "skill_search", "sleep_tool"),
    *("multi_agent", "goals", "hooks"),
    "shell_snapshot",  # starts a login shell in a session of its own
    "unbounded_connection_retries",  # would try for ever when the server cannot be reached
)
_READS = ("shell_tool", "unified_exec", "code_mode_host")
"""What the model reads files with. Its commands run in the CLI's own read-only sandbox."""

_MEMORY = "AGENTS.md"
_CONFIGURATION = "config.toml"
_LOGIN = "auth.json"
_SETTINGS = (
    'web_search="disabled"',
    "agents.enabled=false",  # --disable multi_agent leaves the sub-agent tools
    "project_doc_max_bytes=0",
    "skills.bundled.enabled=false",
    "skills.include_instructions=false",
    "analytics.enabled=false",  # without it the process ends 5 s late when that host is out of reach
)


class Codex(Adapter):
    """The adapter for `codex`."""

    kind = "codex"
    program = "codex"
    tested_versions = ("0.171.0",)
    capabilities = Capabilities(
        access=("none", "read"),
        efforts=("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"),
        tiers=("auto", "default", "flex", "fast", "priority"),
        images=("image/png", "image/jpeg", "image/gif", "image/webp"),
        mcp=True,
        strict=True,
        sessions=True,
    )
    variables = ("CODEX_HOME", "CODEX_SQLITE_HOME", "CODEX_CA_CERTIFICATE")
    state_variable = "CODEX_HOME"
    sign_in_arguments = ("login", "status")

    def natives(self, program: str, machine: str) -> tuple[str, ...]:
        """The npm package's `bin/codex.js` starts the native binary of a sibling package."""
        root, found, _ = program.rpartition("/codex/bin/codex.js")
        arch = {"x86_64": "x64", "aarch64": "arm64"}.get(machine)
        if not found or arch is None:
            return ()
        inside = f"codex-linux-{arch}/vendor/{machine}-unknown-linux-musl/bin/codex"
        inner = f"{root}/codex/node_modules/@openai"
        return tuple(f"{place}/{inside}" for place in (root, inner))

    def looks_for(self, request: Request[Any], environ: Mapping[str, str]) -> tuple[Wanted, ...]:
        """The user's skills, since `$name` in a prompt attaches a skill's whole file; the memory file
        that no flag keeps out; the configuration, for the model that the user chose; and the login.
        """
        home, state = environ.get("HOME", ""), _state(environ)
        skills = (f"{home}/.agents/skills", *(() if _private(request) else (f"{state}/skills",)))
        memory = () if _private(request) else (Wanted(folder=state, name=_MEMORY, deep=False),)
        return (
            *(Wanted(folder=folder, name="SKILL.md") for folder in skills),
            *memory,
            Wanted(folder=state, name=_CONFIGURATION, read=True, deep=False),
            Wanted(folder=state, name=_LOGIN, deep=False),
        )

    def asks_sign_in(self, request: Request[Any], surroundings: Surroundings) -> bool:
        """See `Adapter.asks_sign_in`. Without a file the login may still be in the system's keyring."""
        if request.billing == "any" or surroundings.environ.get("CODEX_API_KEY"):
            return False
        has_file = any(f.path.endswith(f"/{_LOGIN}") for f in surroundings.found)
        store = string(_settings(surroundings.found), "cli_auth_credentials_store")
        return has_file or store in ("keyring", "auto")

    def login_files(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.login_files`."""
        return (f"{_state(environ)}/{_LOGIN}",)

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """See `Adapter.plan`. The prompt goes by stdin: as an argument it may be a flag or a command.

        System text goes as developer instructions: codex's own base instructions stay, because the
        ChatGPT backend was seen to refuse others ("Instructions are not valid").
        """
        places, environ = surroundings.places, surroundings.environ
        _check_payer(request, surroundings)
        if len(request.prompt) > _CHARACTER_LIMIT:
            raise _too_large("prompt", f"{len(request.prompt)} characters", _CHARACTER_LIMIT)
        configured = _configured(surroundings.found)
        model = request.model or string(configured, "model")
        effort = request.effort or _known_effort(string(configured, "model_reasoning_effort"))
        kept = request.keep_session or request.resume is not None
        arguments = [
            *("exec", "--json", *(() if kept else ("--ephemeral",)), "--skip-git-repo-check"),
            *("--ignore-user-config", "--ignore-rules", "-s", "read-only"),
            *("-C", request.workspace or places.work),
        ]
        for feature in _FEATURES_OFF:
            if request.access == "none" or feature not in _READS:
                arguments += ["--disable", feature]
        secrets: tuple[int, ...] = ()
        skills = [file.path for file in surroundings.found if file.path.endswith("SKILL.md")]
        for setting in (*_SETTINGS, _no_skills(skills), *_request_settings(request, effort)):
            arguments += ["-c", setting]
            if setting.startswith("developer_instructions="):
                secrets = (len(arguments) - 1,)  # the caller's text
        files: list[PrivateFile] = []
        if request.schema is not None:
            schema = strict_schema(json_schema(request))
            files.append(PrivateFile(name="schema.json", content=json.dumps(schema).encode()))
            arguments += ["--output-schema", f"{places.files}/schema.json"]
        for number, image in enumerate(request.images):
            name = f"image-{number}.{image.media_type.partition('/')[2]}"
            files.append(PrivateFile(name=name, content=image.data))
            arguments.append(f"--image={places.files}/{name}")
        if model is not None:
            arguments += ["-m", model]
        if request.resume is not None:
            arguments += ["resume", request.resume]
        # The CLI takes a byte order mark off the head of its input; behind a newline it stays.
        head = "\n" if request.prompt.startswith("\ufeff") else ""
        strict = request.hermetic == "strict"
        (login,) = self.login_files(environ)
        return Launch(
            arguments=(*arguments, "-"),
            stdin=(head + request.prompt).encode(),
            environment={"CODEX_HOME": places.state} if strict else {},
            files=tuple(files),
            logins=(LinkedLogin(source=login, name=_LOGIN),) if strict else (),
            secrets=secrets,
            silent_while_thinking=True,
            optional_as_null=True,
            polite="INT",  # on SIGTERM it dies at once and leaves its tools
            model=model,
            effort=effort,
            effort_source="request" if request.effort else "configuration" if effort else None,
            loaded=tuple(f.path for f in surroundings.found if f.path.endswith(f"/{_MEMORY}")),
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> CodexDecoder:
        """See `Adapter.decoder`."""
        return CodexDecoder(
            api_key=bool(surroundings.environ.get("CODEX_API_KEY")),
            sign_in=surroundings.sign_in,
            resumed=request.resume is not None,
        )

    def sign_in(self, exit: Exit, stdout: str, stderr: str) -> SignIn:  # noqa: A002
        """See `Adapter.sign_in`. `codex login status` says one line, on standard error."""
        said = stdout + stderr
        if "Logged in using ChatGPT" in said:
            return SignIn(
                state="signed_in", payer="subscription", evidence="Logged in using ChatGPT"
            )
        if "API key" in said and exit.code == 0:
            return SignIn(state="signed_in", payer="api_key", evidence="Logged in using an API key")
        if "Not logged in" in said:
            return SignIn(state="signed_out", payer="unknown", evidence="Not logged in")
        return SignIn(state="unknown", payer="unknown", evidence="codex login status says nothing")

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """See `Adapter.diagnose`. Start-up errors are plain text on stderr; usage errors exit 2."""
        if exit.code == 2 or "unknown configuration field" in stderr:
            return failure("cli.bad_flag")
        if "Input exceeds the maximum length" in stderr:
            return failure("request.too_large")
        if "codex home" in stderr or "in-process app-server" in stderr:
            return failure(
                "config.invalid",
                "The CLI cannot use its own state folder.",
                hint="Check that CODEX_HOME (or ~/.codex) exists and can be written.",
            )
        if "is not a terminal" in stderr:
            return failure("cli.needs_terminal")
        if "login is required" in stderr or "Not logged in" in stderr:
            return failure("auth.required")
        return None


class CodexDecoder:
    """Reads `codex exec --json`."""

    def __init__(
        self, *, api_key: bool, sign_in: SignIn | None = None, resumed: bool = False
    ) -> None:
        self._api_key = api_key
        self._sign_in = sign_in
        self._resumed = resumed
        self._outdated = False

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        match string(value, "type"):
            case "thread.started":
                return [Started(session_id=string(value, "thread_id"))]
            case "turn.started":
                return [Notice(code="status", message="The CLI began a turn.")]
            case "item.started" | "item.updated" | "item.completed" as event:
                return _item(obj(value, "item"), event.removeprefix("item."), size)
            case "error":
                return _error(string(value, "message") or "", at)
            # Public reports: 0.42 began with this and named its items otherwise, 0.21 put each event
            # into an envelope. Neither stream holds its version.
            case "session.created":
                return self._old_dialect()
            case None if obj(value, "msg"):
                return self._old_dialect()
            case "turn.completed" if self._outdated:
                return [TurnEnded(failure=failure("cli.unsupported_version"))]
            case "turn.completed":
                usage = _usage(obj(value, "usage"), cumulative=self._resumed)
                reported = [] if usage is None else [UsageReported(usage=usage)]
                return [*reported, TurnEnded(failure=None, usage=usage)]
            case "turn.failed":
                message = string(obj(value, "error"), "message") or ""
                return [TurnEnded(failure=_failure(message, at))]
            case name:
                return [Unrecognized(type=name, size=size)]

    def billing(self) -> Billing:
        if self._api_key:
            return Billing(payer="api_key", evidence="CODEX_API_KEY, which outranks every login")
        if self._sign_in is not None and self._sign_in.state == "signed_in":
            said = f"codex login status: {self._sign_in.evidence}"
            return Billing(payer=self._sign_in.payer, evidence=said)
        return Billing(payer="unknown", evidence="codex's events do not say who pays")

    def _old_dialect(self) -> list[Record]:
        self._outdated = True
        return [ErrorReported(failure=failure("cli.unsupported_version"))]


def _state(environ: Mapping[str, str]) -> str:
    return environ.get("CODEX_HOME") or f"{environ.get('HOME', '')}/.codex"


def _private(request: Request[Any]) -> bool:
    return request.hermetic == "strict"


def _check_payer(request: Request[Any], surroundings: Surroundings) -> None:
    """The key outranks auth.json and the ChatGPT login, and no event says who pays."""
    key, sign_in = surroundings.environ.get("CODEX_API_KEY"), surroundings.sign_in
    payer = "api_key" if key else None if sign_in is None else sign_in.payer
    if request.billing == "subscription" and payer == "api_key":
        raise as_error(failure("auth.api_key_in_use"))
    if request.billing == "api_key" and payer != "api_key":
        raise as_error(
            failure(
                "auth.required",
                "There is no API key for codex.",
                hint='Name it with Supervisor(keep={"codex": ["CODEX_API_KEY"]}).',
            )
        )


def _settings(found: Sequence[FoundFile]) -> JsonObject:
    """The user's configuration; empty if there is none that can be read."""
    for file in found:
        if file.path.endswith(f"/{_CONFIGURATION}") and file.content is not None:
            try:
                return tomllib.loads(file.content.decode())
            except (ValueError, RecursionError):
                return {}
    return {}


def _configured(found: Sequence[FoundFile]) -> JsonObject:
    """What the plan follows of it.

    `--ignore-user-config` leaves out the user's choice of a model too, and with a provider of its own
    that choice means nothing to the built-in one.
    """
    settings = _settings(found)
    profile = obj(obj(settings, "profiles"), string(settings, "profile") or "")
    chosen = {**settings, **profile}
    return chosen if string(chosen, "model_provider") in (None, "openai") else {}


def _known_effort(level: str | None) -> Effort | None:
    return next((each for each in Codex.capabilities.efforts if each == level), None)


def _no_skills(found: Sequence[str]) -> str:
    """Each skill by its path: there is no switch for all of the user's."""
    entries = (f"{{path={json.dumps(path, ensure_ascii=False)},enabled=false}}" for path in found)
    return f"skills.config=[{','.join(entries)}]"


def _request_settings(request: Request[Any], effort: Effort | None) -> list[str]:
    settings: list[str] = []
    if effort is not None:
        settings.append(f'model_reasoning_effort="{effort}"')
    if request.service_tier in ("flex", "fast", "priority"):
        tier = "priority" if request.service_tier == "fast" else request.service_tier
        settings.append(f'service_tier="{tier}"')
    for name, server in (request.mcp_config or {}).items():
        settings.append(f"mcp_servers.{name}={_toml(server)}")
    if request.system is not None:
        # A JSON string without escapes for plain text is also a TOML string.
        setting = f"developer_instructions={json.dumps(request.system, ensure_ascii=False)}"
        setting = setting.replace("\x7f", "\\u007f")  # TOML wants it escaped, JSON does not
        if len(setting.encode()) > _ARGUMENT_LIMIT:
            raise _too_large(
                "system text", f"{len(request.system.encode())} bytes", _ARGUMENT_LIMIT
            )
        settings.append(setting)
    return settings


def _toml(value: Any) -> str:
    """A JSON value as an inline TOML value; what TOML has no word for is left out."""
    if isinstance(value, dict):
        pairs = cast("JsonObject", value).items()
        inside = (f"{json.dumps(k)}={_toml(v)}" for k, v in pairs if v is not None)
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list):
        return f"[{','.join(_toml(item) for item in cast('list[Any]', value) if item is not None)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _item(item: JsonObject, phase: str, size: int) -> list[Record]:
    name = string(item, "type") or ""
    match name:
        case "agent_message":
            return [Text(text=string(item, "text") or "")]
        case "reasoning":
            return [Reasoning(text=string(item, "text") or "")]
        case "command_execution" | "mcp_tool_call" | "web_search" | "file_change":
            return _tool(item, name, phase)
        case "error":  # a warning; the run goes on
            return [Notice(code="warning", message=_warning(string(item, "message") or ""))]
        case "todo_list":
            return [Notice(code="status", message="The model changed its list of steps.")]
        case _:
            return [Unrecognized(type=f"item/{name}", size=size)]


def _tool(item: JsonObject, name: str, phase: str) -> list[Record]:
    # The object of a web search holds "id" twice, so the kind is part of what pairs the two events.
    key = f"{name}:{string(item, 'id') or ''}"
    if phase == "started":
        return [ToolStarted(id=key, name=name, input=_tool_input(item, name))]
    if phase != "completed":
        return []
    status = string(item, "status")
    output = string(item, "aggregated_output")
    records: list[Record] = [
        ToolFinished(id=key, ok=None if status is None else status == "completed", output=output)
    ]
    if name == "file_change" and status == "completed":
        records += [_file_changed(change) for change in objects(item, "changes")]
    return records


def _tool_input(item: JsonObject, name: str) -> Any:
    match name:
        case "command_execution":
            return {"command": string(item, "command")}
        case "mcp_tool_call":
            return {
                "server": string(item, "server"),
                "tool": string(item, "tool"),
                "arguments": item.get("arguments"),
            }
        case "web_search":
            return {"query": string(item, "query")}
        case _:
            return {"changes": item.get("changes")}


def _file_changed(change: JsonObject) -> FileChanged:
    path = string(change, "path") or ""
    match string(change, "kind"):
        case "add" | "update" | "delete" as kind:
            return FileChanged(path=path, change=kind)
        case _:
            return FileChanged(path=path, change="unknown")


def _warning(message: str) -> str:
    if message.startswith("Falling back"):
        return "The CLI fell back to another transport."
    if message.startswith("model rerouted"):
        return "The server answered with another model than was asked for."
    if "Code Mode" in message or "code-mode" in message:
        return "Code mode is off, as answer mode wants it."
    return "The CLI warns about its configuration or its model."


def _error(message: str, at: datetime) -> list[Record]:
    """A top-level error: most are repeats of a request, and the turn's own word comes after them."""
    again = re.match(
        r"Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting for network)\s*\((.*)\)\s*$", message
    )
    if again is None:
        return [ErrorReported(failure=_failure(message, at))]
    attempt, attempts, reason = again.groups()
    fact = _failure(reason, at)
    notice = Notice(
        code="retry",
        message="The CLI repeats a request that failed.",
        attempt=None if attempt is None else int(attempt),
        attempts=None if attempts is None else int(attempts),
        status=fact.status,
    )
    return [notice, ErrorReported(failure=fact)]


def _usage(raw: JsonObject, *, cumulative: bool) -> Usage | None:
    """Counters of the whole thread: cached and written input is part of input, reasoning of output."""
    if not raw:
        return None
    whole, read = count(raw, "input_tokens"), count(raw, "cached_input_tokens")
    write, output = count(raw, "cache_write_input_tokens"), count(raw, "output_tokens")
    reasoning = count(raw, "reasoning_output_tokens")
    fresh = None if whole is None or read is None else max(0, whole - read - (write or 0))
    if output is not None and reasoning is not None:
        output = max(0, output - reasoning)
    return Usage(
        input=fresh,
        cache_read=read,
        cache_write=write,
        output=output,
        reasoning=reasoning,
        cumulative=cumulative,
    )


# The stream has no code of an error, only its text. First match wins.
_PHRASES: tuple[tuple[str, Code], ...] = (
    (r"^Missing environment variable", "auth.required"),
    (r"refresh token (was|has) (already )?(been )?(re)?used", "auth.race"),
    (r"^Your access token could not be refreshed", "auth.expired"),
    (r"hit your usage limit|usage_limit_(reached|exceeded)", "limit.usage"),
    (r"^Quota exceeded|upgrade to Plus", "limit.credits"),
    (r"last status: 429|^rate limit exceeded", "limit.rate"),
    (r"high demand", "provider.error"),
    (r"at capacity", "provider.overloaded"),
    (r"does not exist or you do not have access|model is not supported", "model.unavailable"),
    (r"context window", "model.context"),
    (r"reason: max_output_tokens", "answer.max_tokens"),
    (r"reason: content_filter", "model.refused"),
    (r"invalid_json_schema|Invalid schema for response_format", "request.unsupported"),
    (
        r"stream closed|error sending request|idle timeout|^Connection failed|error decoding",
        "network",
    ),
    (r"^stream disconnected", "provider.error"),
)


def _failure(message: str, at: datetime) -> Failure:
    status = re.match(r"(?:stream disconnected[^:]*: )?unexpected status (\d{3})", message)
    limit = read_limit(message, at)
    if status is not None and status[1] == "429" and limit is not None:
        # The body tells a plan that is used up from a rate.
        return failure(
            limit.code, status=429, resets_at=limit.resets_at, retry_after=limit.retry_after
        )
    if status is not None:
        return _by_status(int(status[1]))
    for pattern, code in _PHRASES:
        if re.search(pattern, message):
            if code == "request.unsupported":
                return failure(code, "The server refuses the schema.", status=400)
            if code.startswith("limit."):
                wait = read_retry_after(message) if code == "limit.rate" else None
                resets = read_reset(message, at) if wait is None else None
                return failure(code, resets_at=resets, retry_after=wait)
            return failure(code)
    if limit is not None:
        return failure(limit.code, resets_at=limit.resets_at, retry_after=limit.retry_after)
    return failure("model.error")


def _by_status(status: int) -> Failure:
    code: Code
    match status:
        case 401 | 403:
            code = "auth.expired"
        case 402:
            code = "limit.credits"
        case 404:
            code = "model.unavailable"
        case 413:
            code = "request.too_large"
        case 429:
            code = "limit.rate"
        case _:
            code = "provider.error" if status >= 500 else "model.error"
    return failure(code, status=status)


def _too_large(what: str, size: str, limit: int) -> Exception:
    return as_error(
        failure("request.too_large", f"The {what} has {size}, and codex takes at most {limit}.")
    )


ADAPTER = Codex()
