"""Gemini CLI (`gemini`), headless, with an API key and a private home for each run.

Facts are from recorded runs of 0.61.0, and from its bundle where a comment says so.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supervisor.model.adapter import Adapter, Capabilities
from supervisor.model.completion import Billing, Usage
from supervisor.model.errors import Failure, as_error, failure
from supervisor.model.events import (
    Notice,
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
from supervisor.model.launch import Launch, PrivateFile
from supervisor.protocol.decode import count, obj, read_objects, string
from supervisor.protocol.limit_text import read_limit, read_retry_after
from supervisor.protocol.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from supervisor.model.adapter import JsonObject, Surroundings
    from supervisor.model.completion import Exit
    from supervisor.model.errors import Code
    from supervisor.model.launch import Places
    from supervisor.model.request import Request

_STDIN_LIMIT = 8 * 1024 * 1024  # more is cut, and then answered with nothing at all
_IMAGE_LIMIT = 20 * 1024 * 1024  # a larger picture is left out without a word
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_DEFAULT_MODEL = "pro"
"""Asked for when the request names none. What the CLI takes by itself, "auto", passes over the setting
for retries: after three failures it goes on with another model, ten times, minutes without a word."""

_READERS = ("read_file", "list_directory", "glob", "grep_search")
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}

_AT = re.compile(r"""(?<!\\)@((?:"[^"]*"|\\.|[^ \t\n\r,;!?()\[\]{}.]|\.(?![ \t\n\r]|\Z))+)""")
"""What the CLI takes for the path of a file that is to be attached, as its bundle has it."""

_TEMPLATE = re.compile(r"\$\{(?:AgentSkills|SubAgents|AvailableTools|[\w-]+_ToolName)\}")
"""What the CLI replaces in a system prompt."""

_ENVIRONMENT = {
    # The CLI starts itself once more otherwise, and the outer process swallows signals.
    "GEMINI_CLI_NO_RELAUNCH": "true",
    # It does not run in a folder that it was not told to trust; this one is private and ours.
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "NO_BROWSER": "true",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
}

_SCHEMA_PROMPT = (
    "Answer with one JSON value and nothing else: no words before or after it, no code fence."
    " It must fit this JSON Schema:\n"
)


class Gemini(Adapter):
    """The adapter for `gemini`."""

    kind = "gemini"
    program = "gemini"
    tested_versions = ("0.61.0",)
    capabilities = Capabilities(
        access=("none", "read"),
        billing=("api_key", "any"),
        images=("image/png", "image/jpeg", "image/gif", "image/webp"),
        system=True,
        max_turns=True,
        mcp=True,
        strict=True,
    )

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """See `Adapter.plan`. The prompt goes by stdin: as an argument it may be a flag or too long."""
        places = surroundings.places
        environment = {
            **_ENVIRONMENT,
            **_key_variables(surroundings.environ),
            "GEMINI_CLI_HOME": places.state,
        }
        arguments = [
            *("-o", "stream-json", "--approval-mode", "plan", "-e", "none"),
            *(() if request.mcp_config else ("--allowed-mcp-server-names", "none")),
        ]
        arguments += ["-m", request.model or _DEFAULT_MODEL]
        if request.workspace is not None:
            # A workspace as working directory would bring its settings, hooks, servers and .env.
            arguments += ["--include-directories", _folder(request.workspace)]
        files = [*_files(request)]
        if request.system is not None:
            if _TEMPLATE.search(request.system):
                raise _unsupported(
                    "The system text holds a ${...} that gemini would replace.",
                    "Write that word without the dollar sign.",
                )
            files.append(PrivateFile(name="system.md", content=request.system.encode()))
            environment["GEMINI_SYSTEM_MD"] = f"{places.files}/system.md"
        return Launch(
            arguments=tuple(arguments),
            stdin=_stdin(request, places),
            environment=environment,
            files=tuple(files),
            model=request.model,
            # No setting keeps the memory files out of a folder that the model may read.
            loaded=("GEMINI.md of the workspace",) if request.workspace is not None else (),
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> GeminiDecoder:
        """See `Adapter.decoder`."""
        return GeminiDecoder(
            structured=request.schema is not None, key=_key(surroundings.environ) or _KEYS[0]
        )

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """See `Adapter.diagnose`. Start-up errors are plain text on stderr and nothing on stdout.

        An error of the API comes here too when the event stream does not say which one it was.
        """
        code = exit.code or 0
        if code in _EXITS:
            return failure(*_EXITS[code])
        for pattern, kind, message in _STDERR:
            if re.search(pattern, stderr, re.M):
                return failure(kind, message)
        told = re.findall(r"\bstatus: ([45]\d\d)\b", stderr)
        # The exit code is the HTTP status modulo 256, where that is no status of the CLI's own.
        status = 256 + code if code >= 144 else int(told[-1]) if told and code else 0
        if not status:
            return _by_words(stderr) if code else None
        if "TerminalQuotaError" in stderr:
            return failure("limit.usage", status=status)
        if status == 429:
            return failure("limit.rate", status=status, retry_after=read_retry_after(stderr))
        return _by_status(status, stderr)


_STDERR: tuple[tuple[str, Code, str | None], ...] = (
    (r"^(Unknown argument|Not enough arguments|Invalid values:)", "cli.bad_flag", None),
    (r"^Cannot use both ", "cli.bad_flag", None),
    (r"stdin input truncated", "request.too_large", None),
    (
        r"is not allowed in NODE_OPTIONS",
        "cli.not_runnable",
        "Node refuses what the variable NODE_OPTIONS holds.",
    ),
)
"""What the CLI says when it does not start; text of its own, never of a server."""

_EXITS: Mapping[int, tuple[Code, str | None]] = {
    41: ("auth.required", "The CLI has no API key that it may use."),
    42: ("request.invalid", "The CLI refused its input."),
    44: ("config.invalid", "The CLI was told to use a sandbox that is not there."),
    52: ("config.invalid", "The CLI refused its settings."),
    53: ("answer.max_turns", None),
    55: ("config.invalid", "The CLI does not trust the folder that it was started in."),
    130: ("protocol.truncated", "The CLI was interrupted in its turn."),
}

_ERROR_TYPES: Mapping[str, tuple[Code, str | None]] = {
    "FatalTurnLimitedError": _EXITS[53],
    "FatalAuthenticationError": _EXITS[41],
    "FatalInputError": _EXITS[42],
    "FatalSandboxError": _EXITS[44],
    "FatalConfigError": _EXITS[52],
    "FatalCancellationError": _EXITS[130],
    "no_space_left": ("disk.full", "The CLI found no room left on the disk."),
}

_STOPS: tuple[tuple[str, Code, str | None], ...] = (
    (r"^Loop detected", "protocol.truncated", "The CLI stopped: the model repeated itself."),
    (r"session turns exceeded", "answer.max_turns", None),
    (r"exceeded the token limit", "answer.max_tokens", None),
    (r"response was blocked due to", "model.refused", None),
    (r"^The model returned an empty response", "protocol.empty", None),
    (r"^The model returned reasoning thoughts", "protocol.empty", None),
    (r"malformed function call", "provider.error", "The model sent a tool call with no meaning."),
)
"""Sentences of the CLI in an `error` event; the `result` that follows may say "success"."""

_WORDS: tuple[tuple[str, Code, int | None], ...] = (
    (r"ModelNotFoundError|\bmodels/\S+ is not found", "model.unavailable", 404),
    (r"fetch failed|\bterminated\b|Incomplete JSON segment|ECONN|ENOTFOUND", "network", None),
    (r"is not valid JSON|Unexpected token", "provider.error", None),
)
"""Errors for which the exit code is 1: those of the network, and a 404."""


class GeminiDecoder:
    """Reads `-o stream-json`."""

    def __init__(self, *, structured: bool, key: str) -> None:
        self._structured = structured
        self._key = key
        self._started: Started | None = None
        self._pieces: list[str] = []
        self._stopped: Failure | None = None

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        match string(value, "type"), string(value, "role"):
            case "init", _:
                self._started = self._init(value)
                return [self._started]
            case "message", "assistant":
                text = string(value, "content") or ""
                self._pieces.append(text)
                return [TextDelta(text=text)]
            case "message", "user":  # the prompt
                return []
            case "tool_use", _:
                name = string(value, "tool_name") or ""
                call = ToolStarted(id=_call(value), name=name, input=value.get("parameters"))
                return [*self._whole_text(), call]
            case "tool_result", _:
                ok = {"success": True, "error": False}.get(string(value, "status") or "")
                return [ToolFinished(id=_call(value), ok=ok, output=string(value, "output"))]
            case "error", _:
                return [self._error(value)]
            case "result", _:
                return self._result(value, at)
            case name, _:
                return [Unrecognized(type=name, size=size)]

    def billing(self) -> Billing:
        if self._started is None:
            return Billing(payer="unknown", evidence="no init event")
        return Billing(payer="api_key", evidence=self._started.evidence or "")

    def _init(self, value: JsonObject) -> Started:
        model = string(value, "model")
        return Started(
            session_id=string(value, "session_id"),
            model=None if model == "auto" else model,  # no model is called so
            credential="api_key",
            evidence=f"{self._key}, since the private settings select a key",
        )

    def _whole_text(self) -> list[Record]:
        text, self._pieces = "".join(self._pieces), []
        return [Text(text=text)] if text else []

    def _error(self, value: JsonObject) -> Notice:
        said = string(value, "message") or ""
        for pattern, code, message in _STOPS:
            if re.search(pattern, said):
                self._stopped = failure(code, message)
                return Notice(code="warning", message=self._stopped.message)
        if string(value, "severity") == "warning":
            return Notice(code="warning", message="The CLI reported a warning.")
        self._stopped = failure("protocol.truncated")
        return Notice(code="warning", message="The CLI reported an error in the model's answer.")

    def _result(self, value: JsonObject, at: datetime) -> list[Record]:
        usage = _usage(obj(value, "stats"))
        told: list[Record] = [] if usage is None else [UsageReported(usage=usage)]
        if string(value, "status") != "success" or self._stopped is not None:
            fact = self._failure(value, at)
            if fact is None:  # the exit code knows the status: see `Gemini.diagnose`
                message = "The CLI reported an error of the API without its status."
                return [*told, Notice(code="warning", message=message)]
            return [*told, TurnEnded(failure=fact, usage=usage, model=self._model(usage))]
        text = "".join(self._pieces)
        fact = None
        if usage is None or not usage.by_model or not text.strip():
            # An answer of nothing, and one without a model, are a success to the CLI.
            fact = failure("protocol.empty")
        ended = TurnEnded(
            failure=fact,
            text=_unfenced(text) if self._structured else text,
            usage=usage,
            model=self._model(usage),
        )
        return [*self._whole_text(), *told, ended]

    def _failure(self, value: JsonObject, at: datetime) -> Failure | None:
        error = obj(value, "error")
        if not error:
            return self._stopped or failure("protocol.truncated")
        named = _ERROR_TYPES.get(string(error, "type") or "")
        if named is not None:
            return failure(*named)
        return _api_failure(string(error, "message") or "", at)

    def _model(self, usage: Usage | None) -> str | None:
        """The one that answered. Others may have served the CLI itself, e.g. to choose a model."""
        names = list(usage.by_model) if usage is not None else []
        asked = self._started.model if self._started is not None else None
        return names[0] if len(names) == 1 else asked


def _key(environ: Mapping[str, str]) -> str | None:
    return next((name for name in _KEYS if environ.get(name)), None)


def _key_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """One key under the one name that the CLI takes it from.

    It says that GOOGLE_API_KEY wins where both are set, and sends GEMINI_API_KEY.
    """
    key = _key(environ)
    if key is None:
        raise as_error(
            failure(
                "auth.required",
                "gemini is driven with an API key, and none reaches it.",
                hint='Set GEMINI_API_KEY and name it: Supervisor(keep={"gemini": ["GEMINI_API_KEY"]}).',
            )
        )
    # An empty variable is not filled from a file, an absent one may be.
    return {**dict.fromkeys(_KEYS, ""), key: environ[key], "GEMINI_API_KEY": environ[key]}


def _folder(workspace: str) -> str:
    if "," in workspace or workspace != workspace.strip():
        raise _unsupported(
            "gemini would take the workspace's path for several.",
            "Give a path without a comma and without a blank at an end.",
        )
    return workspace


def _files(request: Request[Any]) -> list[PrivateFile]:
    images = [
        PrivateFile(name=name, content=image.data, place="work")
        for name, image in zip(_image_names(request), request.images, strict=True)
    ]
    for number, image in enumerate(images):
        if len(image.content) > _IMAGE_LIMIT:
            raise _too_large(f"image {number}", len(image.content), _IMAGE_LIMIT)
    shown = "".join(f"!/{image.name}\n" for image in images)
    files = [
        *images,
        PrivateFile(name=".gemini/settings.json", content=_json(_settings(request)), place="state"),
        # The nearest .gemini/.env is read and no other, even where a setting ignores the .env of
        # folders; without this one it may be anybody's in a folder above, and name another server.
        PrivateFile(name=".gemini/.env", content=b"\n", place="work"),
        # An @path below an included folder would be attached, were it not ignored by this file. It
        # hides nothing from the tools: they match it against paths that lead out of here.
        PrivateFile(name=".geminiignore", content=f"*\n{shown}".encode(), place="work"),
    ]
    if request.mcp_config:
        # Mode plan denies every tool of a server that no rule allows, whatever its settings say.
        rules = "".join(_POLICY.format(name=name) for name in request.mcp_config)
        files.append(
            PrivateFile(name=".gemini/policies/servers.toml", content=rules.encode(), place="state")
        )
    return files


_POLICY = '[[rule]]\ntoolName = "*"\nmcpName = "{name}"\ndecision = "allow"\npriority = 500\n'


def _settings(request: Request[Any]) -> JsonObject:
    reads = request.access != "none"
    settings: JsonObject = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        # A repeated stream is appended to the text of the broken one, with no sign of it and with
        # status "success". One attempt also lets the CLI's error come before our limits: the
        # default of ten takes four minutes.
        "general": {"enableAutoUpdate": False, "maxAttempts": 1},
        "advanced": {"ignoreLocalEnv": True},
        # An allow list of the built-in tools; all of them are gone when it is empty.
        "tools": {"core": list(_READERS) if reads else [], "useRipgrep": False},
        "skills": {"enabled": False},
        "hooksConfig": {"enabled": False},
        "experimental": {"enableAgents": False},  # an agent's @name would be expanded
        # Without marks of a project's root, no GEMINI.md is read in the folders above.
        "context": {"includeDirectoryTree": reads, "memoryBoundaryMarkers": []},
        # A long list was taken for a loop, and the answer cut. Without tools nothing else can loop.
        "model": {"disableLoopDetection": not reads},
    }
    if request.max_turns is not None:
        settings["model"]["maxSessionTurns"] = request.max_turns
    if request.mcp_config:
        settings["mcpServers"] = dict(request.mcp_config)
    return settings


def _image_names(request: Request[Any]) -> list[str]:
    return [
        f"image-{number}.{_ENDINGS[image.media_type]}"
        for number, image in enumerate(request.images, 1)
    ]


def _stdin(request: Request[Any], places: Places) -> bytes:
    """The prompt, unbroken, with lines of ours around it.

    A slash at the head would be looked up among the commands, and those of MCP servers run. Pictures
    are named before the prompt, since the CLI then strips the text at both ends.
    """
    head = "\n" if request.prompt.startswith("/") else ""
    if request.images:
        names = " ".join(f"@{name}" for name in _image_names(request))
        head = f"The pictures that come with this prompt: {names}\n\n"
    text = head + request.prompt
    _check_at_words(request, text, places.work)
    if request.schema is not None:
        schema = _json(json_schema(request)).decode().replace("@", "\\u0040")
        text += f"\n\n{_SCHEMA_PROMPT}{schema}"
    stdin = text.encode()
    if len(stdin) > _STDIN_LIMIT:
        raise _too_large("prompt", len(stdin), _STDIN_LIMIT)
    return stdin


def _check_at_words(request: Request[Any], text: str, work: str) -> None:
    """Refuse a prompt in which a word with @ would be expanded, or the text around it changed.

    What lies in the private working directory is ignored there, so most words stay text.
    """
    end = 0
    for found in _AT.finditer(text):
        word = re.sub(r"\\(.)", r"\1", found[1])
        path = "/" + posixpath.normpath(posixpath.join(work, word)).lstrip("/")
        outside = not path.startswith(f"{work}/")
        server, colon, _ = word.partition(":")
        if (
            path == work
            or (outside and request.workspace is not None)
            or (colon and server in (request.mcp_config or {}))
        ):
            raise _unsupported(
                "The prompt holds a word with @ that gemini would expand.",
                "Write that path or name without the @.",
            )
        # As soon as one word is expanded, here a picture's, the text is put together anew: one
        # blank before each such word, none but that between two of them, and no backslash inside.
        between, end = text[end : found.start()], found.end()
        kept = between == " " or (between.endswith(" ") and not between.isspace())
        if request.images and not (kept and "\\" not in found[0]):
            raise _unsupported(
                "The prompt holds a word with @ whose surroundings gemini would change.",
                "Write it without the @ or with a blank before it, or leave the images out.",
            )


def _unfenced(text: str) -> str:
    """The text in a code fence, where the fence is all that there is."""
    found = re.fullmatch(r"\s*```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```\s*", text, re.S | re.I)
    return text if found is None else found[1]


def _call(value: JsonObject) -> str:
    return string(value, "tool_id") or ""


def _usage(stats: JsonObject) -> Usage | None:
    """The counters of a result; all of them are zero where the CLI counted nothing."""
    if not count(stats, "total_tokens"):
        return None
    models = obj(stats, "models")
    by_model = {name: _counted(each) for name in models if (each := obj(models, name))}
    return replace(_counted(stats), by_model=by_model)


def _counted(part: JsonObject) -> Usage:
    """`input_tokens` holds `cached` and `input`; `output_tokens` is without thoughts, which are told
    by the total alone."""
    total, sent = count(part, "total_tokens"), count(part, "input_tokens")
    output = count(part, "output_tokens")
    reasoning = None
    if total is not None and sent is not None and output is not None:
        reasoning = max(0, total - sent - output)
    return Usage(
        input=count(part, "input"),
        cache_read=count(part, "cached"),
        output=output,
        reasoning=reasoning,
    )


def _api_failure(said: str, at: datetime) -> Failure | None:
    """The class of "[API Error: ...]", which holds a JSON body or a sentence; None if it has no class.

    Args:
        said: the CLI's text, with the server's inside.
        at: when it came.
    """
    inner, _, added = said.removeprefix("[API Error: ").rpartition("]")
    body = read_objects(inner.encode())[0]
    status = None if isinstance(body, Unrecognized) else count(obj(body, "error"), "code")
    limit = read_limit(inner, at)
    if "request a quota increase" in added or status == 429:  # the CLI adds it to a 429 alone
        if limit is None:
            return failure("limit.rate", status=429, retry_after=read_retry_after(inner))
        return failure(
            limit.code, status=429, retry_after=limit.retry_after, resets_at=limit.resets_at
        )
    return _by_words(inner) if status is None else _by_status(status, inner)


def _by_status(status: int, text: str) -> Failure:
    """A status other than 429, with the server's text."""
    match status:
        case 400 if re.search(r"API_KEY_INVALID|API key (not valid|expired)", text):
            return failure("auth.expired", status=status)
        case 400 if re.search(r"token count .{0,40}exceeds", text):
            return failure("model.context", status=status)
        case 401 | 403:
            return failure("auth.expired", status=status)
        case 402:
            return failure("limit.credits", status=status)
        case 404:
            return failure("model.unavailable", status=status)
        case 413:
            return failure("request.too_large", status=status)
        case 503 | 529:
            return failure("provider.overloaded", status=status)
        case _:
            return failure("provider.error" if status >= 500 else "model.error", status=status)


def _by_words(text: str) -> Failure | None:
    found = (failure(c, status=status) for words, c, status in _WORDS if re.search(words, text))
    return next(found, None)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _unsupported(message: str, hint: str) -> Exception:
    return as_error(failure("request.unsupported", message, hint=hint))


def _too_large(what: str, size: int, limit: int) -> Exception:
    return as_error(
        failure(
            "request.too_large", f"The {what} has {size} bytes, and gemini takes at most {limit}."
        )
    )


ADAPTER = Gemini()
