"""The gateway: one socket per bot, sessions that can be resumed, and every event in order."""

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.discord_server.world import BOT, TOKEN, Json, World

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
HEARTBEAT_MS = 41_250
MESSAGE_CONTENT = 1 << 15
WRONG_TOKEN, MISSING_INTENTS = 4004, 4014


@dataclass(frozen=True)
class Line:
    """A socket, and what it runs over."""

    socket: web.WebSocketResponse
    transport: asyncio.BaseTransport | None


@dataclass
class Session:
    """What a socket was told, so that it can be told again after a RESUME."""

    id: str
    intents: int
    sent: list[Json] = field(default_factory=list)
    line: Line | None = None

    async def tell(self, event: str, data: Json) -> None:
        """Dispatch an event, and remember it for a RESUME."""
        frame = {"op": DISPATCH, "t": event, "s": len(self.sent) + 1, "d": data}
        self.sent.append(frame)
        await self._write(frame)

    async def again(self, after: int) -> None:
        """Dispatch what came after a number once more."""
        for frame in self.sent[after:]:
            await self._write(frame)

    async def _write(self, frame: Json) -> None:
        if self.line is not None and not self.line.socket.closed:
            with contextlib.suppress(ConnectionError):
                await self.line.socket.send_str(json.dumps(frame))


class Gateway:
    """Serves sockets; its methods run on the server's loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = itertools.count(1)
        self._sessions: dict[str, Session] = {}
        self.privileged = True
        self.refusing = False
        self._lines: set[Line] = set()
        self.identified: list[Json] = []
        self.greeted = 0
        self.resumed = 0
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Talk to one socket until it is closed."""
        if self.refusing:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"op": HELLO, "d": {"heartbeat_interval": HEARTBEAT_MS}}))
        line = Line(socket, request.transport)
        self._lines.add(line)
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    await self._hear(line, json.loads(frame.data))
        finally:
            self._lines.discard(line)
        return socket

    @property
    def connected(self) -> int:
        """How many sockets are open."""
        return len(self._lines)

    async def dispatch(self, event: str, data: Json) -> None:
        """Tell every session of an event; one whose socket is away hears of it when it resumes."""
        for session in list(self._sessions.values()):
            await session.tell(event, _as_intended(event, data, session.intents))

    async def drop(self) -> None:
        """Cut every socket; sessions can be resumed."""
        for line in list(self._lines):
            if isinstance(line.transport, asyncio.Transport):
                line.transport.abort()

    async def ask_to_reconnect(self) -> None:
        """Send op 7."""
        await self._all({"op": RECONNECT, "d": None})

    async def invalidate(self) -> None:
        """Forget every session and say so with op 9: what happens until the next IDENTIFY is told to nobody."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session._write({"op": INVALID, "d": False})

    async def forget(self) -> None:
        """Forget every session silently, as for a bot that was away for long."""
        self._sessions = {}

    async def _all(self, frame: Json) -> None:
        for session in self._sessions.values():
            await session._write(frame)

    async def _hear(self, line: Line, frame: Json) -> None:
        if frame["op"] == HEARTBEAT:
            await line.socket.send_str(json.dumps({"op": ACK, "d": None}))
        elif frame["op"] == IDENTIFY:
            await self._identify(line, frame["d"])
        elif frame["op"] == RESUME:
            await self._resume(line, frame["d"])

    async def _identify(self, line: Line, said: Json) -> None:
        self.identified.append(said)
        if said["token"] != TOKEN:
            await line.socket.close(code=WRONG_TOKEN, message=b"Authentication failed.")
            return
        if said["intents"] & MESSAGE_CONTENT and not self.privileged:
            await line.socket.close(code=MISSING_INTENTS, message=b"Disallowed intent(s).")
            return
        session = Session(f"session-{next(self._numbers)}", said["intents"], line=line)
        self._sessions = {session.id: session}
        await session.tell("READY", self._ready(session))
        await session.tell("GUILD_CREATE", self._world.guild())
        self.greeted += 1

    async def _resume(self, line: Line, said: Json) -> None:
        session = self._sessions.get(said["session_id"])
        if session is None:
            await line.socket.send_str(json.dumps({"op": INVALID, "d": False}))
            return
        self.resumed += 1
        session.line = line
        await session.again(said["seq"])
        await session.tell("RESUMED", {})

    def _ready(self, session: Session) -> Json:
        return {
            "v": 10,
            "user": BOT.json(),
            "guilds": [{"id": str(self._world.guild_id), "unavailable": True}],
            "private_channels": [],
            "session_id": session.id,
            "resume_gateway_url": self.url,
            "application": {"id": str(BOT.id), "flags": 0},
        }


def _as_intended(event: str, data: Json, intents: int) -> Json:
    """Leave out what may not be read without the privileged intent, but in direct messages and where we are meant."""
    hidden: dict[str, Any] = {"content": "", "attachments": [], "embeds": []}
    mentioned = any(user["id"] == str(BOT.id) for user in data.get("mentions", ()))
    readable = intents & MESSAGE_CONTENT or not data.get("guild_id") or mentioned
    return data if readable or not event.startswith("MESSAGE_") else {**data, **hidden}
