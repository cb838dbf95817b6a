"""A local homeserver with the part of the client-server API that a bot needs, for tests with the real client."""

import asyncio
import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from matrix_story import ADA, BOT, NAME, Json, Room, Story

__all__ = ["ADA", "BOT", "NAME", "TOKEN", "Fault", "Homeserver", "Json"]

TOKEN = "syt_the_bots_own_TOKEN"
MOST_BYTES = 65_536
"""The largest event, by the specification."""


@dataclass(frozen=True)
class Fault:
    """A fault of a request; with ``stores`` the request is carried out first, with ``cut`` the connection breaks.

    The faulty answer waits until ``gate`` is set.
    """

    status: int = 500
    answer: Json = field(default_factory=dict)
    stores: bool = False
    cut: bool = False
    gate: asyncio.Event | None = None

    @classmethod
    def refused(cls, code: str, status: int = 403, **extra: Any) -> "Fault":
        """Return a refusal with this error code."""
        return cls(status, {"errcode": code, "error": "no", **extra})


class Homeserver(Story):
    """A running homeserver with the account of the bot; use the methods only on the homeserver's event loop.

    The positions in its event stream are opaque: they neither grow nor have equal lengths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.requests: list[tuple[str, str]] = []
        """The name, as in ``faults``, and the path of each request."""
        self.typing: list[tuple[str, bool]] = []
        self.files: dict[str, tuple[bytes, str]] = {}
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        """The next faults by request: whoami, sync, send, join, messages, upload, download."""
        self.remembers_keys = True
        self._places: dict[str, int] = {}
        self._keys: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Homeserver"]:
        """Serve on the running event loop, on a free port."""
        server = cls()
        runner = web.AppRunner(server._app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        try:
            yield server
        finally:
            await runner.cleanup()

    @property
    def url(self) -> str:
        """The value for ``baseUrl``."""
        return f"http://127.0.0.1:{self.port}"

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=100 * 1024**2, middlewares=[self._guarded])
        room = "/_matrix/client/v3/rooms/{room}"
        routes = {
            ("GET", "/_matrix/client/v3/account/whoami", "whoami"): self._whoami,
            ("GET", "/_matrix/client/v3/sync", "sync"): self._sync,
            ("POST", f"{room}/join", "join"): self._join,
            ("GET", f"{room}/joined_members", "members"): self._members,
            ("GET", f"{room}/messages", "messages"): self._messages,
            ("GET", room + "/event/{event}", "event"): self._event,
            ("GET", room + "/state/m.room.create", "create"): self._create,
            ("PUT", room + "/send/{kind}/{key}", "send"): self._send,
            ("PUT", room + "/typing/{user}", "typing"): self._typing,
            ("POST", "/_matrix/media/v3/upload", "upload"): self._upload,
            ("GET", "/_matrix/client/v1/media/download/{server}/{file}", "download"): self._download,
        }
        for (method, path, name), answer in routes.items():
            app.router.add_route(method, path, answer, name=name)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        name = str(getattr(request.match_info.route, "name", ""))
        self.requests.append((name, request.path))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error("M_UNKNOWN_TOKEN", 401)
        room = request.match_info.get("room")
        if room is not None and self.rooms.get(room, Room("")).members.get(BOT, ("",))[0] not in ("join", "invite"):
            return _error("M_FORBIDDEN", 403)
        fault = self.faults[name].popleft() if self.faults[name] else None
        if fault is None or fault.stores:
            done: web.StreamResponse = await handler(request)
        if fault is None:
            return done
        if fault.gate is not None:
            await fault.gate.wait()
        if fault.cut and request.transport is not None:
            request.transport.abort()
        return web.json_response(fault.answer, status=fault.status)

    async def _whoami(self, _: web.Request) -> web.Response:
        return web.json_response({"user_id": BOT, "device_id": "DEVICE"})

    async def _sync(self, request: web.Request) -> web.Response:
        word = request.query.get("since", "")
        if word and word not in self._places:
            return _error("M_INVALID_PARAM", 400)
        since, only = self._places.get(word, 0), json.loads(request.query["filter"])["room"]["timeline"]
        deadline = time.monotonic() + int(request.query["timeout"]) / 1000
        async with self.news:
            while word and len(self.events) == since and not self.again and (left := deadline - time.monotonic()) > 0:
                await self._wait(left)
            told = [(room, event) for room, event in self.events[since:] if self._sees(room)]
            again, self.again = self.again, []
        rooms = {room for room, _ in told + again} if word else {room for room in self.rooms if self._sees(room)}
        join = {room: self._timeline(room, since if word else 0, only, again) for room in rooms if self._in(room)}
        invite = {room: {"invite_state": {"events": self._invitation(room)}} for room in rooms if not self._in(room)}
        return web.json_response(
            {"next_batch": self._place(len(self.events)), "rooms": {"join": join, "invite": invite}}
        )

    async def _wait(self, seconds: float) -> None:
        """Wait for new events; ``listening`` counts the waiting polls."""
        self.listening += 1
        self.news.notify_all()
        try:
            async with asyncio.timeout(seconds):
                await self.news.wait()
        except TimeoutError:
            pass
        finally:
            self.listening -= 1

    def _timeline(self, room: str, since: int, only: Json, again: list[tuple[str, Json]]) -> Json:
        """Return the newest events of a room since ``since``, from its beginning if the bot has just joined."""
        at = range(since if not self._came(room, since) else 0, len(self.events))
        events = [(number, self.events[number][1]) for number in at if self.events[number][0] == room]
        wanted = [(number, event) for number, event in events if event["type"] in only["types"]]
        newest = wanted[-only["limit"] :]
        repeated = [event for place, event in again if place == room]
        told: Json = {"events": repeated + [event for _, event in newest], "limited": len(newest) < len(wanted)}
        told["prev_batch"] = self._place(newest[0][0] if newest else since)
        return {"timeline": told}

    async def _messages(self, request: web.Request) -> web.Response:
        start = self._places.get(request.query.get("from", ""), len(self.events))
        end = self._places.get(request.query.get("to", ""), 0)
        types, room = json.loads(request.query["filter"])["types"], request.match_info["room"]
        wanted = [at for at in range(end, start) if self.events[at][0] == room and self.events[at][1]["type"] in types]
        page = wanted[::-1][: int(request.query["limit"])]
        told: Json = {"start": self._place(start), "chunk": [self.events[at][1] for at in page]}
        return web.json_response(told | ({"end": self._place(page[-1])} if len(page) < len(wanted) else {}))

    async def _event(self, request: web.Request) -> web.Response:
        found = [event for _, event in self.events if event["event_id"] == request.match_info["event"]]
        return web.json_response(found[0]) if found else _error("M_NOT_FOUND", 404)

    async def _members(self, request: web.Request) -> web.Response:
        joined = self.rooms[request.match_info["room"]].joined()
        return web.json_response({"joined": {user: {"display_name": name} for user, name in joined.items()}})

    async def _create(self, request: web.Request) -> web.Response:
        before = self.rooms[request.match_info["room"]].predecessor
        return web.json_response({"predecessor": {"room_id": before}} if before else {})

    async def _join(self, request: web.Request) -> web.Response:
        room = request.match_info["room"]
        await self.member(room, BOT, "join")
        return web.json_response({"room_id": room})

    async def _send(self, request: web.Request) -> web.Response:
        content, known = await request.json(), self._keys.get(request.path)
        if known is None or not self.remembers_keys:
            if len(json.dumps(content, ensure_ascii=False).encode()) > MOST_BYTES:
                return _error("M_TOO_LARGE", 413)
            known = await self.event(request.match_info["room"], BOT, request.match_info["kind"], content)
            self._keys[request.path] = known
        return web.json_response({"event_id": known})

    async def _typing(self, request: web.Request) -> web.Response:
        self.typing.append((request.match_info["room"], (await request.json())["typing"]))
        return web.json_response({})

    async def _upload(self, request: web.Request) -> web.Response:
        name = secrets.token_hex(8)
        self.files[name] = (await request.read(), request.content_type)
        return web.json_response({"content_uri": f"mxc://{NAME}/{name}"})

    async def _download(self, request: web.Request) -> web.Response:
        data, kind = self.files[request.match_info["file"]]
        return web.Response(body=data, content_type=kind)

    def _place(self, at: int) -> str:
        word = secrets.token_urlsafe(4 + secrets.randbelow(20))
        self._places[word] = at
        return word

    def _in(self, room: str) -> bool:
        return self.rooms[room].members.get(BOT, ("",))[0] == "join"

    def _sees(self, room: str) -> bool:
        return self.rooms[room].members.get(BOT, ("",))[0] in ("join", "invite")

    def _came(self, room: str, since: int) -> bool:
        ours = self._ours(room, since)
        return any((one.get("unsigned") or {}).get("prev_content", {}).get("membership") != "join" for one in ours)

    def _ours(self, room: str, since: int = 0) -> Iterator[Json]:
        return (one for place, one in self.events[since:] if place == room and one.get("state_key") == BOT)

    def _invitation(self, room: str) -> list[Json]:
        return [{name: one[name] for name in ("type", "sender", "state_key", "content")} for one in self._ours(room)]


def _error(code: str, status: int) -> web.Response:
    return web.json_response({"errcode": code, "error": "no"}, status=status)
