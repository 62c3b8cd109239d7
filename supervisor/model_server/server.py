"""The listening server: takes requests, records them, and chooses what each is answered."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

from supervisor.model_server.connection import BadRequestError, HttpConnection, RequestHead
from supervisor.model_server.plan import error_answer, plan
from supervisor.model_server.request import ModelRequest, call_of, parse_body, protocol_of
from supervisor.model_server.side_calls import side_step
from supervisor.model_server.side_endpoints import side_answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from supervisor.model_server.answer import Answer
    from supervisor.model_server.script import Script, Step

_HOST = "127.0.0.1"


class ModelServer:
    """A running model endpoint; made by :func:`serve_model`.

    What it recorded can still be read after it has ended.
    """

    def __init__(self, script: Script, port: int) -> None:
        self._script = script
        self._port = port
        self._started = trio.current_time()
        self._requests: list[ModelRequest] = []
        self._model_requests: list[ModelRequest] = []
        self._open_connections = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def url(self) -> str:
        """The base URL, ``http://127.0.0.1:PORT``, without a final slash.

        For Anthropic and Gemini clients it is this, for OpenAI and xAI clients this with ``/v1``
        behind it.
        """
        return f"http://{_HOST}:{self._port}"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """All requests received so far, in the order of arrival; ``purpose`` tells them apart."""
        return tuple(self._requests)

    @property
    def model_requests(self) -> tuple[ModelRequest, ...]:
        """The requests that took a step of the script, in the order of arrival."""
        return tuple(self._model_requests)

    @property
    def open_connections(self) -> int:
        """How many client connections are open now."""
        return self._open_connections

    async def wait_model_requests(self, count: int) -> tuple[ModelRequest, ...]:
        """Wait until ``count`` requests have taken a step, and return those that have."""
        await trio.lowlevel.checkpoint()
        while len(self._model_requests) < count:
            await self._changed.park()
        return self.model_requests

    async def wait_idle(self) -> None:
        """Wait until no client connection is open: every client has closed or was cut off."""
        await trio.lowlevel.checkpoint()
        while self._open_connections:
            await self._changed.park()

    async def handle_connection(self, stream: trio.SocketStream) -> None:
        """Serve one client until it is done or gone. For the listener of :func:`serve_model`."""
        self._open_connections += 1
        try:
            async with stream:
                with suppress(trio.BrokenResourceError):
                    await self._converse(HttpConnection(stream))
        finally:
            self._open_connections -= 1
            self._changed.unpark_all()

    async def _converse(self, connection: HttpConnection) -> None:
        while True:
            try:
                received = await connection.receive()
            except BadRequestError as error:
                await connection.refuse(self._refused(error))
                return
            if received is None:
                return
            request = self._record(*received)
            if not await connection.play(self._answer(request)):
                return

    def _record(self, head: RequestHead, body: bytes) -> ModelRequest:
        protocol = protocol_of(head.method, head.target)
        request = ModelRequest(
            method=head.method,
            path=head.target,
            headers=head.headers,
            body=body,
            json=parse_body(body),
            protocol=protocol,
            at=trio.current_time() - self._started,
        )
        self._requests.append(request)
        if request.purpose == "answer":
            self._model_requests.append(request)
            self._changed.unpark_all()
        return request

    def _refused(self, error: BadRequestError) -> Answer:
        protocol = None
        if error.head is not None:
            protocol = self._record(error.head, b"").protocol
        kind = "request_too_large" if error.status == 413 else "invalid_request_error"
        return error_answer(protocol, error.status, kind, error.message)

    def _answer(self, request: ModelRequest) -> Answer:
        if request.protocol is None:
            return side_answer(request)
        if request.json is not None:
            call = call_of(request, len(self._requests))
            return plan(self._choose(request), request.protocol, call)
        status, message = 400, "the request body is not a JSON object"
        if request.headers.get("content-encoding", "identity") != "identity":
            status, message = 415, "compressed request bodies are not read here"
        return error_answer(request.protocol, status, "invalid_request_error", message)

    def _choose(self, request: ModelRequest) -> Step:
        if request.purpose is not None and request.purpose != "answer":
            return side_step(request.purpose)
        if callable(self._script):
            return self._script(request)
        return self._script[min(len(self._model_requests), len(self._script)) - 1]


@asynccontextmanager
async def serve_model(script: Script, *, port: int = 0) -> AsyncGenerator[ModelServer]:
    """Serve ``script`` on 127.0.0.1 while the context lasts.

    ``script`` is a sequence of steps, one for each model request and the last one for all
    further ones, or a function from request to step. Model calls that a CLI makes beside its
    answers take no step and get a fixed good answer (see :attr:`ModelRequest.purpose`). ``port``
    0, the default, takes a free port. Leaving the context closes the port and every connection
    and ends every task. A client that misbehaves or goes away never raises here.

    Raises ``ValueError`` for an empty sequence, ``OSError`` when the port cannot be had, and an
    ``ExceptionGroup`` with what a script function raised.
    """
    if not callable(script) and not script:
        raise ValueError("a script needs at least one step")
    listeners = await trio.open_tcp_listeners(port, host=_HOST)
    server = ModelServer(script, listeners[0].socket.getsockname()[1])
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.handle_connection, listeners)
        try:
            yield server
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    # Outside of the nursery, which would wrap the caller's own exception into a group.
    if failure is not None:
        raise failure
