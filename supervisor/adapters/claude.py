"""Claude Code (`claude -p`), answer mode.

Facts are from recorded runs of 2.1.197 and 2.1.332; where the two differ, the version is named.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from supervisor.model.adapter import Adapter, Capabilities
from supervisor.model.completion import Billing, Cost, SignIn, Usage
from supervisor.model.errors import Failure, as_error, failure
from supervisor.model.events import (
    ErrorReported,
    Notice,
    RateLimit,
    Reasoning,
    Record,
    Started,
    Text,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unrecognized,
    UsageReported,
)
from supervisor.model.launch import Launch, LinkedLogin, PrivateFile
from supervisor.protocol.decode import (
    count,
    flag,
    number,
    obj,
    objects,
    read_objects,
    string,
    strings,
)
from supervisor.protocol.limit_text import read_limit, read_reset
from supervisor.protocol.schema import draft_07_schema, json_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.adapter import JsonObject, Surroundings
    from supervisor.model.completion import Exit, Payer
    from supervisor.model.conversation import Image
    from supervisor.model.errors import Code
    from supervisor.model.request import Request

_TOOLS = {"none": "", "read": "Read,Grep,Glob"}
"""What the model is offered. These need no permission below the working directory and --add-dir."""

_PAYERS: Mapping[str, Payer] = {
    "claude.ai": "subscription",
    "oauth_token": "subscription",
    "api_key": "api_key",
    "api_key_helper": "api_key",
}
_STDIN_LIMIT = 10_000_000  # "piped stdin input exceeds 10MB", exit 1
_ARGUMENT_LIMIT = 131_071  # Linux refuses a longer single argument with E2BIG

_ENVIRONMENT = {
    # Without these three, one more model request a run is made, for a title of the session.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    # 2.1.332 waits for a background task to end and then answers once more.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # An @path in the prompt would put that file's content into the request, even with no tools.
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    # The defaults are 10 retries (about 175 s) and 300 s for a server that accepts and is silent;
    # these let the CLI's own error arrive before the default limits of a run.
    "CLAUDE_CODE_MAX_RETRIES": "3",
    "API_TIMEOUT_MS": "120000",
}


class Claude(Adapter):
    """The adapter for `claude`."""

    kind = "claude"
    program = "claude"
    tested_versions = ("2.1.197", "2.1.332")
    capabilities = Capabilities(
        access=("none", "read"),
        efforts=("low", "medium", "high", "xhigh", "max"),
        images=("image/png", "image/jpeg", "image/gif", "image/webp"),
        max_turns=True,
        mcp=True,
        strict=True,
        sessions=True,
    )
    variables = ("CLAUDE_CONFIG_DIR",)
    state_variable = "CLAUDE_CONFIG_DIR"
    sign_in_arguments = ("auth", "status")

    def natives(self, program: str, machine: str) -> tuple[str, ...]:
        """The npm package's `bin/claude.exe` is a launcher until its install script has run."""
        root, found, _ = program.rpartition("/claude-code/bin/")
        arch = {"x86_64": "x64", "aarch64": "arm64"}.get(machine)
        if not found or arch is None:
            return ()
        names = (f"claude-code-linux-{arch}", f"claude-code-linux-{arch}-musl")
        inner = f"{root}/claude-code/node_modules/@anthropic-ai"
        return tuple(f"{place}/{name}/claude" for place in (root, inner) for name in names)

    def login_files(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.login_files`."""
        return (f"{_state(environ)}/.credentials.json",)

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """See `Adapter.plan`. The prompt goes by stdin: as an argument it may be a flag or too long.

        A prompt that begins with "/" is looked up as a command and answered without a model; with a
        newline before it, it is text.
        """
        places, environ = surroundings.places, surroundings.environ
        if request.billing == "subscription" and environ.get("ANTHROPIC_API_KEY"):
            # A key outranks the token and the login file, so the outcome is known beforehand.
            raise as_error(failure("auth.api_key_in_use"))
        arguments = [
            "-p",
            *("--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            *("--tools", _TOOLS[request.access], "--strict-mcp-config", "--setting-sources", ""),
        ]
        files: list[PrivateFile] = []
        if not request.keep_session and request.resume is None:
            arguments.append("--no-session-persistence")
        if request.resume is not None:
            arguments += ["--resume", request.resume]
        if request.workspace is not None:
            # Beside the private folder and not in its place: what lies in the working directory may
            # switch who pays and run code.
            arguments += ["--add-dir", request.workspace]
        if request.mcp_config is not None:
            servers = {"mcpServers": dict(request.mcp_config)}
            files.append(PrivateFile(name="mcp.json", content=json.dumps(servers).encode()))
            allowed = ",".join(f"mcp__{name}" for name in request.mcp_config)
            arguments += ["--mcp-config", f"{places.files}/mcp.json", "--allowedTools", allowed]
        if request.max_turns is not None:
            arguments += ["--max-turns", str(request.max_turns)]
        if request.system is not None:
            files.append(PrivateFile(name="system.txt", content=request.system.encode()))
            arguments += ["--system-prompt-file", f"{places.files}/system.txt"]
        if request.model is not None:
            arguments += ["--model", request.model]
        if request.effort is not None:
            arguments += ["--effort", request.effort]
        if request.schema is not None:
            arguments += ["--json-schema", _schema_argument(request)]
        if request.images:
            arguments += ["--input-format", "stream-json"]
        environment = {
            **_ENVIRONMENT,
            # 2.1.332 puts a socket into the first of these, or into /tmp if neither is set or the
            # path passes the 108 bytes that a socket's may have.
            "XDG_RUNTIME_DIR": places.temporary,
            "CLAUDE_CODE_TMPDIR": places.temporary,
        }
        logins: tuple[LinkedLogin, ...] = ()
        if request.hermetic == "strict":
            environment["CLAUDE_CONFIG_DIR"] = places.state
            (source,) = self.login_files(environ)
            logins = (LinkedLogin(source=source, name=".credentials.json"),)
        return Launch(
            arguments=tuple(arguments),
            stdin=_input(request),
            environment=environment,
            files=tuple(files),
            logins=logins,
            tidy=_project_folders(places.work, environ),
            model=request.model,
            effort=request.effort,
            effort_source=None if request.effort is None else "request",
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> ClaudeDecoder:
        """See `Adapter.decoder`."""
        return ClaudeDecoder(auth_token="ANTHROPIC_AUTH_TOKEN" in surroundings.environ)

    def sign_in(self, exit: Exit, stdout: str, stderr: str) -> SignIn:  # noqa: A002
        """See `Adapter.sign_in`. `claude auth status` prints an object with loggedIn and authMethod."""
        said = read_objects(stdout.encode())[0] if stdout.strip() else None
        if not isinstance(said, dict) or flag(said, "loggedIn") is None:
            return SignIn(
                state="unknown", payer="unknown", evidence="claude auth status says nothing"
            )
        if flag(said, "loggedIn") is False:
            return SignIn(state="signed_out", payer="unknown", evidence="loggedIn false")
        method = string(said, "authMethod") or ""
        payer = _PAYERS.get(method, "unknown")
        return SignIn(state="signed_in", payer=payer, evidence=f"authMethod {method!r}")

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """See `Adapter.diagnose`. Start-up errors are plain text on stderr and nothing on stdout."""
        if re.search(r"^error: (unknown option|option )|requires --verbose", stderr, re.M):
            return failure("cli.bad_flag")
        if "--json-schema" in stderr:
            return failure(
                "request.unsupported",
                "The CLI's validator refuses the schema.",
                hint="Leave out the schema's rarer keywords; the answer is checked all the same.",
            )
        if "exceeds 10MB" in stderr:
            return failure("request.too_large")
        if re.search(r"^(Claude configuration file|Configuration error)", stderr, re.M):
            return failure(
                "config.invalid",
                "The CLI's own configuration file is broken.",
                hint="Start the CLI once by hand; it offers to restore its backup.",
            )
        if "not a terminal" in stderr:
            return failure("cli.needs_terminal")
        return None


class ClaudeDecoder:
    """Reads `--output-format stream-json`, and the single object or array of `json`."""

    def __init__(self, *, auth_token: bool) -> None:
        self._auth_token = auth_token
        self._key_source: str | None = None
        self._window: RateLimit | None = None
        self._error: str | None = None
        self._thought = False
        self._answer_calls: set[str] = set()

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        match string(value, "type"):
            case "system":
                return self._system(value, size, at)
            case "assistant":
                return self._assistant(value)
            case "user":
                return self._tool_results(value)
            case "stream_event":
                return self._delta(value)
            case "rate_limit_event":
                self._window = _rate_limit(obj(value, "rate_limit_info"))
                return [self._window]
            case "result":
                return self._result(value, at)
            case name:
                return [Unrecognized(type=name, size=size)]

    def billing(self) -> Billing:
        source = self._key_source
        if source is None:
            return Billing(payer="unknown", evidence="no init event")
        said = f"apiKeySource {source!r}"
        if source != "none":
            return Billing(payer="api_key", evidence=said)
        if self._window is not None:
            return Billing(payer="subscription", evidence=f"{said} and a rate_limit_event")
        if self._auth_token:  # sent as a bearer token, and not named by apiKeySource
            return Billing(payer="unknown", evidence=f"{said}, with ANTHROPIC_AUTH_TOKEN set")
        return Billing(payer="subscription", evidence=said)

    def _system(self, value: JsonObject, size: int, at: datetime) -> list[Record]:
        match string(value, "subtype"):
            case "init":
                return [self._init(value)]
            case "api_retry":
                return self._retry(value, at)
            case "thinking_tokens":  # the model thinks and its text is withheld
                return [Reasoning(text="")]
            case "model_fallback":
                return [Notice(code="fallback", message="The CLI switched to another model.")]
            case "status" | "informational" | "ui_invalidate" | "model_refusal_no_fallback":
                return [Notice(code="status", message="The CLI reported its state.")]
            case "hook_started" | "hook_response":
                return [Notice(code="warning", message="A hook of the user's settings ran.")]
            case "task_started" | "task_updated" | "task_notification" | "background_tasks_changed":
                return [Notice(code="status", message="A background task changed its state.")]
            case "permission_denied":
                return [Notice(code="warning", message="The CLI denied a tool call.")]
            case name:
                return [Unrecognized(type=f"system/{name}", size=size)]

    def _init(self, value: JsonObject) -> Started:
        source = self._key_source = string(value, "apiKeySource")
        return Started(
            session_id=string(value, "session_id"),
            model=string(value, "model"),
            cli_version=string(value, "claude_code_version"),
            tools=strings(value, "tools"),
            credential=None if source is None else "login" if source == "none" else "api_key",
            evidence=None if source is None else f"apiKeySource {source!r}",
            loaded=_loaded(value),
        )

    def _retry(self, value: JsonObject, at: datetime) -> list[Record]:
        status, error = count(value, "error_status"), string(value, "error") or ""
        notice = Notice(
            code="retry",
            message="The CLI repeats a request that failed.",
            attempt=count(value, "attempt"),
            attempts=count(value, "max_retries"),
            status=status,
        )
        if status is None and error in ("unknown", "server_error"):
            fact = failure("network")  # no answer came at all: refused, reset, timed out
        else:
            fact = _api_failure(error, status, "", self._window, at)
        return [notice, ErrorReported(failure=fact)]

    def _assistant(self, value: JsonObject) -> list[Record]:
        message, parent = obj(value, "message"), string(value, "parent_tool_use_id")
        error = string(value, "error")
        if error is not None or string(message, "model") == "<synthetic>":
            self._error = error  # the sentence beside it is the CLI's, not the model's
            return []
        records: list[Record] = []
        for block in objects(message, "content"):
            match string(block, "type"):
                case "text":
                    records.append(Text(text=string(block, "text") or "", parent=parent))
                case "thinking":
                    if not self._thought:
                        text = string(block, "thinking") or ""
                        records.append(Reasoning(text=text, parent=parent))
                    self._thought = False
                case "tool_use" if string(block, "name") == "StructuredOutput":
                    self._answer_calls.add(string(block, "id") or "")  # the answer, and no tool
                case "tool_use":
                    records.append(_tool_started(block, parent))
                case _:
                    pass
        return records

    def _tool_results(self, value: JsonObject) -> list[Record]:
        return [
            ToolFinished(
                id=name,
                ok=flag(block, "is_error") is not True,
                output=string(block, "content"),
                parent=string(value, "parent_tool_use_id"),
            )
            for block in objects(obj(value, "message"), "content")
            if string(block, "type") == "tool_result"
            and (name := string(block, "tool_use_id") or "") not in self._answer_calls
        ]

    def _delta(self, value: JsonObject) -> list[Record]:
        parent = string(value, "parent_tool_use_id")
        delta = obj(obj(value, "event"), "delta")
        match string(delta, "type"):
            case "text_delta":
                return [TextDelta(text=string(delta, "text") or "", parent=parent)]
            case "thinking_delta":
                self._thought = True
                return [Reasoning(text=string(delta, "thinking") or "", parent=parent)]
            case "input_json_delta":  # the structured answer grows, out of sight
                return [Reasoning(text="", parent=parent)]
            case _:
                return []

    def _result(self, value: JsonObject, at: datetime) -> list[Record]:
        usage = _usage(value)
        good = flag(value, "is_error") is False and string(value, "subtype") == "success"
        fact = _stop_failure(value) if good else self._result_failure(value, at)
        cost = number(value, "total_cost_usd")
        ended = TurnEnded(
            failure=fact,
            text=string(value, "result") if good else None,
            data=value.get("structured_output"),
            has_data="structured_output" in value,
            usage=usage,
            cost=None if cost is None else Cost(reported_usd=cost),
            model=_answering_model(usage),
        )
        return [ended] if usage is None else [UsageReported(usage=usage), ended]

    def _result_failure(self, value: JsonObject, at: datetime) -> Failure:
        match string(value, "subtype"):
            case "error_max_turns":
                return failure("answer.max_turns")
            case "error_max_budget_usd":
                return failure("limit.credits", "The CLI's own budget for the run is used up.")
            case "error_max_structured_output_retries":
                return failure(
                    "answer.schema", "The model did not fit its answer to the schema in 5 attempts."
                )
            case "error_during_execution" if count(value, "num_turns") == 0:
                return failure("process.exit", "The CLI failed before its first turn.")
            case "error_during_execution":
                return failure("protocol.truncated", "The CLI was interrupted in its turn.")
            case _:
                pass
        if string(value, "stop_reason") == "refusal":
            return failure("model.refused")
        if string(value, "terminal_reason") == "prompt_too_long":
            return failure("model.context", status=count(value, "api_error_status"))
        kind = string(value, "api_error") or self._error or ""
        text = string(value, "result") or ""
        return _api_failure(kind, count(value, "api_error_status"), text, self._window, at)


def _loaded(init: JsonObject) -> tuple[str, ...]:
    """What the init event lists beside the tools."""
    servers = (f"mcp server {string(each, 'name')}" for each in objects(init, "mcp_servers"))
    plugins = (f"plugin {string(each, 'name')}" for each in objects(init, "plugins"))
    return (*servers, *plugins)


def _schema_argument(request: Request[Any]) -> str:
    argument = json.dumps(draft_07_schema(json_schema(request)), ensure_ascii=False)
    if len(argument.encode()) > _ARGUMENT_LIMIT:
        raise _too_large("schema", len(argument.encode()), _ARGUMENT_LIMIT)
    return argument


def _state(environ: Mapping[str, str]) -> str:
    return environ.get("CLAUDE_CONFIG_DIR") or f"{environ.get('HOME', '')}/.claude"


def _input(request: Request[Any]) -> bytes:
    """Standard input: the prompt as it is, or one message with the pictures before it.

    A command is looked for in the last block of text, hence the newline in both forms.
    """
    prompt = ("\n" if request.prompt.startswith("/") else "") + request.prompt
    if len(prompt.encode()) > _STDIN_LIMIT:
        raise _too_large("prompt", len(prompt.encode()), _STDIN_LIMIT)
    if not request.images:
        return prompt.encode()
    blocks: list[JsonObject] = [_image(image) for image in request.images]
    message = {"role": "user", "content": [*blocks, {"type": "text", "text": prompt}]}
    return json.dumps({"type": "user", "message": message}).encode() + b"\n"


def _image(image: Image) -> JsonObject:
    data = base64.b64encode(image.data).decode()
    source = {"type": "base64", "media_type": image.media_type, "data": data}
    return {"type": "image", "source": source}


def _project_folders(work: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the CLI makes for every working directory, even when it stores no session."""
    folder = f"{_state(environ)}/projects/{re.sub('[^a-zA-Z0-9]', '-', work)}"
    return (folder, f"{folder}/memory")


def _tool_started(block: JsonObject, parent: str | None) -> ToolStarted:
    return ToolStarted(
        id=string(block, "id") or "",
        name=string(block, "name") or "",
        input=block.get("input"),
        parent=parent,
    )


def _rate_limit(info: JsonObject) -> RateLimit:
    return RateLimit(
        status=string(info, "status") or "unknown",
        window=string(info, "rateLimitType"),
        used=number(info, "utilization"),
        resets_at=_time(number(info, "resetsAt")),
    )


def _time(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _usage(result: JsonObject) -> Usage | None:
    """`usage` of a result, whose parts are disjoint already.

    2.1.332 tells thinking tokens, which are part of output_tokens; 2.1.197 does not.
    """
    raw = obj(result, "usage")
    if not raw:
        return None
    output = count(raw, "output_tokens")
    reasoning = count(obj(raw, "output_tokens_details"), "thinking_tokens")
    if output is not None and reasoning is not None:
        output = max(0, output - reasoning)
    return Usage(
        input=count(raw, "input_tokens"),
        cache_read=count(raw, "cache_read_input_tokens"),
        cache_write=count(raw, "cache_creation_input_tokens"),
        output=output,
        reasoning=reasoning,
        by_model={
            name: Usage(
                input=count(each, "inputTokens"),
                cache_read=count(each, "cacheReadInputTokens"),
                cache_write=count(each, "cacheCreationInputTokens"),
                output=count(each, "outputTokens"),
            )
            for name in obj(result, "modelUsage")
            if (each := obj(obj(result, "modelUsage"), name))
        },
    )


def _answering_model(usage: Usage | None) -> str | None:
    names = list(usage.by_model) if usage is not None else []
    return names[0] if len(names) == 1 else None


def _stop_failure(result: JsonObject) -> Failure | None:
    """Whether a `success` is one, by its stop reason."""
    if count(result, "num_turns") == 0:  # a command, answered without the model
        return failure("protocol.empty", "The CLI answered by itself, without the model.")
    match string(result, "stop_reason"):
        case "end_turn" | "stop_sequence":
            return None
        case "tool_use" if "structured_output" in result:
            return None
        case "max_tokens" | "model_context_window_exceeded":
            return failure("answer.max_tokens")
        case "refusal":
            return failure("model.refused")
        case _:  # 2.1.197 gives null when the stream was cut after a whole block of text
            return failure("protocol.truncated")


def _api_failure(
    kind: str, status: int | None, text: str, window: RateLimit | None, at: datetime
) -> Failure:
    """The class of an API error.

    Args:
        kind: `assistant.error` of the stream, `error` of a retry, or 2.1.332's `api_error`.
        status: HTTP status, which both versions leave out for some.
        text: the CLI's sentence; never the model's.
        window: the usage window that was reported last.
        at: when it came, for texts that tell a time.
    """
    if window is not None and window.status == "rejected" and status == 429:
        return failure("limit.usage", status=status, resets_at=window.resets_at)
    match kind, status:
        case "usage_limit_reached", _:
            return failure("limit.usage", status=status, resets_at=read_reset(text, at))
        case "authentication_failed" | "oauth_org_not_allowed", None:
            return failure("auth.required")
        case "authentication_failed" | "oauth_org_not_allowed", _:
            return failure("auth.expired", status=status)
        case "cloud_credential_error", _:
            return failure("auth.required", status=status)
        case "billing_error", _:
            return failure("limit.credits", status=status)
        case "model_not_found", _:
            return failure("model.unavailable", status=status)
        case "max_output_tokens", _:
            return failure("answer.max_tokens", status=status)
        case "connection_failed", _:
            return failure("network", status=status)
        case "overloaded" | "overloaded_error", _:
            return failure("provider.overloaded", status=status)
        case _:
            return _by_status(status, text, at) or _by_text(kind, text, at)


def _by_status(status: int | None, text: str, at: datetime) -> Failure | None:
    match status:
        case None:
            return None
        case 401 | 403:
            return failure("auth.expired", status=status)
        case 404:
            return failure("model.unavailable", status=status)
        case 413:
            return failure("request.too_large", status=status)
        case 429:
            return _limited(text, at, status) or failure("limit.rate", status=status)
        case 529:
            return failure("provider.overloaded", status=status)
        case _ if status >= 500:
            return failure("provider.error", status=status)
        case _:
            credit = "redit balance" in text
            return failure("limit.credits" if credit else "model.error", status=status)


def _limited(text: str, at: datetime, status: int | None) -> Failure | None:
    """A limit by the CLI's sentence, whose words change with the releases."""
    found = read_limit(text, at)
    if found is None:
        return None
    return failure(
        found.code, status=status, resets_at=found.resets_at, retry_after=found.retry_after
    )


def _by_text(kind: str, text: str, at: datetime) -> Failure:
    """The sentences that come without a status, as the captures have them."""
    phrases: tuple[tuple[str, Code], ...] = (
        (r"^Not logged in|Could not load .*credentials", "auth.required"),
        (r"output token maximum", "answer.max_tokens"),
        (r"Repeated 529|Overloaded", "provider.overloaded"),
        (r"Unable to connect|Can't reach|Connection|timed out|Stream ended", "network"),
        (r"empty or malformed response|Failed to parse JSON", "network"),
    )
    limited = _limited(text, at, None)
    if limited is not None:
        return limited
    for pattern, code in phrases:
        if re.search(pattern, text):
            return failure(code)
    return failure("model.error" if kind in ("invalid_request", "unknown") else "provider.error")


def _too_large(what: str, size: int, limit: int) -> Exception:
    return as_error(
        failure(
            "request.too_large", f"The {what} has {size} bytes, and claude takes at most {limit}."
        )
    )


ADAPTER = Claude()
