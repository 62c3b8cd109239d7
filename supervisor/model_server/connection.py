"""One client connection: whole HTTP requests in, planned answers out."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
import trio

if TYPE_CHECKING:
    from supervisor.model_server.answer import Answer

MAX_BODY = 64 * 1024 * 1024
"""The largest request body that is read, in bytes."""

# The CLIs send a few kilobytes of metadata as headers; h11's own limit is 16 KiB.
_MAX_HEAD = 256 * 1024
_READ_SIZE = 256 * 1024
_LINGER_SECONDS = 2.0


class BadRequestError(Exception):
    """The client's bytes are no acceptable request; ``status`` says why. Ends the connection."""

    def __init__(self, status: int, message: str, head: RequestHead | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.head = head


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The request line and the headers, names in lower case, repeated ones joined."""

    method: str
    target: str
    headers: dict[str, str]


class HttpConnection:
    """The server's side of HTTP/1.1 on one stream.

    Every method may raise ``trio.BrokenResourceError`` when the client has gone away.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        self._bodiless = False

    async def receive(self) -> tuple[RequestHead, bytes] | None:
        """Read the next whole request; ``None`` when the client is done.

        Raises ``BadRequestError`` for bytes that are not HTTP (400) and for a body of more than
        ``MAX_BODY`` bytes (413).
        """
        try:
            event = await self._next_event()
            if not isinstance(event, h11.Request):
                return None
            head = _head(event)
            self._bodiless = head.method == "HEAD"
            return head, await self._body(head)
        except h11.RemoteProtocolError as error:
            raise BadRequestError(error.error_status_hint, str(error)) from error

    async def _next_event(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                # A client that goes on before it has its answer; nothing reads here then.
                return h11.ConnectionClosed()
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._stream.receive_some(_READ_SIZE))

    async def _body(self, head: RequestHead) -> bytes:
        announced = head.headers.get("content-length", "0")
        if int(announced) > MAX_BODY:
            raise BadRequestError(413, f"a request body ends at {MAX_BODY} bytes here", head)
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                raise BadRequestError(413, f"a request body ends at {MAX_BODY} bytes here", head)
        return bytes(body)

    async def play(self, answer: Answer) -> bool:
        """Carry out a planned answer; whether the connection can take another request."""
        if answer.status is not None:
            await self._send_head(answer.status, answer)
            await self._send_chunks(answer)
        if answer.ending == "silence":
            await self._until_gone()
        if answer.ending == "reset":
            self._arm_reset()
        if answer.ending != "whole":
            return False
        await self._send(h11.EndOfMessage())
        return self._recycle()

    async def refuse(self, answer: Answer) -> None:
        """Send an answer to a request that was not read to its end, then say no more."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        await self.play(answer)
        # Closing with bytes unread resets the connection, and a reset overtakes the answer.
        with trio.move_on_after(_LINGER_SECONDS):
            await self._stream.send_eof()
            await self._until_gone()

    async def _send_head(self, status: int, answer: Answer) -> None:
        length = () if answer.chunked else (("content-length", str(sum(map(len, answer.chunks)))),)
        await self._send(h11.Response(status_code=status, headers=[*answer.headers, *length]))

    async def _send_chunks(self, answer: Answer) -> None:
        for number, chunk in enumerate(answer.chunks):
            if number and answer.chunk_delay:
                await trio.sleep(answer.chunk_delay)
            if not self._bodiless:
                await self._send(h11.Data(data=chunk))

    async def _send(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")

    def _recycle(self) -> bool:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    def _arm_reset(self) -> None:
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _until_gone(self) -> None:
        with suppress(trio.BrokenResourceError):
            while await self._stream.receive_some(_READ_SIZE):
                pass


def _head(event: h11.Request) -> RequestHead:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    method, target = event.method.decode("ascii"), event.target.decode("latin-1")
    return RequestHead(method=method, target=target, headers=headers)
