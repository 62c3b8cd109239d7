"""Grok Build (`grok`), answer mode.

Facts are from recorded runs of 1.0.41 against a model server on loopback; what rests on its own manual
alone is marked so. Unless a session is to last, a run has a state folder and a home of its own: only
there are the user's memory files, rules, skills, hooks and MCP servers out of reach. The login need not
move for that, because `GROK_AUTH_PATH` names it; the CLI keeps its lock beside that file, and no
refresh races with another run. A login that needs settings from the user's config.toml to be refreshed
(a program of a company that hands out tokens, by the manual) works until it runs out.

Not to be prevented: one short model request a run for a title of the session, which no count of tokens
includes, and a picture of less than 512 pixels or one that cannot be read is left out of the request,
with a note to the model.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid5

from supervisor.model.adapter import Adapter, Capabilities, Wanted
from supervisor.model.completion import Billing, Cost, Usage
from supervisor.model.errors import Failure, as_error, failure
from supervisor.model.events import (
    Notice,
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
from supervisor.model.launch import Launch, PrivateFile
from supervisor.protocol.decode import count, number, obj, objects, string, strings
from supervisor.protocol.limit_text import read_limit
from supervisor.protocol.schema import json_schema
from supervisor.protocol.strict_schema import strict_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from supervisor.model.adapter import JsonObject, Surroundings
    from supervisor.model.completion import Exit
    from supervisor.model.errors import Code, SupervisorError
    from supervisor.model.request import Request

_ARGUMENT_LIMIT = 131_071  # Linux refuses a longer single argument with E2BIG
_KEYS = ("XAI_API_KEY", "GROK_CODE_XAI_API_KEY")
_SESSIONS = UUID("8d2f3d63-3c53-5f0e-9d6a-2f0c5b1c7e44")
_LONG_AGO = datetime.fromtimestamp(0, UTC)
_EMPTY_FOLDERS = "/tmp/sessions"  # one for each session, wherever TMPDIR and HOME lead

# An empty --tools is ignored, and a list of one tool leaves two more. The shell and the tools of
# sub-agents have other names here than in the events. `update_goal` comes with GROK_WORKFLOWS=0.
_NO_TOOLS = (
    *("run_terminal_cmd", "kill_task", "get_task_output", "task", "Agent", "read_file", "write"),
    *("search_replace", "list_dir", "grep", "todo_write", "monitor", "search_tool", "use_tool"),
    *("scheduler_create", "scheduler_delete", "scheduler_list", "workflow", "update_goal"),
    *("enter_plan_mode", "exit_plan_mode", "ask_user_question", "send_feedback", "web_search"),
    *("web_fetch", "image_gen", "image_edit", "image_to_video", "reference_to_video"),
)

_ENVIRONMENT = {
    # Both are needed for a failed request to fail at once. By default it is repeated for 22 minutes
    # without a word, and when that succeeds after a cut in mid-answer, the text of the failed attempt
    # stands before the good one with nothing between them.
    "GROK_MAX_RETRIES": "0",
    "GROK_TURN_TRANSIENT_RETRY": "0",
    "GROK_TURN_SUMMARY": "0",  # one more model request a run, with the whole context in it
    "GROK_BACKEND_SEARCH": "0",  # search tools of the server's own
    "GROK_SUBAGENTS": "0",
    "GROK_WORKFLOWS": "0",
    "GROK_MEMORY": "0",
    "GROK_TELEMETRY_ENABLED": "0",  # 26 requests, and five seconds at the end of a run
    "GROK_DISABLE_AUTOUPDATER": "1",
    # What it reads of other CLIs below HOME: memory files, rules, skills, MCP servers and hooks.
    **{
        f"GROK_{vendor}_{kind}_ENABLED": "0"
        for vendor in ("CLAUDE", "CURSOR")
        for kind in ("AGENTS", "RULES", "SKILLS", "MCPS", "HOOKS")
    },
}

# A command is looked for at the head of the first word, blanks before it or not.
_COMMAND = re.compile(r"\W*/")
# The CLI takes `@`, blanks, and all up to the next blank for the path of a file and puts that file into
# the request. It needs no blank before the `@`: any character will do that is no letter or digit.
_BLANKS = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD = re.compile(f"[^{_BLANKS}]+")
_AT = re.compile("(?<![0-9A-Za-z_])@")
_ELSEWHERE = "Answer the message that stands between <user_message> tags in your instructions."

# The first two also from ~/.agents. None of them can be switched off.
_LOADED = ("skills", "commands", "rules", "hooks", "plugins", "MCP servers")

_STOPS: Mapping[str, Code] = {
    "max_tokens": "answer.max_tokens",
    "max_turn_requests": "answer.max_turns",
    "refusal": "model.refused",
}
_STATUSES: Mapping[int, Code] = {
    401: "auth.expired",
    402: "limit.credits",
    403: "auth.expired",
    404: "model.unavailable",
    413: "request.too_large",
    429: "limit.rate",
    529: "provider.overloaded",
}
_LIMITED = (None, 402, 403, 429)
"""The statuses that limits come with; a 429 is told without its status."""

_CAUSES: tuple[tuple[str, Code, str | None], ...] = (
    (r"^Not signed in", "auth.required", None),
    (r"^Unauthorized \(401\)|Incorrect API key", "auth.expired", None),
    (r"^Couldn't set model", "model.unavailable", None),
    (r"unknown effort level", "request.unsupported", "The model does not have that effort."),
    (r"maximum prompt length", "model.context", None),
    (r"^degenerate summary", "model.context", None),
    (r"^response truncated by max_tokens", "answer.max_tokens", None),
    # Told as a status 500 that no server sent: the stream ended early, or was none.
    (r"No ResponseCompleted or ResponseIncomplete", "network", None),
    (r"^reqwest error|error sending request|^The model stopped responding", "network", None),
    (
        r"^empty response from model",
        "protocol.empty",
        "The model gave no visible answer; a refusal looks the same.",
    ),
    (r"^serialization error", "provider.error", None),
    (r"No space left on device", "disk.full", None),
    (r"^Couldn't create session", "config.invalid", "The CLI cannot write its state folder."),
    (r"is already in use", "request.invalid", "The CLI has another session with that id."),
    (r"^--json-schema", "request.unsupported", "The CLI refuses the schema."),
    (r"\(os error 6\)", "cli.needs_terminal", None),
)


class Grok(Adapter):
    """The adapter for `grok`."""

    kind = "grok"
    program = "grok"
    tested_versions = ("1.0.41",)
    capabilities = Capabilities(
        access=("none",),  # with a shell it runs commands unasked
        efforts=("low", "medium", "high", "xhigh"),
        images=("image/png", "image/jpeg", "image/gif", "image/webp"),
        max_turns=True,
        strict=True,
        sessions=True,
    )
    variables = ("GROK_HOME",)
    state_variable = "GROK_HOME"

    def natives(self, program: str, machine: str) -> tuple[str, ...]:
        """The npm package's launcher unpacks the binary into the state folder, which may be new."""
        folder, found, _ = program.rpartition("/@xai-official/grok/bin/")
        return (f"{folder}{found}grok-native",) if found else ()

    def looks_for(self, request: Request[Any], environ: Mapping[str, str]) -> tuple[Wanted, ...]:
        """See `Adapter.looks_for`: whether there is a login, and what a lasting session loads."""
        state = _state(environ)
        login = Wanted(folder=state, name="auth.json", deep=False)
        if not _lasts(request):
            return (login,)
        settings = Wanted(folder=state, name="config.toml", read=True, deep=False)
        memory = ("AGENTS.md", "CLAUDE.md")
        return (login, settings, *(Wanted(folder=state, name=name, deep=False) for name in memory))

    def login_files(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.login_files`."""
        return (f"{_state(environ)}/auth.json",)

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """See `Adapter.plan`. The prompt goes by a private file, except where `_question` says so."""
        _check_payer(request, surroundings)
        places, environ = surroundings.places, surroundings.environ
        session = request.resume or str(uuid5(_SESSIONS, places.run_id))
        if not re.fullmatch("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", session):
            # Anything else is taken for the title of a session.
            message = "The session to resume is no session id of grok."
            raise as_error(failure("request.invalid", message, hint="Give Completion.session_id."))
        arguments = [
            *("--output-format", "streaming-json", "--disable-web-search"),
            *("--disallowed-tools", ",".join(_NO_TOOLS)),
            *("--session-id" if request.resume is None else "--resume", session),
        ]
        if request.max_turns is not None:
            arguments += ["--max-turns", str(request.max_turns)]
        if request.model is not None:
            arguments += ["--model", request.model]
        if request.effort is not None:
            arguments += ["--reasoning-effort", request.effort]
        if request.schema is not None:
            schema = json.dumps(strict_schema(json_schema(request)), ensure_ascii=False)
            arguments += ["--json-schema", _argument(schema, "schema")]
        question, told, files = _question(request, places.files)
        environment = {**_ENVIRONMENT, "GROK_HOME": places.state, "HOME": places.state}
        (environment["GROK_AUTH_PATH"],) = self.login_files(environ)
        if request.billing == "subscription":  # else auth.json may hold a key as well
            environment["GROK_DISABLE_API_KEY_AUTH"] = "1"
        elif request.billing == "api_key":  # a login that can be read outranks the key
            environment["GROK_AUTH_PATH"] = f"{places.state}/auth.json"
        loaded: tuple[str, ...] = ()
        if _lasts(request):
            environment["GROK_HOME"] = _state(environ)
            del environment["HOME"]
            named = (file.path for file in surroundings.found if file.path.endswith(".md"))
            loaded = (*named, *_LOADED)
        return Launch(
            arguments=(*arguments, *question, *told),
            environment=environment,
            files=files,
            optional_as_null=request.schema is not None,
            secrets=tuple(
                range(len(arguments) + len(question), len((*arguments, *question, *told)))
            ),
            tidy=(_EMPTY_FOLDERS, f"{_EMPTY_FOLDERS}/{session}"),
            model=request.model,
            effort=request.effort,
            effort_source=None if request.effort is None else "request",
            loaded=loaded,
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> GrokDecoder:
        """See `Adapter.decoder`."""
        session = request.resume or str(uuid5(_SESSIONS, surroundings.places.run_id))
        return GrokDecoder(session=session, billing=_billing(request, surroundings))

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """See `Adapter.diagnose`. Errors before a session are on stderr alone, behind "Error: "."""
        if exit.code == 2 and re.search("^error: ", stderr, re.M):
            return failure("cli.bad_flag")
        if "not found locally" in stderr:  # then it asks the vendor, which takes 18 s offline
            return failure("request.invalid", "The CLI has no session with that id.")
        said = re.search("^Error: (?:Error: )?(.+)", stderr, re.M | re.S)
        fact = _cause(said[1], _LONG_AGO) if said else None
        return replace(fact, resets_at=None) if fact else None  # most are told from now on


class GrokDecoder:
    """Reads `--output-format streaming-json`.

    The text is put together from its pieces up to the count of tokens that ends each response of the
    model. Repeated requests, which the environment of a plan forbids, would leave no mark in it.
    """

    def __init__(self, *, session: str, billing: Billing) -> None:
        self._session = session
        self._billing = billing
        self._started = False
        self._pieces: list[str] = []
        self._text = ""
        self._asked = False
        self._turns_used_up = False
        self._denied = False

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        match string(value, "type"):
            case "available_commands":
                return self._commands(value)
            case "thought":
                return [Reasoning(text=string(value, "data") or "")]
            case "text":
                text = string(value, "data") or ""
                self._pieces.append(text)
                return [TextDelta(text=text)]
            case "usage":
                return self._response()
            case "tool_call":
                return [_tool_started(value)]
            case "tool_call_update":
                return self._tool_update(value)
            case "plan":
                return []
            case "max_turns_reached":
                self._turns_used_up = True
                return []
            case "end":
                return _ended(value, self._stop_failure(value), "".join(self._pieces) or self._text)
            case "error":
                said = string(value, "message") or ""
                return _ended(value, _cause(said, at) or _unknown(), None)
            case str(name) if name.startswith("auto_compact"):
                return [Notice(code="warning", message="The CLI shortens the conversation.")]
            case name:
                return [Unrecognized(type=name, size=size)]

    def billing(self) -> Billing:
        return self._billing

    def _commands(self, value: JsonObject) -> list[Record]:
        """It comes anew with each model request; the first one marks the start."""
        if self._started:
            return []
        self._started = True
        return [Started(session_id=self._session, tools=strings(value, "tools"))]

    def _response(self) -> list[Record]:
        """The count of tokens at the end of one response of the model."""
        self._asked = True
        text, self._pieces = "".join(self._pieces), []
        self._text = text or self._text
        return [Text(text=text)] if text else []

    def _tool_update(self, value: JsonObject) -> list[Record]:
        status = string(value, "status")
        if status not in ("completed", "failed"):
            return []
        blocks = objects(value, "content")
        output = "".join(string(obj(block, "content"), "text") or "" for block in blocks)
        good = status == "completed" and not count(obj(value, "rawOutput"), "exit_code")
        self._denied = self._denied or (status == "failed" and output.startswith("User cancelled"))
        return [ToolFinished(id=string(value, "toolCallId") or "", ok=good, output=output)]

    def _stop_failure(self, end: JsonObject) -> Failure | None:
        """Whether an `end` is a good one. By the manual it tells no spend if no model was asked."""
        if not self._asked and not any(key in end for key in ("usage", "num_turns")):
            return failure("protocol.empty", "The CLI answered by itself, without the model.")
        match string(end, "stopReason"):
            case "end_turn":
                return _misfit(string(end, "structuredOutputError"))
            case "cancelled" if self._turns_used_up:
                return failure("answer.max_turns")
            case "cancelled" if self._denied:
                return failure("policy.denied")
            case reason:
                return failure(_STOPS.get(reason or "", "protocol.truncated"))


def _state(environ: Mapping[str, str]) -> str:
    return environ.get("GROK_HOME") or f"{environ.get('HOME', '')}/.grok"


def _lasts(request: Request[Any]) -> bool:
    """Whether the user's own state folder is needed, because sessions lie in it."""
    return request.keep_session or request.resume is not None


def _keys(environ: Mapping[str, str]) -> list[str]:
    return [name for name in _KEYS if environ.get(name)]


def _check_payer(request: Request[Any], surroundings: Surroundings) -> None:
    keys = _keys(surroundings.environ)
    if request.billing == "subscription":
        if keys or surroundings.environ.get("GROK_DEPLOYMENT_KEY"):
            raise as_error(failure("auth.api_key_in_use"))
        if _lasts(request) and _has_model_key(surroundings):
            message = (
                "The user's config.toml of grok gives a model a key of its own, which would pay."
            )
            raise as_error(failure("auth.api_key_in_use", message))
    elif request.billing == "api_key" and not keys:
        message = 'No XAI_API_KEY reaches the CLI, and billing="api_key" was asked for.'
        hint = "Let the key through with Supervisor(keep=...), or change billing."
        raise as_error(failure("auth.required", message, hint=hint))


def _has_model_key(surroundings: Surroundings) -> bool:
    """Whether the user's settings hold a key, which outranks the login (manual)."""
    for file in surroundings.found:
        if not file.path.endswith("/config.toml"):
            continue
        try:
            settings = tomllib.loads((file.content or b"").decode())
        except (ValueError, RecursionError):  # the CLI cannot read it either
            continue
        models = obj(settings, "model")
        for model in (obj(models, name) for name in models):
            variable = string(model, "env_key")
            if string(model, "api_key") or (variable and surroundings.environ.get(variable)):
                return True
    return False


def _billing(request: Request[Any], surroundings: Surroundings) -> Billing:
    """The CLI never says who pays, so it is what the plan and the order of the credentials leave."""
    keys = _keys(surroundings.environ)
    if request.billing == "api_key":
        return Billing(payer="api_key", evidence=f"{' and '.join(keys)} set, login out of reach")
    if request.billing == "subscription":
        return Billing(
            payer="subscription", evidence="no API key is set, and the login may be none"
        )
    if keys and not any(file.path.endswith("/auth.json") for file in surroundings.found):
        return Billing(payer="api_key", evidence=f"{' and '.join(keys)} set, and no auth.json")
    return Billing(payer="unknown", evidence="auth.json, which may hold a login or a key")


def _question(
    request: Request[Any], folder: str
) -> tuple[list[str], list[str], tuple[PrivateFile, ...]]:
    """The prompt and the system prompt: arguments to show, arguments to hide, and files.

    A prompt that would attach a file goes into the instructions, where no path is looked for. They are
    an argument, and the CLI forgets or keeps them in a session that is gone on with.
    """
    prompt, system, told = request.prompt, request.system, list[str]()
    if _attaches(prompt):
        if _lasts(request):
            raise _unsupported_path("a session cannot last then")
        rules = _framed(prompt)
        # Beside another system prompt, rules are dropped.
        flag = "--rules=" if system is None else f"--system-prompt-override={system}\n\n"
        if len(f"{flag}{rules}".encode()) > _ARGUMENT_LIMIT:
            raise _unsupported_path(
                f"prompt and system prompt have at most {_ARGUMENT_LIMIT} bytes then"
            )
        told.append(f"{flag}{rules}")
        prompt = _ELSEWHERE
    else:
        if system is not None:
            told.append(_argument(f"--system-prompt-override={system}", "system prompt"))
        if _COMMAND.match(prompt) or prompt != prompt.strip():
            prompt = _framed(prompt)
    # Without --verbatim, the end of a longer prompt is left in a file that the model cannot read.
    if not request.images:
        file = PrivateFile(name="prompt.txt", content=prompt.encode())
        return ["--verbatim", "--prompt-file", f"{folder}/prompt.txt"], told, (file,)
    pictures = [
        {
            "type": "image",
            "data": base64.b64encode(image.data).decode(),
            "mimeType": image.media_type,
        }
        for image in request.images
    ]
    blocks = json.dumps([{"type": "text", "text": prompt}, *pictures], ensure_ascii=False)
    told.append(_argument(f"--prompt-json={blocks}", "prompt with its images"))
    return ["--verbatim"], told, ()


def _framed(prompt: str) -> str:
    """Between two lines of ours no command is seen, and no blanks at the ends are taken off."""
    return f"<user_message>\n{prompt}\n</user_message>"


def _attaches(prompt: str) -> bool:
    """Whether the CLI may find the path of a file in a prompt.

    A name without a slash is looked for in the working directory, which is empty.
    """
    follows = False
    for word in _WORD.finditer(prompt) if "@" in prompt else ():
        text = word[0]
        at = _AT.search(text)
        if (follows and "/" in text) or (at is not None and "/" in text[at.end() :]):
            return True
        follows = text.endswith("@")
    return False


def _argument(text: str, what: str) -> str:
    size = len(text.encode())
    if size > _ARGUMENT_LIMIT:
        message = (
            f"The {what} has {size} bytes on grok's command line, which bears {_ARGUMENT_LIMIT}."
        )
        raise as_error(failure("request.too_large", message))
    return text


def _unsupported_path(why: str) -> SupervisorError:
    message = f"grok would read a file that the prompt names with @, and {why}."
    hint = "Take the @ before the path out of the prompt, or choose another provider."
    return as_error(failure("request.unsupported", message, hint=hint))


def _tool_started(value: JsonObject) -> ToolStarted:
    return ToolStarted(
        id=string(value, "toolCallId") or "",
        name=string(value, "toolName") or string(value, "title") or "",
        input=value.get("rawInput"),
    )


def _ended(value: JsonObject, fact: Failure | None, text: str | None) -> list[Record]:
    usage, cost = _usage(value), number(value, "total_cost_usd")
    names = list(usage.by_model) if usage is not None else []
    data = value.get("structuredOutput")
    ended = TurnEnded(
        failure=fact,
        text=text if fact is None else None,
        data=data,
        has_data=data is not None,  # it is null where the answer missed the schema
        usage=usage,
        cost=None if cost is None else Cost(reported_usd=cost),
        model=names[0] if len(names) == 1 else None,
    )
    return [ended] if usage is None else [UsageReported(usage=usage), ended]


def _misfit(error: str | None) -> Failure | None:
    """What the CLI's own check of the answer said. The turn ends with exit code 0 all the same."""
    if error is None:
        return None
    if error.startswith("invalid output schema"):
        return failure("request.unsupported", "The CLI refuses the schema.")
    fits_not = error.startswith("output does not match")
    return failure("answer.schema" if fits_not else "answer.not_json")


def _usage(value: JsonObject) -> Usage | None:
    """`usage`, whose input is without the cache's part and whose output is with the reasoning."""
    raw = obj(value, "usage")
    if not raw:
        return None
    output, reasoning = count(raw, "output_tokens"), count(raw, "reasoning_tokens")
    if output is not None and reasoning is not None:
        output = max(0, output - reasoning)
    models = obj(value, "modelUsage")
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
            for name in models
            if (each := obj(models, name))
        },
    )


def _cause(message: str, at: datetime) -> Failure | None:
    """The class of an error message of the CLI, None if it is not known."""
    said, status = _unwrapped(message)
    for pattern, code, sentence in _CAUSES:
        if re.search(pattern, said):
            return failure(code, sentence, status=None if code == "network" else status)
    limit = read_limit(said, at) if status in _LIMITED else None
    if limit is not None:
        waits, ends = limit.retry_after, limit.resets_at
        return failure(limit.code, status=status, retry_after=waits, resets_at=ends)
    if status is None:
        return None
    other: Code = "provider.error" if status >= 500 else "model.error"
    return failure(_STATUSES.get(status, other), status=status)


def _unwrapped(message: str) -> tuple[str, int | None]:
    """An error's sentence and HTTP status. Most come as JSON behind "Internal error: "."""
    said = message.removeprefix("Internal error: ")
    try:
        inner: Any = json.loads(said) if said != message else said
    except (ValueError, RecursionError):
        inner = said
    if not isinstance(inner, dict):
        said = str(inner)
        return said, 401 if said.startswith("Unauthorized (401)") else None
    error = cast("JsonObject", inner)
    said = re.sub(r"^(API error \(status [^)]*\): )+", "", string(error, "message") or "")
    return said, count(error, "http_status")


def _unknown() -> Failure:
    return failure("provider.error", "The CLI reported an error that is not known here.")


ADAPTER = Grok()
