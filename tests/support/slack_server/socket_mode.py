"""Socket Mode: envelopes go to one open socket, and come again under another id until they are acknowledged."""

import asyncio
import contextlib
import json
import uuid
from dataclasses import dataclass, field

from aiohttp import WSCloseCode, WSMsgType, web

from tests.support.slack_server.workspace import Json


@dataclass
class Envelope:
    """Something that an app is to be told, and how often it was."""

    kind: str
    payload: Json
    retries: int = 0
    ids: list[str] = field(default_factory=list)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    answers: list[Json | None] = field(default_factory=list)
    """What the app answered with each acknowledgement."""

    def frame(self) -> Json:
        """Return it under a new id."""
        self.ids.append(str(uuid.uuid4()))
        again = {"retry_attempt": self.retries, "retry_reason": "timeout"} if self.retries else {"retry_attempt": 0}
        return {
            "type": self.kind,
            "envelope_id": self.ids[-1],
            "payload": self.payload,
            "accepts_response_payload": self.kind == "slash_commands",
            **again,
        }


class SocketMode:
    """The sockets of the app and what was sent over them."""

    def __init__(self) -> None:
        self.sockets: list[web.WebSocketResponse] = []
        self.envelopes: list[Envelope] = []
        self.opened = 0
        """How many sockets there have been."""
        self.refusing = False
        """Whether new sockets are refused."""
        self._news = asyncio.Condition()

    async def connected(self, count: int) -> None:
        """Return when an app listens, over at least the given number of sockets in turn."""
        async with self._news:
            await self._news.wait_for(lambda: self.opened >= count and bool(self.sockets))

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Keep a socket, greeting first, until the app closes it."""
        if self.refusing:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0MAESTRO"}})
        await self._change(socket, there=True)
        await self.redeliver_all()
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._acknowledge(json.loads(message.data))
        finally:
            await self._change(socket, there=False)
        return socket

    async def send(self, kind: str, payload: Json) -> Envelope:
        """Tell the app, if it listens."""
        envelope = Envelope(kind, payload)
        self.envelopes.append(envelope)
        await self._deliver(envelope)
        return envelope

    async def redeliver(self, envelope: Envelope) -> None:
        """Tell the app again."""
        envelope.retries += 1
        await self._deliver(envelope)

    async def redeliver_all(self) -> None:
        """Tell the app again what it has not acknowledged."""
        for envelope in [one for one in self.envelopes if not one.acknowledged.is_set()]:
            await self.redeliver(envelope)

    async def refresh(self) -> None:
        """Ask the app to connect anew."""
        for socket in list(self.sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested", "debug_info": {}})

    async def drop(self) -> None:
        """Cut every socket without a word."""
        for socket in list(self.sockets):
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()

    async def close(self) -> None:
        """Close every socket politely."""
        for socket in list(self.sockets):
            with contextlib.suppress(ConnectionError):
                await socket.close(code=WSCloseCode.GOING_AWAY)

    async def _deliver(self, envelope: Envelope) -> None:
        for socket in reversed(self.sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_json(envelope.frame())
                return

    def _acknowledge(self, frame: Json) -> None:
        for envelope in self.envelopes:
            if frame.get("envelope_id") in envelope.ids:
                envelope.answers.append(frame.get("payload"))
                envelope.acknowledged.set()

    async def _change(self, socket: web.WebSocketResponse, *, there: bool) -> None:
        async with self._news:
            if there:
                self.opened += 1
                self.sockets.append(socket)
            else:
                self.sockets.remove(socket)
            self._news.notify_all()
