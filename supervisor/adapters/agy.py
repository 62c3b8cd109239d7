"""Google's Antigravity CLI (`agy`), answer mode.

Not verified against a binary: none could be had. Every fact is from public material and is marked with
its kind and version: "release notes" and "documentation" are the vendor's own, "public reports" are of
people who ran the CLI. The fixtures are written by hand from the same facts.

Every run is kept in the CLI's own history, since no flag prevents it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from supervisor.model.adapter import Adapter, Capabilities, Wanted
from supervisor.model.completion import Billing, Usage
from supervisor.model.errors import Failure, as_error, failure
from supervisor.model.events import (
    ErrorReported,
    Notice,
    Reasoning,
    Record,
    Started,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unrecognized,
    UsageReported,
)
from supervisor.model.launch import Launch
from supervisor.protocol.decode import count, obj, objects, read_objects, string, strings
from supervisor.protocol.limit_text import read_limit
from supervisor.protocol.schema import draft_07_schema, json_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from supervisor.model.adapter import JsonObject, Surroundings
    from supervisor.model.completion import Exit
    from supervisor.model.errors import Code
    from supervisor.model.request import Request

_Version = tuple[int, int, int]

# Release notes: 1.1.8 brought structured output, 1.1.9 --disable-slash-commands, and 1.1.15 prompts on
# standard input and text pieces without broken characters. Before 1.1.15 a prompt could only be an
# argument, which everybody on the machine can read.
_OLDEST: _Version = (1, 1, 15)
_NEWEST: _Version = (999, 0, 0)
_PRINTS_UNTIL_DONE: _Version = (1, 2, 6)  # release notes: before it, a run had five minutes
_NO_CONVERSATION = "The CLI has no conversation with that id, and began a new one."
_ARGUMENT_LIMIT = 131_071  # Linux refuses a longer single argument with E2BIG

_ENVIRONMENT = {
    # Public reports, 1.2.11: "true" is heeded and "1" is not; without it the CLI starts an updater in a
    # session of its own.
    "AGY_CLI_DISABLE_AUTO_UPDATE": "true",
    "AGY_CLI_HIDE_ACCOUNT_INFO": "true",  # release notes, 1.0.2
    "AGY_CLI_DISABLE_LATEX": "true",  # release notes, 1.0.4
    "BROWSER": "true",  # a login page that nobody will see need not be opened
}
_KEYS = (
    # Release notes, 1.1.13: works once the settings name the provider "gemini".
    "GEMINI_API_KEY",
    # Public reports, 1.2.x: names in the binary, or of ways to bill a project.
    *("GOOGLE_API_KEY", "GOOGLE_GENAI_API_KEY", "GOOGLE_AI_API_KEY", "ANTIGRAVITY_API_KEY"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "AGY_ADC_AUTH", "GOOGLE_GENAI_USE_VERTEXAI"),
)
_ASKING = ("request-review", "strict")
"""The permission modes in which headless mode denies what it would have to ask for (public reports,
1.2.12); the first is the default."""

# Headless mode takes over everything below ~/.gemini (release notes 1.1.4 and 1.1.25). A custom agent
# without all that could be named, but one in the working directory loads only if the user trusts that
# directory, and the default agent silently takes its place (public reports, 1.2.12).
_LOADED = ("memory files", "rules", "skills", "plugins", "hooks", "MCP servers")


class Agy(Adapter):
    """The adapter for `agy`."""

    kind = "agy"
    program = "agy"
    tested_versions = ()  # nothing was ever run here; see the module
    capabilities = Capabilities(
        access=("none",),
        billing=("subscription", "any"),
        efforts=("low", "medium", "high"),
        system=False,  # no flag
        sessions=True,
    )
    # Where a session bus is, the login lies in the desktop's keyring behind it; else in a file (release
    # notes, 1.1.3). With a keyring and no bus a run waits for a login code (public reports, 1.2.11).
    variables = ("DBUS_SESSION_BUS_ADDRESS",)
    needs_version = True

    def looks_for(self, request: Request[Any], environ: Mapping[str, str]) -> tuple[Wanted, ...]:
        """See `Adapter.looks_for`: the settings say which tools run unasked."""
        if not environ.get("HOME"):
            return ()
        return (Wanted(folder=_state(environ), name="settings.json", read=True, deep=False),)

    def login_files(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.login_files`. Public reports, 1.2.x: used where there is no keyring."""
        return (f"{_state(environ)}/antigravity-oauth-token",) if environ.get("HOME") else ()

    def plan(self, request: Request[Any], surroundings: Surroundings) -> Launch:
        """See `Adapter.plan`.

        The prompt is one JSON line on standard input (documentation). `--print` is left out: it takes
        the next token for the prompt. Standard output is a pipe, from which structured output was read
        since 1.1.8 (public reports); on a terminal the CLI would wait for a login code, where without
        one it fails at once (release notes, 1.1.2).
        """
        version = _version(surroundings.version)
        if version < _OLDEST:
            least = ".".join(map(str, _OLDEST))
            message = (
                f"This version of agy reads no prompt from standard input; {least} is the first."
            )
            hint = "Update the CLI with agy update."
            raise as_error(failure("cli.unsupported_version", message, hint=hint))
        if request.billing == "subscription" and any(surroundings.environ.get(k) for k in _KEYS):
            raise as_error(failure("auth.api_key_in_use"))
        arguments = [
            *("--input-format", "stream-json", "--output-format", "stream-json"),
            # A prompt's "/command", "@path" and "!command" are text then (public reports, 1.2.11). It
            # switches off --mode plan, which is no bar: reads pass it, and writes by some reports.
            "--disable-slash-commands",
            # The CLI's own log holds the account's address, and else stays for good.
            *("--log-file", f"{surroundings.places.temporary}/agy.log"),
        ]
        if version < _PRINTS_UNTIL_DONE:
            arguments += ["--print-timeout", _print_timeout(request.timeouts.total)]
        if request.model is not None:
            arguments += ["--model", request.model]
        if request.effort is not None:
            arguments += ["--effort", request.effort]
        if request.resume is not None:
            arguments += ["--conversation", request.resume]
        if request.schema is not None:
            arguments += ["--json-schema", _schema_argument(request)]
        line = json.dumps(
            {"event": "user", "message": {"content": request.prompt}}, ensure_ascii=False
        )
        return Launch(
            arguments=tuple(arguments),
            stdin=f"{line}\n".encode(),
            environment=_ENVIRONMENT,
            # Thoughts are counted and never shown, and 503 is retried without a word for minutes
            # (release notes, 1.1.28); no switch for that is known.
            silent_while_thinking=True,
            model=request.model,
            effort=request.effort,
            effort_source=None if request.effort is None else "request",
            loaded=_LOADED,
            warnings=_settings_warnings(surroundings),
        )

    def decoder(self, request: Request[Any], surroundings: Surroundings) -> AgyDecoder:
        """See `Adapter.decoder`."""
        return AgyDecoder(resume=request.resume)

    def diagnose(self, exit: Exit, stderr: str) -> Failure | None:  # noqa: A002
        """See `Adapter.diagnose`.

        Only what the CLI states as an error is looked at. Its log lines say "not logged into" in runs
        that are signed in too (public reports, 1.0.x to 1.2.17).
        """
        for pattern, code, _ in _START_UP:
            if pattern.search(stderr):
                return failure(code)
        return _cause("\n".join(m[0] for m in _STATED.finditer(stderr)), None)


class AgyDecoder:
    """Reads `--output-format stream-json`, and the one object of `json`.

    In 1.1.8 that object could hold a raw newline (public reports), which cuts its line in two: that
    cannot be cured here, and the version is refused.
    """

    def __init__(self, *, resume: str | None) -> None:
        self._resume = resume
        self._conversation: str | None = None
        self._spent: dict[tuple[str | None, int], JsonObject] = {}
        self._called: set[str] = set()
        self._spoke = False
        self._finished = False
        self._settled = False

    def record(self, value: JsonObject, size: int, at: datetime) -> Sequence[Record]:
        match string(value, "event"):
            case "init":
                return self._init(value)
            case "step_update":
                self._settled = False
                return self._step(obj(value, "step_update"), size, at)
            case "result":
                return self._result(obj(value, "result"), at)
            case None if "status" in value and ("response" in value or "error" in value):
                return self._result(value, at)
            case name:
                return [Unrecognized(type=name, size=size)]

    def billing(self) -> Billing:
        return Billing(payer="unknown", evidence="agy's events do not say who pays")

    def _init(self, value: JsonObject) -> list[Record]:
        inside = obj(value, "init")
        self._conversation = string(value, "conversation_id") or string(inside, "conversation_id")
        records: list[Record] = [
            Started(
                session_id=self._conversation,
                # What the CLI made of --model (public reports, 1.2.17); told always since 1.3.2.
                model=string(inside, "model"),
                tools=strings(inside, "tools"),
            )
        ]
        if (string(inside, "permission_mode") or _ASKING[0]) not in _ASKING:
            message = "The CLI's permission mode lets tools run unasked."
            records.append(Notice(code="warning", message=message))
        if self._is_another(self._conversation):
            records.append(TurnEnded(failure=_no_conversation()))
        return records

    def _step(self, step: JsonObject, size: int, at: datetime) -> list[Record]:
        owner, index = string(step, "conversation_id"), count(step, "step_index")
        if obj(step, "usage") and index is not None:
            self._spent[owner, index] = obj(step, "usage")
        parent = owner if owner and self._conversation and owner != self._conversation else None
        info = obj(step, "tool_info")
        name = string(info, "name") or string(step, "tool_name")
        match string(step, "step_type"):
            case "agent_response":
                return self._words(step, parent, at)
            case "user_input" | "checkpoint" | "system_message":
                return []
            case kind if "finish" in (kind, name):
                # The structured answer is given by a tool of the CLI's own (public reports, 1.3.2).
                self._finished = True
                return [Reasoning(text="", parent=parent)]
            case kind if name is not None or kind in ("tool", "subagent"):
                return self._tool(step, info, name or str(kind), parent)
            case kind:
                return [Unrecognized(type=f"step_update/{kind}", size=size)]

    def _words(self, step: JsonObject, parent: str | None, at: datetime) -> list[Record]:
        if _state_of(step) == "ERROR":  # the CLI may try again: see the result
            return [ErrorReported(failure=_cause(_said(step.get("error")), at) or _unknown())]
        if text := string(step, "text_delta"):
            self._spoke = True
            return [TextDelta(text=text, parent=parent)]
        return [] if _state_of(step) == "DONE" else [Reasoning(text="", parent=parent)]

    def _tool(
        self, step: JsonObject, info: JsonObject, name: str, parent: str | None
    ) -> list[Record]:
        name_of_step = f"{parent or ''}#{count(step, 'step_index')}"
        records: list[Record] = []
        if name_of_step not in self._called:  # a short call is first seen when it is done
            self._called.add(name_of_step)
            asked = info.get("parameters")
            records.append(ToolStarted(id=name_of_step, name=name, input=asked, parent=parent))
        if _state_of(step) == "ACTIVE":
            return records
        output = string(info, "output")
        # A denied call is DONE, with neither output nor error (public reports, 1.3.1).
        ok = None if output is None else True
        if _state_of(step) != "DONE" or info.get("error"):
            ok = False
        return [*records, ToolFinished(id=name_of_step, ok=ok, output=output, parent=parent)]

    def _result(self, result: JsonObject, at: datetime) -> list[Record]:
        if self._settled:
            # A signal to a process that waits after its turn brings a second result, ERROR (public
            # reports, 1.2.12), which says nothing of the turn.
            return []
        fact = self._result_failure(result, at)
        self._settled = fact is None
        data, response = self._data(result), string(result, "response") or ""
        if (
            data is not None
        ):  # the response has the CLI's own prose around the JSON (public reports)
            response = json.dumps(data, ensure_ascii=False)
        usage = self._usage(result)
        records: list[Record] = [] if usage is None else [UsageReported(usage=usage)]
        if fact is None and objects(result, "denied_actions"):
            records.append(Notice(code="warning", message="The CLI denied a tool call."))
        ended = TurnEnded(
            failure=fact,
            # The CLI ends each answer with a newline of its own (public reports, 1.2.11).
            text=response.removesuffix("\n") if fact is None else response or None,
            data=data,
            has_data=data is not None,
            usage=usage,
        )
        return [*records, ended]

    def _data(self, result: JsonObject) -> JsonObject | None:
        """The structured answer. A turn that gives none repeats that of the turn before it in the same
        conversation (public reports, 1.3.2)."""
        stale = self._resume is not None and not self._finished
        return None if stale else obj(result, "structured_output") or None

    def _usage(self, result: JsonObject) -> Usage | None:
        """The turn's tokens: a result counts the whole conversation, a step itself (public reports,
        1.2.x)."""
        if self._resume is None:
            return _usage([obj(result, "usage")])
        return _usage(self._spent.values())

    def _result_failure(self, result: JsonObject, at: datetime) -> Failure | None:
        if self._is_another(string(result, "conversation_id")):
            return _no_conversation()
        denied = objects(result, "denied_actions")
        match string(result, "status"):
            case "SUCCESS":
                return self._doubt(result, at)
            case "ERROR":
                return _cause(_said(result.get("error")), at) or _unknown()
            case "WAITING":
                return failure("policy.denied", "The CLI waits for an approval nobody can give.")
            case _ if denied:  # CANCELED, by some reports of 1.2.x
                return failure("policy.denied")
            case _:
                return failure("protocol.truncated")

    def _doubt(self, result: JsonObject, at: datetime) -> Failure | None:
        """Whether a SUCCESS is one. Commands, denials and timeouts end in it too (public reports)."""
        response = string(result, "response") or ""
        if "command" in result or count(result, "num_turns") == 0:
            return failure("protocol.empty", "The CLI answered by itself, without the model.")
        if not response.strip() and objects(result, "denied_actions"):
            return failure("policy.denied")
        if self._usage(result) is not None:
            return None
        if not (self._spoke or self._finished):  # no model was called: the text is the CLI's own
            return _cause(response, at) or failure("protocol.truncated")
        if self._resume is None and obj(result, "usage"):
            # Tokens that were not counted: the CLI's time limit cut the turn (public reports, 1.2.17).
            return failure("protocol.truncated")
        return None

    def _is_another(self, conversation: str | None) -> bool:
        """An unknown id brings a warning on standard error and a new conversation (public reports,
        1.2.11). The id is empty where a run failed before it had one."""
        return bool(self._resume and conversation and conversation != self._resume)


def _state(environ: Mapping[str, str]) -> str:
    return f"{environ.get('HOME', '')}/.gemini/antigravity-cli"


def _version(text: str | None) -> _Version:
    """What cannot be read is taken for the newest, since the CLI updates itself."""
    found = re.search(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", text or "")
    return _NEWEST if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _print_timeout(total: float | None) -> str:
    """Longer than our own limit, as a Go duration: at its own one the CLI says SUCCESS with a part of
    the answer, and the only mark of that is on standard error (release notes, 1.1.28)."""
    return "24h" if total is None else f"{int(total) + 60}s"


def _schema_argument(request: Request[Any]) -> str:
    """Inline: a path that cannot be read is silently taken for a schema (public reports, 1.2.7)."""
    argument = json.dumps(draft_07_schema(json_schema(request)), ensure_ascii=False)
    size = len(argument.encode())
    if size > _ARGUMENT_LIMIT:
        message = f"The schema has {size} bytes, and agy bears {_ARGUMENT_LIMIT}."
        raise as_error(failure("request.too_large", message))
    return argument


def _settings_warnings(surroundings: Surroundings) -> tuple[Failure, ...]:
    """What the user's settings mean for a run that is to use no tool. Headless mode heeds them (release
    notes, 1.1.4); what cannot be read, the CLI cannot read either.

    Raises:
        RequestError: every tool would run unasked.
    """
    files = (read_objects(found.content or b"") for found in surroundings.found)
    for settings in (each for file in files for each in file if isinstance(each, dict)):
        if settings.get("toolPermission", _ASKING[0]) not in _ASKING:
            unasked = "The user's settings of agy let tools run unasked."
            hint = 'Set toolPermission to "request-review" with /config in the CLI.'
            raise as_error(failure("request.unsupported", unasked, hint=hint))
        if obj(settings, "permissions").get("allow"):
            some = "The user's settings of agy let some tools run unasked."
            hint = "Take the rules out of permissions.allow; a tool call ends the run all the same."
            return (failure("config.invalid", some, hint=hint),)
    return ()


def _usage(parts: Iterable[JsonObject]) -> Usage | None:
    """Public reports, 1.2.16 to 1.3.2: input_tokens is without what the cache served, output_tokens is
    with the thoughts. Nothing tells what was stored in a cache."""

    def total(key: str) -> int | None:
        known = [found for part in parts if (found := count(part, key)) is not None]
        return sum(known) if known else None

    parts = list(parts)
    output, reasoning = total("output_tokens"), total("thinking_tokens")
    if output is not None and reasoning is not None:
        output = max(0, output - reasoning)
    usage = Usage(
        input=total("input_tokens"),
        cache_read=total("cache_read_tokens"),
        output=output,
        reasoning=reasoning,
    )
    spent = (usage.input, usage.cache_read, usage.output, usage.reasoning)
    return usage if any(spent) else None


def _state_of(step: JsonObject) -> str | None:
    return string(step, "state") or string(step, "status")


def _said(error: object) -> str:
    """An error's text: itself, or the message in it."""
    if isinstance(error, str):
        return error
    return string(cast("JsonObject", error), "message") or "" if isinstance(error, dict) else ""


def _no_conversation() -> Failure:
    return failure("request.invalid", _NO_CONVERSATION)


def _unknown() -> Failure:
    return failure("process.exit", "The CLI reported an error of a kind that is not known.")


def _cause(text: str, at: datetime | None) -> Failure | None:
    """What an error of the CLI means; None if that is not known. Never for text of a model.

    Args:
        text: the CLI's own.
        at: when it came; without it, a span until a limit's end is no time.
    """
    found = _STATUS.search(text)
    status = int(found[1] or found[2] or found[3]) if found else None
    for pattern, code, message in _CAUSES:
        if pattern.search(text):
            return failure(code, message, status=status)
    limit = read_limit(text, at or datetime(1970, 1, 1, tzinfo=UTC))
    if limit is not None:
        return failure(
            limit.code,
            status=status,
            retry_after=limit.retry_after,
            resets_at=None if at is None else limit.resets_at,
        )
    named = _BY_STATUS.get(503 if status is None and "UNAVAILABLE" in text else status)
    return None if named is None else failure(named, status=status)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _when(
    pattern: str, code: Code, message: str | None = None
) -> tuple[re.Pattern[str], Code, str | None]:
    return _compile(pattern), code, message


# Release notes: "error:" marks what is fatal since 1.1.28, and AGY_ERROR stands before an object with
# `short_error`, `status` and `error_code` since 1.2.6, together with exit code 3.
_STATED = _compile(
    r"^(?:error:|AGY_ERROR:|warning: conversation |\[agy\] print timeout|authentication required"
    r"|waiting for authentication|(?:\w+: )?no output produced).*"
)
_STATUS = _compile(r"\(code (\d{3})\)|\berror (\d{3})\b|\"error_code\": ?(\d{3})\b")

_START_UP = (
    # Of Go's flag package; what is left over on the command line is an error since 1.1.18.
    _when(
        r"flags? provided but not defined|^flag needs|^invalid value .* for flag", "cli.bad_flag"
    ),
    _when(r"^(?:error: )?unexpected argument", "cli.bad_flag"),
    _when(r"is not a terminal|open a (?:new )?TTY|open /dev/tty", "cli.needs_terminal"),
)

# The first that fits counts. Public reports, 1.0.x to 1.3.2, but for a filter, a context and tokens:
# those are words of Google's API.
_CAUSES = (
    _when(r"^(?:error: )?interrupted$|context cancell?ed", "protocol.truncated"),
    _when(
        r"(?:requires|conflicts with) --effort|--effort is not supported|invalid --?effort",
        *("request.invalid", "The model and the effort do not go together."),
    ),
    _when(r"invalid model selection|not recognized as a known model", "model.unavailable"),
    _when(r"\bconversation .{0,80}not found", "request.invalid", _NO_CONVERSATION),
    _when(r"json[- ]?schema", "request.unsupported", "The CLI refuses the schema."),
    _when(
        r"--disable-slash-commands|slash command",
        *("request.unsupported", "The CLI takes the prompt for a command of its own."),
    ),
    _when(
        r"\bstream input\b|malformed input|unsupported stream|empty prompt",
        *(
            "cli.unsupported_version",
            "The CLI does not read the prompt in the form it was sent in.",
        ),
    ),
    _when(r"credits? balance is too low|out of credits", "limit.credits"),
    _when(r"unauthenticated|invalid authentication|API key not valid|KEY_INVALID", "auth.expired"),
    _when(
        r"authentication (?:is )?(?:required|failed)|auth timed out|please sign in"
        r"|waiting for authentication|(?:not|n't) (?:signed|logged) in",
        "auth.required",
    ),
    _when(
        r"verify your account|terms of service|ineligible|not eligible",
        *("auth.required", "The vendor does not let this account use the CLI."),
    ),
    _when(
        r"time(?:out|d out) waiting for response|\[agy\] print timeout",
        *("timeout.total", "The CLI's own time limit ended the turn."),
    ),
    _when(r"permission check failed|cannot prompt for|denied permission", "policy.denied"),
    _when(r"content[- _]?filter|safety filter|prohibited[ _]content", "model.refused"),
    _when(r"input token count|number of tokens|context (?:window|length)", "model.context"),
    _when(r"max(?:imum)?[ _](?:output[ _])?tokens", "answer.max_tokens"),
    _when(
        r"network issue|connection (?:refused|reset)|no such host|i/o timeout|dial tcp"
        r"|tls handshake|proxyconnect|stream was interrupted",
        "network",
    ),
)
_BY_STATUS: Mapping[int | None, Code] = {
    400: "model.error",
    401: "auth.expired",
    402: "limit.credits",
    403: "auth.expired",
    404: "model.unavailable",
    413: "model.context",
    429: "limit.rate",
    500: "provider.error",
    502: "provider.error",
    503: "provider.overloaded",
    504: "provider.error",
}

ADAPTER = Agy()
