"""The scripted model endpoint, spoken to by a real HTTP client over real sockets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

import h11
import pytest
import trio

from supervisor.model_server import (
    CallTool,
    CutStream,
    FailStream,
    Http,
    ModelRequest,
    ModelServer,
    Say,
    Silence,
    Step,
    StructuredAnswer,
    Unreadable,
    Usage,
    serve_model,
    text_sent,
)

ENDPOINTS = {"anthropic": "/v1/messages", "responses": "/v1/responses"}
GEMINI = "/v1beta/models/m-1"
MIB = 1024 * 1024
every = pytest.mark.parametrize("protocol", ["anthropic", "responses", "gemini"])
streamed_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@dataclass(kw_only=True)
class Reply:
    """What came back for one request. ``ended``: how the message ended, seen from the client."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    ended: str = "whole"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        assert self.headers["content-type"].startswith("text/event-stream")
        events: list[Any] = []
        for block in self.body.split(b"\n\n")[:-1]:
            name, data = block.split(b"\n", 1)
            events.append(json.loads(data.removeprefix(b"data: ")))
            assert name == b"event: " + events[-1]["type"].encode()
        return events

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def named(self, kind: str) -> Any:
        return next(event for event in self.events if event["type"] == kind)


@dataclass
class Client:
    """A keep-alive HTTP client on one TCP connection."""

    stream: trio.SocketStream
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stream.aclose()

    async def ask(self, protocol: str, **body: Any) -> Reply:
        await self.call(protocol, **body)
        return await self.reply()

    async def call(self, protocol: str, **body: Any) -> None:
        target = endpoint(protocol, stream=body.get("stream", False))
        await self.send("POST", target, json.dumps(body).encode())

    async def request(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        await self.send(method, target, body, **headers)
        return await self.reply()

    async def send(self, method: str, target: str, body: bytes = b"", **headers: str) -> None:
        await self.send_head(method, target, content_length=str(len(body)), **headers)
        await self.send_event(h11.Data(data=body))
        await self.send_event(h11.EndOfMessage())

    async def send_head(self, method: str, target: str, **headers: str) -> None:
        fields = [("host", "loopback")]
        fields += [(name.replace("_", "-"), value) for name, value in headers.items()]
        await self.send_event(h11.Request(method=method, target=target, headers=fields))

    async def send_event(self, event: h11.Event) -> None:
        await self.stream.send_all(self.http.send(event) or b"")

    async def reply(self) -> Reply:
        try:
            return await self.whole_reply()
        except trio.BrokenResourceError:
            return Reply(status=0, headers={}, ended="reset")

    async def whole_reply(self) -> Reply:
        head = await self.next_event()
        while isinstance(head, h11.InformationalResponse):
            head = await self.next_event()
        assert isinstance(head, h11.Response)
        headers = {name.decode(): value.decode() for name, value in head.headers}
        reply = Reply(status=head.status_code, headers=headers)
        await self.read_body(reply)
        return reply

    async def read_body(self, reply: Reply) -> None:
        try:
            while isinstance(event := await self.next_event(), h11.Data):
                reply.body += event.data
        except h11.RemoteProtocolError:
            reply.ended = "close"
        except trio.BrokenResourceError:
            reply.ended = "reset"
        else:
            if self.http.our_state is self.http.their_state is h11.DONE:
                self.http.start_next_cycle()

    async def next_event(self) -> h11.Event:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive_some(65536))
        assert isinstance(event, h11.Event)
        return event


def endpoint(protocol: str, *, stream: bool = False) -> str:
    if protocol != "gemini":
        return ENDPOINTS[protocol]
    return f"{GEMINI}:streamGenerateContent?alt=sse" if stream else f"{GEMINI}:generateContent"


def port_of(server: ModelServer) -> int:
    return int(server.url.rpartition(":")[2])


async def connect(server: ModelServer) -> Client:
    return Client(await trio.open_tcp_stream("127.0.0.1", port_of(server)))


async def ask(step: Step, protocol: str, **body: Any) -> Reply:
    """Ask one question of a server that answers with one step."""
    async with serve_model([step]) as server, await connect(server) as client:
        return await client.ask(protocol, **body)


def said(reply: Reply, protocol: str) -> str:
    """Put the text deltas of a stream together, or take the text of a whole answer."""
    if protocol == "gemini":
        return "".join(part.get("text", "") for part in parts_of(reply) if "thought" not in part)
    if "event-stream" not in reply.headers["content-type"]:
        content = reply.json["content" if protocol == "anthropic" else "output"]
        parts = content if protocol == "anthropic" else content[-1]["content"]
        return "".join(part["text"] for part in parts if "text" in part)
    if protocol == "anthropic":
        deltas = [event["delta"] for event in reply.events if "delta" in event]
        return "".join(delta.get("text", "") for delta in deltas)
    wanted = "response.output_text.delta"
    return "".join(event["delta"] for event in reply.events if event["type"] == wanted)


def responses_of(reply: Reply) -> list[Any]:
    """Take the answer of the Gemini API, or the pieces of its stream; an error is no piece."""
    if "event-stream" not in reply.headers["content-type"]:
        return [reply.json]
    lines = reply.body.split(b"\r\n\r\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line[:1] == b"d"]


def parts_of(reply: Reply) -> list[Any]:
    contents = [answer["candidates"][0]["content"] for answer in responses_of(reply)]
    return [part for content in contents for part in content["parts"]]


def ended(reply: Reply, protocol: str) -> Any:
    """Take the finished message out of either form of answer."""
    if protocol == "gemini":
        return {**responses_of(reply)[-1], "model": responses_of(reply)[-1]["modelVersion"]}
    if "event-stream" not in reply.headers["content-type"]:
        return reply.json
    if protocol == "responses":
        return reply.events[-1]["response"]
    delta = reply.named("message_delta")
    return {**reply.named("message_start")["message"], **delta["delta"], "usage": delta["usage"]}


# -- good answers ----------------------------------------------------------------------------


@every
@streamed_or_not
@pytest.mark.parametrize("text", ["hello", "", "zwölf Boxkämpfer \U0001f94a\n\0 " * 2000, "\ud800"])
async def test_text_arrives_as_scripted(protocol: str, stream: bool, text: str) -> None:
    reply = await ask(Say(text=text), protocol, stream=stream, model="m-1")
    assert (reply.status, reply.ended) == (200, "whole")
    assert said(reply, protocol) == text
    assert ended(reply, protocol)["model"] == "m-1"


@every
async def test_a_stream_has_a_beginning_and_a_terminal_event(protocol: str) -> None:
    reply = await ask(Say(text="hello"), protocol, stream=True)
    if protocol == "gemini":
        finished = ["finishReason" in piece["candidates"][0] for piece in responses_of(reply)]
        assert finished == [False] * (len(finished) - 1) + [True]
        assert len({piece["responseId"] for piece in responses_of(reply)}) == 1
        return
    first, last = {
        "anthropic": ("message_start", "message_stop"),
        "responses": ("response.created", "response.completed"),
    }[protocol]
    assert (reply.types[0], reply.types[-1]) == (first, last)


async def test_responses_events_are_numbered() -> None:
    reply = await ask(Say(text="hello", thinking="hm"), "responses", stream=True)
    numbers = [event["sequence_number"] for event in reply.events]
    assert numbers == list(range(len(numbers)))


@streamed_or_not
async def test_anthropic_usage(stream: bool) -> None:
    usage = ended(await ask(Say(text="x"), "anthropic", stream=stream), "anthropic")["usage"]
    assert usage["input_tokens"] == 11
    assert usage["cache_creation_input_tokens"] == 100
    assert usage["cache_read_input_tokens"] == 1000
    assert usage["output_tokens"] == 47


@streamed_or_not
async def test_responses_usage(stream: bool) -> None:
    usage = ended(await ask(Say(text="x"), "responses", stream=stream), "responses")["usage"]
    assert usage == {
        "input_tokens": 1111,
        "input_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 100},
        "output_tokens": 47,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 1158,
    }


@streamed_or_not
async def test_gemini_usage(stream: bool) -> None:
    usage = ended(await ask(Say(text="x"), "gemini", stream=stream), "gemini")["usageMetadata"]
    assert usage == {
        "promptTokenCount": 1111,
        "cachedContentTokenCount": 1000,
        "candidatesTokenCount": 27,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 1158,
    }


@every
async def test_usage_can_be_replaced(protocol: str) -> None:
    usage = Usage(uncached=1, cache_write=0, cache_read=0, output=5, reasoning=0)
    for step in (
        Say(text="x", usage=usage),
        StructuredAnswer(data={}, usage=usage),
        CallTool(name="t", arguments={}, usage=usage),
    ):
        reply = await ask(step, protocol)
        if protocol == "gemini":
            counts = reply.json["usageMetadata"]
            assert (counts["promptTokenCount"], counts["candidatesTokenCount"]) == (1, 5)
            continue
        assert reply.json["usage"]["input_tokens"] == 1
        assert reply.json["usage"]["output_tokens"] == 5


@streamed_or_not
async def test_thinking_comes_before_the_text(stream: bool) -> None:
    step = Say(text="hello", thinking="let me see")
    reply = await ask(step, "anthropic", stream=stream)
    assert said(reply, "anthropic") == "hello"
    if stream:
        assert reply.named("content_block_start")["content_block"]["type"] == "thinking"
        assert reply.named("content_block_delta")["delta"]["thinking"] == "let me see"
    else:
        assert [part["type"] for part in reply.json["content"]] == ["thinking", "text"]
    reply = await ask(step, "responses", stream=stream)
    thought, message = ended(reply, "responses")["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "let me see"}]
    assert message["content"][0]["text"] == "hello"
    reply = await ask(step, "gemini", stream=stream)
    assert parts_of(reply)[0] == {"text": "let me see", "thought": True}
    assert said(reply, "gemini") == "hello"


@streamed_or_not
@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (None, "STOP"),
        ("end_turn", "STOP"),
        ("max_tokens", "MAX_TOKENS"),
        ("refusal", "SAFETY"),
        ("recitation", "RECITATION"),
    ],
)
async def test_gemini_finish_reason(stream: bool, stop: str | None, reason: str) -> None:
    reply = await ask(Say(text="x", stop=stop), "gemini", stream=stream)
    assert ended(reply, "gemini")["candidates"][0]["finishReason"] == reason
    assert said(reply, "gemini") == "x"


@streamed_or_not
async def test_anthropic_stop_reason(stream: bool) -> None:
    reply = await ask(Say(text="x"), "anthropic", stream=stream)
    assert ended(reply, "anthropic")["stop_reason"] == "end_turn"
    reply = await ask(Say(text="x", stop="max_tokens"), "anthropic", stream=stream)
    assert ended(reply, "anthropic")["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("max_tokens", "max_output_tokens"), ("content_filter", "content_filter")],
)
async def test_responses_ends_incomplete(stop: str, reason: str) -> None:
    reply = await ask(Say(text="x", stop=stop), "responses", stream=True)
    assert reply.types[-1] == "response.incomplete"
    response = reply.events[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": reason},
    )


async def test_responses_refusal_is_a_part_of_its_own() -> None:
    reply = await ask(Say(text="I will not", stop="refusal"), "responses", stream=True)
    assert said(reply, "responses") == ""
    message = reply.events[-1]["response"]["output"][0]
    assert message["content"] == [{"type": "refusal", "refusal": "I will not"}]
    assert reply.types[-1] == "response.completed"


async def test_chunk_delay_is_the_pause_between_events(
    autojump_clock: trio.testing.MockClock,
) -> None:
    before = trio.current_time()
    reply = await ask(Say(text="abcd", chunk_delay=10), "anthropic", stream=True)
    assert trio.current_time() - before == pytest.approx(10 * (len(reply.events) - 1))


# -- structured answers and tools ------------------------------------------------------------


@streamed_or_not
async def test_structured_answer_calls_the_offered_tool(stream: bool) -> None:
    tools = [{"name": "Bash"}, {"name": "StructuredOutput"}]
    step = StructuredAnswer(data={"a": [1, "ä"]})
    reply = await ask(step, "anthropic", stream=stream, tools=tools)
    assert ended(reply, "anthropic")["stop_reason"] == "tool_use"
    assert anthropic_call(reply, stream) == ("StructuredOutput", {"a": [1, "ä"]})


def anthropic_call(reply: Reply, stream: bool) -> tuple[str, Any]:
    if not stream:
        block = reply.json["content"][-1]
        return block["name"], block["input"]
    starts = [event for event in reply.events if event["type"] == "content_block_start"]
    deltas = [event["delta"] for event in reply.events if event["type"] == "content_block_delta"]
    arguments = "".join(delta.get("partial_json", "") for delta in deltas)
    return starts[-1]["content_block"]["name"], json.loads(arguments)


@every
@streamed_or_not
async def test_structured_answer_is_text_where_no_tool_is_offered(
    protocol: str, stream: bool
) -> None:
    reply = await ask(StructuredAnswer(data={"a": 1}), protocol, stream=stream, tools=[])
    assert json.loads(said(reply, protocol)) == {"a": 1}


@streamed_or_not
async def test_tool_call(stream: bool) -> None:
    step = CallTool(name="Bash", arguments={"command": "ls"}, text="Looking.")
    reply = await ask(step, "anthropic", stream=stream)
    assert said(reply, "anthropic") == "Looking."
    assert anthropic_call(reply, stream) == ("Bash", {"command": "ls"})
    reply = await ask(step, "responses", stream=stream)
    message, call = ended(reply, "responses")["output"]
    assert message["content"][0]["text"] == "Looking."
    assert (call["type"], call["name"]) == ("function_call", "Bash")
    assert json.loads(call["arguments"]) == {"command": "ls"}
    reply = await ask(step, "gemini", stream=stream)
    assert said(reply, "gemini") == "Looking."
    assert gemini_call(reply) == {"name": "Bash", "args": {"command": "ls"}}
    assert ended(reply, "gemini")["candidates"][0]["finishReason"] == "STOP"


def gemini_call(reply: Reply) -> Any:
    (call,) = [part["functionCall"] for part in parts_of(reply) if "functionCall" in part]
    return call


async def test_tool_call_with_free_text() -> None:
    step = CallTool(name="apply_patch", arguments="*** Begin Patch")
    reply = await ask(step, "responses", stream=True)
    (call,) = ended(reply, "responses")["output"]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin Patch")
    reply = await ask(step, "anthropic")
    assert anthropic_call(reply, stream=False) == ("apply_patch", {"input": "*** Begin Patch"})
    reply = await ask(step, "gemini")
    assert gemini_call(reply) == {"name": "apply_patch", "args": {"input": "*** Begin Patch"}}


@every
async def test_every_answer_has_ids_of_its_own(protocol: str) -> None:
    async with (
        serve_model([CallTool(name="t", arguments={}), Say(text="x")]) as server,
        await connect(server) as client,
    ):
        replies = [await client.ask(protocol) for _ in range(3)]
    if protocol == "gemini":
        assert len({reply.json["responseId"] for reply in replies}) == 3
        return
    header = "request-id" if protocol == "anthropic" else "x-request-id"
    assert len({reply.json["id"] for reply in replies}) == 3
    assert len({reply.headers[header] for reply in replies}) == 3


# -- failures --------------------------------------------------------------------------------


@streamed_or_not
async def test_error_status_in_the_vendors_own_shape(stream: bool) -> None:
    headers = {"Retry-After": "2", "x-request-id": "mine", "request-id": "mine"}
    step = Http(
        status=429,
        error_type="rate_limit_error",
        message="slow down",
        headers=headers,
        details={"resets_at": 5},
    )
    reply = await ask(step, "anthropic", stream=stream)
    assert (reply.status, reply.headers["retry-after"]) == (429, "2")
    assert reply.headers["request-id"] == "mine"
    error = {"type": "rate_limit_error", "message": "slow down", "resets_at": 5}
    assert reply.json == {"type": "error", "error": error}
    reply = await ask(step, "responses", stream=stream)
    assert reply.headers["x-request-id"] == "mine"
    assert reply.json == {"error": {**error, "code": "rate_limit_error", "param": None}}


@streamed_or_not
async def test_gemini_error_status(stream: bool) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}]
    step = Http(
        status=429,
        error_type="RESOURCE_EXHAUSTED",
        message="slow down",
        headers={"Retry-After": "2"},
        details={"details": details},
    )
    reply = await ask(step, "gemini", stream=stream)
    assert (reply.status, reply.headers["retry-after"]) == (429, "2")
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}
    assert reply.json == {"error": {**error, "details": details}}


@every
@pytest.mark.parametrize("after_text", [None, "partial"])
async def test_error_inside_a_stream(protocol: str, after_text: str | None) -> None:
    step = FailStream(code="overloaded_error", message="busy", after_text=after_text)
    reply = await ask(step, protocol, stream=True)
    assert (reply.status, reply.ended) == (200, "whole")
    assert said(reply, protocol) == (after_text or "")
    if protocol == "gemini":
        error = json.loads(reply.body.rpartition(b"\r\n\r\n")[2])["error"]
        assert error == {"code": 500, "message": "busy", "status": "overloaded_error"}
        return
    last = reply.events[-1]
    if protocol == "anthropic":
        assert last == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    else:
        assert last["type"] == "response.failed"
        assert last["sequence_number"] == len(reply.events) - 1
        assert last["response"]["error"] == {"code": "overloaded_error", "message": "busy"}


async def test_error_inside_a_stream_without_a_stream() -> None:
    step = FailStream(code="server_error", message="busy", after_text="partial")
    reply = await ask(step, "anthropic")
    assert (reply.status, reply.json["error"]["type"]) == (500, "server_error")
    reply = await ask(step, "responses")
    assert (reply.status, reply.json["status"]) == (200, "failed")
    reply = await ask(FailStream(code="UNAVAILABLE", message="busy"), "gemini")
    assert reply.status == 503
    assert reply.json["error"] == {"code": 503, "message": "busy", "status": "UNAVAILABLE"}


@every
@streamed_or_not
@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_cut_answer(protocol: str, stream: bool, how: Any) -> None:
    reply = await ask(CutStream(after_text="partial", how=how), protocol, stream=stream)
    assert reply.ended == ("whole" if how == "end" else how)
    if how == "reset":
        # A reset may overtake what was sent before it, so nothing can be said of that.
        return
    if stream:
        assert said(reply, protocol) == "partial"
        assert last_kind(reply, protocol) in ("content_block_delta", "response.output_text.delta")
    else:
        assert reply.body.startswith((b'{"id": ', b'{"candidates": '))
        with pytest.raises(json.JSONDecodeError):
            json.loads(reply.body)


def last_kind(reply: Reply, protocol: str) -> str:
    if protocol != "gemini":
        return reply.types[-1]
    assert "finishReason" not in responses_of(reply)[-1]["candidates"][0]
    return "content_block_delta"


@every
async def test_cut_behind_the_end_of_the_text_block(protocol: str) -> None:
    reply = await ask(CutStream(after_text="partial", block_done=True), protocol, stream=True)
    assert said(reply, protocol) == "partial"
    if protocol == "gemini":
        assert last_kind(reply, protocol) == "content_block_delta"
    else:
        assert reply.types[-1] in ("content_block_stop", "response.output_item.done")


@every
async def test_cut_before_any_text(protocol: str) -> None:
    reply = await ask(CutStream(after_text="", how="end"), protocol, stream=True)
    if protocol == "gemini":
        assert (reply.status, reply.ended, reply.body) == (200, "whole", b"")
    else:
        assert reply.types[-1] in ("message_start", "response.in_progress")


@every
async def test_unreadable_answer(protocol: str) -> None:
    reply = await ask(Unreadable(), protocol, stream=True)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html")
    assert reply.body.startswith(b"<!doctype html>")
    reply = await ask(Unreadable(body=b"\xff", content_type="text/plain"), protocol)
    assert (reply.headers["content-type"], reply.body) == ("text/plain", b"\xff")


@every
@streamed_or_not
async def test_silence_sends_nothing_until_the_client_gives_up(protocol: str, stream: bool) -> None:
    async with serve_model([Silence()]) as server, await connect(server) as client:
        await client.call(protocol, stream=stream)
        await server.wait_model_requests(1)
        await client.stream.send_eof()
        assert await client.stream.receive_some() == b""
        await server.wait_idle()


@every
async def test_silence_after_a_text(protocol: str) -> None:
    async with (
        serve_model([Silence(after_text="partial")]) as server,
        await connect(server) as client,
    ):
        await client.call(protocol, stream=True)
        await server.wait_model_requests(1)
        await client.stream.send_eof()
        reply = await client.reply()
    assert (reply.ended, said(reply, protocol)) == ("close", "partial")


def test_steps_are_checked_when_made() -> None:
    with pytest.raises(ValueError, match="between 400 and 599"):
        Http(status=200, error_type="x", message="x")
    with pytest.raises(ValueError, match="no header of HTTP"):
        Http(status=500, error_type="x", message="x", headers={"a": "b\r\nc: d"})
    with pytest.raises(ValueError, match="set by the server"):
        Http(status=500, error_type="x", message="x", headers={"Content-Length": "1"})
    with pytest.raises(ValueError, match="no header of HTTP"):
        Unreadable(content_type="é")
    with pytest.raises(TypeError):
        Http(status=500, error_type="x", message="x", details={"a": object()})
    with pytest.raises(TypeError):
        StructuredAnswer(data={"a": object()})
    with pytest.raises(TypeError):
        CallTool(name="t", arguments={"a": object()})


# -- the script and the record ---------------------------------------------------------------


async def test_one_step_for_each_request_and_the_last_one_repeats() -> None:
    async with (
        serve_model([Say(text="one"), Say(text="two")]) as server,
        await connect(server) as client,
    ):
        replies = [await client.ask("anthropic") for _ in range(3)]
    assert [said(reply, "anthropic") for reply in replies] == ["one", "two", "two"]


async def test_the_step_can_depend_on_the_request() -> None:
    def choose(request: ModelRequest) -> Step:
        return Say(text=f"re: {text_sent(request)[0]}")

    async with serve_model(choose) as server:
        replies = dict[str, str]()

        async def one(prompt: str) -> None:
            async with await connect(server) as client:
                reply = await client.ask("responses", input=prompt)
                replies[prompt] = said(reply, "responses")

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(one, f"prompt {number}")
    assert replies == {f"prompt {n}": f"re: prompt {n}" for n in range(10)}


async def test_an_error_in_the_script_function_is_raised_out_of_the_context() -> None:
    def choose(request: ModelRequest) -> Step:
        raise LookupError(request.path)

    async def run() -> None:
        async with serve_model(choose) as server, await connect(server) as client:
            await client.call("responses")
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(LookupError, match="/v1/responses")


async def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        async with serve_model([]):
            pytest.fail("served")


async def test_requests_are_recorded() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        await client.request("HEAD", "/")
        headers = {"Authorization": "Bearer made-up", "X_A": "1", "x_a": "2"}
        await client.request("POST", "/v1/messages?beta=true", b'{"model": "m"}', **headers)
    head, call = server.requests
    assert (head.method, head.path, head.protocol, head.json) == ("HEAD", "/", None, None)
    assert server.model_requests == (call,)
    assert (call.path, call.protocol) == ("/v1/messages?beta=true", "anthropic")
    assert (call.body, call.json) == (b'{"model": "m"}', {"model": "m"})
    assert call.headers["authorization"] == "Bearer made-up"
    assert call.headers["x-a"] == "1, 2"
    assert 0 <= head.at <= call.at


PROMPT = '@a.txt <b>\u2028 "q" \\ \U0001f600\r\n'
USER_TURNS: dict[str, list[tuple[Any, list[str]]]] = {
    "anthropic": [
        ({"messages": [{"role": "user", "content": PROMPT}]}, [PROMPT]),
        (
            {
                "system": "no",
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
                    {"role": "assistant", "content": "no"},
                    {"role": "user", "content": [{"type": "tool_result", "content": "no"}]},
                    {"role": "user", "content": [{"type": "text", "text": PROMPT}]},
                ],
            },
            ["a", PROMPT],
        ),
        ({"messages": "odd"}, []),
        ({"messages": [1, {"role": "user"}]}, []),
    ],
    "responses": [
        ({"input": PROMPT, "instructions": "no"}, [PROMPT]),
        (
            {
                "input": [
                    {"role": "developer", "content": "no"},
                    {"role": "user", "content": "a"},
                    {"type": "function_call_output", "output": "no"},
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": PROMPT}],
                    },
                ]
            },
            ["a", PROMPT],
        ),
        ({"input": None}, []),
    ],
    "gemini": [
        (
            {
                "systemInstruction": {"parts": [{"text": "no"}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "a"}, {"inlineData": {}}]},
                    {"role": "model", "parts": [{"text": "no"}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": "no"}}]},
                    {"parts": [{"text": PROMPT}]},
                ],
            },
            ["a", PROMPT],
        ),
        ({"contents": "odd"}, []),
        ({"contents": [1, {"role": "user"}]}, []),
    ],
}


@every
async def test_the_text_of_the_users_turns(protocol: str) -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        for body, _ in USER_TURNS[protocol]:
            await client.ask(protocol, **body)
        await client.request("GET", "/v1/models")
    found = [list(text_sent(request)) for request in server.requests]
    assert found == [parts for _, parts in USER_TURNS[protocol]] + [[]]


# -- calls beside the answer -----------------------------------------------------------------

TITLE_TOOL = {"type": "function", "name": "session_title", "parameters": {"type": "object"}}
TITLE = {"tools": [TITLE_TOOL], "tool_choice": {"type": "function", "name": "session_title"}}


@streamed_or_not
async def test_side_calls_take_no_step(stream: bool) -> None:
    def choose(request: ModelRequest) -> Step:
        return Say(text=f"re: {text_sent(request)[0]}")

    async with serve_model(choose) as server, await connect(server) as client:
        title = await client.ask("responses", stream=stream, input="a", **TITLE)
        answer = await client.ask("responses", stream=stream, input="b", tool_choice="auto")
        summary = await client.request(
            "POST",
            "/v1/responses",
            json.dumps({"input": "c", "stream": stream}).encode(),
            x_grok_req_id="xai-turn-summary-1",
        )
        await server.wait_model_requests(1)
    (call,) = ended(title, "responses")["output"]
    assert call["name"] == "session_title"
    assert json.loads(call["arguments"]) == {"session_title": "Loopback session"}
    assert said(answer, "responses") == "re: b"
    assert said(summary, "responses") == "Loopback session"
    assert ended(summary, "responses")["usage"]["total_tokens"] == 10
    assert [request.purpose for request in server.requests] == ["title", "answer", "summary"]
    assert server.model_requests == (server.requests[1],)


async def test_what_is_no_readable_model_call_has_no_purpose() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        await client.request("GET", "/v1/models")
        await client.request("POST", "/v1/responses", b"[1]")
        await client.ask("anthropic", tool_choice={"type": "tool", "name": "Bash"})
    assert [request.purpose for request in server.requests] == [None, None, "answer"]


# -- side endpoints and HTTP -----------------------------------------------------------------


async def test_side_endpoints_on_one_connection_take_no_step() -> None:
    async with serve_model([Say(text="first")]) as server, await connect(server) as client:
        assert (await client.request("HEAD", "/")).status == 200
        counted = await client.request("POST", "/v1/messages/count_tokens?beta=true", b"{}")
        assert counted.json == {"input_tokens": 42}
        models = await client.request("GET", "/v1/models", anthropic_version="2023-06-01")
        assert models.json["data"][0]["type"] == "model"
        models = await client.request("GET", "/v1/models")
        assert models.json["object"] == "list"
        assert (await client.request("GET", "/")).status == 404
        assert (await client.request("HEAD", "/no")).status == 404
        missing = await client.request("GET", "/v1/messages", anthropic_version="2023-06-01")
        assert missing.json["type"] == "error"
        assert said(await client.ask("anthropic"), "anthropic") == "first"
        assert server.open_connections == 1
    assert len(server.requests) == 8
    assert len(server.model_requests) == 1


async def test_grok_is_given_no_list_of_models() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        for path in ("/v1/models", "/v1/api-key", "/", "/models"):
            reply = await client.request("GET", path, user_agent="grok-shell/1.0.41 (linux)")
            assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
        assert said(await client.request("POST", "/responses", b"{}"), "responses") == "x"


async def test_the_gemini_endpoints() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        counted = await client.request("POST", f"{GEMINI}:countTokens", b"{}")
        assert counted.json == {"totalTokens": 42}
        for path in (f"{GEMINI}:embedContent", f"{GEMINI}:streamGenerateContent"):
            missing = await client.request("POST", path, b"{}")
            assert (missing.status, missing.json["error"]["code"]) == (404, 404)
        assert server.model_requests == ()
        reply = await client.request("POST", "/v1/models/a-2:generateContent?key=k", b"{}")
        assert (said(reply, "gemini"), reply.json["modelVersion"]) == ("x", "a-2")


async def test_a_client_can_ask_to_close_after_its_answer() -> None:
    async with serve_model([Say(text="hello")]) as server, await connect(server) as client:
        reply = await client.request("POST", "/v1/messages", b"{}", connection="close")
        assert said(reply, "anthropic") == "hello"
        assert await client.stream.receive_some() == b""


async def test_websocket_is_refused_at_once() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        reply = await client.request(
            "GET", "/v1/responses", connection="Upgrade", upgrade="websocket"
        )
    assert (reply.status, reply.json["error"]["code"]) == (426, "upgrade_refused")


@every
@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_object_takes_no_step(protocol: str, body: bytes) -> None:
    async with (
        serve_model([Say(text="first"), Say(text="second")]) as server,
        await connect(server) as client,
    ):
        assert (await client.request("POST", endpoint(protocol), body)).status == 400
        assert said(await client.ask(protocol), protocol) == "first"


async def test_compressed_bodies_are_refused() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        reply = await client.request("POST", "/v1/responses", b"\x28\xb5", content_encoding="zstd")
    assert (reply.status, server.model_requests) == (415, ())


async def test_the_client_is_told_to_go_on_with_its_body() -> None:
    async with serve_model([Say(text="hello")]) as server, await connect(server) as client:
        wait = {"expect": "100-continue", "content_length": "2"}
        await client.send_head("POST", "/v1/messages", **wait)
        assert isinstance(await client.next_event(), h11.InformationalResponse)
        await client.send_event(h11.Data(data=b"{}"))
        await client.send_event(h11.EndOfMessage())
        assert said(await client.reply(), "anthropic") == "hello"


@every
async def test_a_body_announced_too_large_is_refused_before_it_comes(protocol: str) -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        length = str(64 * MIB + 1)
        await client.send_head("POST", endpoint(protocol), content_length=length)
        reply = await client.reply()
    name = "status" if protocol == "gemini" else "type"
    assert (reply.status, reply.json["error"][name]) == (413, "request_too_large")
    assert [request.protocol for request in server.requests] == [protocol]
    assert server.model_requests == ()


async def test_a_head_request_with_a_body_too_large_ends_only_its_connection() -> None:
    async with serve_model([Say(text="x")]) as server:
        async with await connect(server) as client:
            await client.send_head("HEAD", "/", content_length=str(64 * MIB + 1))
            assert (await client.reply()).status == 413
        await server.wait_idle()


async def test_a_body_that_grows_too_large_is_refused() -> None:
    async with serve_model([Say(text="x")]) as server, await connect(server) as client:
        await client.send_head("POST", "/v1/messages", transfer_encoding="chunked")
        piece = h11.Data(data=b" " * MIB)
        for _ in range(65):
            await client.send_event(piece)
        assert (await client.reply()).status == 413


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01 this is TLS\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"x" * 300_000,
    ],
    ids=["tls", "no-host", "bad-chunk", "long-line"],
)
async def test_bytes_that_are_no_http_are_refused(raw: bytes) -> None:
    async with serve_model([Say(text="x")]) as server:
        async with await trio.open_tcp_stream("127.0.0.1", port_of(server)) as stream:
            await stream.send_all(raw)
            await stream.send_eof()
            received = bytearray()
            async for data in stream:
                received += data
        await server.wait_idle()
    assert received.startswith(b"HTTP/1.1 4")


# -- coming and going ------------------------------------------------------------------------


@every
@pytest.mark.parametrize("begun", [b"", b"POST /v1", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n"])
async def test_a_client_that_leaves_before_its_request(protocol: str, begun: bytes) -> None:
    async with serve_model([Say(text="x")]) as server:
        async with await trio.open_tcp_stream("127.0.0.1", port_of(server)) as stream:
            await stream.send_all(begun)
        await server.wait_idle()
        async with await connect(server) as client:
            assert (await client.ask(protocol)).status == 200


@every
async def test_a_client_that_leaves_in_the_middle_of_its_answer(protocol: str) -> None:
    # Far more than the socket buffers hold, so the server is still sending when the client goes.
    async with serve_model([Say(text="x" * (24 * MIB)), Say(text="still here")]) as server:
        async with await connect(server) as leaver:
            await leaver.call(protocol, stream=True)
            assert await leaver.stream.receive_some(1)
        await server.wait_idle()
        async with await connect(server) as client:
            assert said(await client.ask(protocol), protocol) == "still here"


async def test_leaving_the_context_ends_everything() -> None:
    async with serve_model([Silence(), Silence(after_text="x"), Say(text="x")]) as server:
        clients = [await connect(server) for _ in range(4)]
        for count, client in enumerate(clients[:2], 1):
            await client.call("anthropic", stream=True)
            await server.wait_model_requests(count)
        await clients[2].ask("anthropic")
    assert server.open_connections == 0
    for client in clients:
        async with client:
            while await client.stream.receive_some():
                pass
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", port_of(server))


async def test_the_callers_own_exception_passes_unwrapped() -> None:
    with pytest.raises(KeyError):
        async with serve_model([Say(text="x")]):
            raise KeyError


async def test_cancelling_the_caller_ends_the_server() -> None:
    servers: list[ModelServer] = []
    with trio.CancelScope() as scope:
        async with serve_model([Silence()]) as server, await connect(server) as client:
            servers.append(server)
            await client.call("responses")
            await server.wait_model_requests(1)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert servers[0].open_connections == 0


async def test_a_taken_port_is_reported() -> None:
    async with serve_model([Say(text="x")]) as server:
        with pytest.raises(OSError, match="in use"):
            async with serve_model([Say(text="x")], port=port_of(server)):
                pytest.fail("served twice")
