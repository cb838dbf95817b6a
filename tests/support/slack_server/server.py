"""The server: every part of a local Slack on one port of the loopback interface."""

import asyncio
import contextlib
import json
import struct
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.slack_server.faults import Fault
from tests.support.slack_server.interactions import pressed, slash
from tests.support.slack_server.signing import signature
from tests.support.slack_server.socket_mode import Envelope, SocketMode
from tests.support.slack_server.web_api import SlackError, WebApi
from tests.support.slack_server.workspace import SIGNING_SECRET, TEAM, Json, SlackFile, Workspace

PATIENCE = 60.0


@dataclass(frozen=True)
class Call:
    """One call of the Web API: its method, its arguments, and the moment of the monotonic clock."""

    method: str
    arguments: Json
    at: float = field(default_factory=time.monotonic)


class SlackServer:
    """A running local Slack; its methods are for the event loop it runs on."""

    def __init__(self) -> None:
        self.port = 0
        self.workspace = Workspace()
        self.socket = SocketMode()
        self.calls: list[Call] = []
        self.downloads: list[tuple[str, str]] = []
        """The path and the Authorization header of every file that was asked for."""
        self.api = WebApi(self.workspace, self.url, self._posted)
        self._faults: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
        self._held: dict[str, asyncio.Event] = {}
        self._news = asyncio.Condition()
        self._told: set[asyncio.Task[Envelope]] = set()

    @classmethod
    @asynccontextmanager
    async def running(cls, port: int = 0) -> AsyncIterator["SlackServer"]:
        """Serve on the running loop; port 0 takes a free one."""
        server = cls()
        runner = web.AppRunner(server._app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        server.port = runner.addresses[0][1]
        try:
            yield server
        finally:
            await server.socket.drop()
            await runner.cleanup()

    @property
    def api_url(self) -> str:
        """What ``connectors.slack.baseUrl`` is to be."""
        return self.url("/api/")

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    # What people do.

    async def say(
        self,
        channel: str,
        user: str,
        text: str,
        *,
        thread: str = "",
        files: Sequence[str] = (),
        told: bool = True,
        **extra: Any,
    ) -> str:
        """Write a message and return its time; unless it is ``told``, the app is not told of it."""
        message = self.write(channel, user, text, thread=thread, files=files, **extra)
        if told:
            await self.tell(channel, message)
        return str(message["ts"])

    def write(
        self, channel: str, user: str, text: str, *, thread: str = "", files: Sequence[str] = (), **extra: Any
    ) -> Json:
        """Write a message of which the app is not told."""
        fields: Json = {"user": user, "text": text, **extra}
        if thread:
            fields["thread_ts"] = thread
        if files:
            fields |= {"subtype": "file_share", "files": [self.workspace.files[one].described() for one in files]}
        return self.workspace.add(channel, fields)

    async def tell(self, channel: str, message: Json, kind: str = "message") -> Envelope:
        """Tell the app of a message, as an event of this type."""
        return await self.socket.send("events_api", self.event(channel, message, kind))

    def event(self, channel: str, message: Json, kind: str = "message") -> Json:
        """Return the event that tells of a message."""
        direct = "im" if channel.startswith("D") else "channel"
        about = {**message, "type": kind, "channel": channel, "channel_type": direct, "event_ts": message["ts"]}
        return {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": "A0MAESTRO",
            "event_id": f"Ev{self.workspace.number():08d}",
            "event_time": int(time.time()),
            "event": about,
        }

    async def edit(self, channel: str, ts: str, text: str) -> Envelope:
        """Change the text of a message."""
        message = self.workspace.find(channel, ts)
        assert message is not None
        before = dict(message)
        edited = self.workspace.ts()
        message.update(text=text, edited={"user": message["user"], "ts": edited})
        changed = {"subtype": "message_changed", "message": dict(message), "previous_message": before, "ts": edited}
        return await self.tell(channel, changed)

    async def press(self, channel: str, user: str, message: Json, number: int = 0) -> Envelope:
        """Press a button of a message, counted from 0."""
        return await self.socket.send("interactive", pressed(self.workspace, channel, user, message, number))

    async def command(self, channel: str, user: str, command: str, text: str = "") -> Envelope:
        """Use a slash command."""
        return await self.socket.send("slash_commands", slash(self.workspace, channel, user, command, text))

    def file(self, name: str, content: bytes, mimetype: str, *, url: str = "", size: int = 0) -> str:
        """Keep a file and return its id; without a ``url`` it is at this server."""
        file_id = f"F{self.workspace.number():08d}"
        where = url or self.url(f"/files-pri/{file_id}")
        self.workspace.files[file_id] = SlackFile(file_id, name, content, mimetype, where, size)
        return file_id

    async def post(
        self, url: str, body: bytes, *, secret: str = SIGNING_SECRET, at: int | None = None, **headers: str
    ) -> int:
        """Send a signed request to the app, as the Events API does, and return the status of its answer."""
        return (await self.post_answer(url, body, secret=secret, at=at, **headers))[0]

    async def post_answer(
        self, url: str, body: bytes, *, secret: str = SIGNING_SECRET, at: int | None = None, **headers: str
    ) -> tuple[int, str]:
        """Send a signed request to the app and return status and text of its answer."""
        timestamp = str(int(time.time()) if at is None else at)
        all_headers = {
            "Content-Type": "application/json",
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": signature(secret, timestamp, body),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=all_headers) as response:
            return response.status, await response.text()

    # What goes wrong.

    def fail(self, method: str, *faults: Fault, skip: int = 0) -> None:
        """Let the next calls of a method fail, one after another, once ``skip`` of them went well."""
        self._faults[method].extend([*[None] * skip, *faults])

    def hold(self, method: str) -> None:
        """Let calls of a method wait for ``release``."""
        self._held[method] = asyncio.Event()

    def release(self, method: str) -> None:
        """Answer the calls that wait."""
        self._held.pop(method).set()

    # What the app did.

    def called(self, method: str) -> list[Call]:
        """Return the calls of a method so far, in order."""
        return [call for call in self.calls if call.method == method]

    def posted(self, channel: str, thread: str | None = None) -> list[Json]:
        """Return what the app has posted in a channel, or in one thread of it."""
        found = [one for one in self.workspace.messages[channel] if "bot_id" in one and one["user"] == "U0BOT"]
        return found if thread is None else [one for one in found if one.get("thread_ts", "") == thread]

    async def posts(self, channel: str, count: int = 1, thread: str | None = None) -> list[Json]:
        """Return what the app has posted in a channel once there is so much of it."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.posted(channel, thread)) >= count)
        return self.posted(channel, thread)

    async def until_called(self, method: str, count: int = 1) -> list[Call]:
        """Return the calls of a method once there are so many."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.called(method)) >= count)
        return self.called(method)

    async def connected(self, count: int = 1) -> None:
        """Return when the app listens, over at least the given number of sockets in turn."""
        async with asyncio.timeout(PATIENCE):
            await self.socket.connected(count)

    async def acknowledged(self, envelope: Envelope) -> None:
        """Return when the app has acknowledged an envelope."""
        async with asyncio.timeout(PATIENCE):
            await envelope.acknowledged.wait()

    # How it answers.

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/link/", self.socket.serve)
        app.router.add_post("/upload/v1/{file}", self._upload)
        app.router.add_get("/files-pri/{file}", self._download)
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method, arguments = request.match_info["method"], await _arguments(request)
        async with self._news:
            self.calls.append(Call(method, arguments))
            self._news.notify_all()
        if method in self._held:
            await self._held[method].wait()
        queue = self._faults[method]
        fault = queue.popleft() if queue else None
        answer: Json = {"ok": True}
        if fault is None or fault.stores:
            answer = self._done(method, arguments, request.headers.get("Authorization", ""))
        async with self._news:
            self._news.notify_all()
        if fault is not None and fault.silent:
            await asyncio.Event().wait()
        response = _answered(request, answer, fault)
        response.headers["X-OAuth-Scopes"] = ",".join(sorted(self.workspace.scopes))
        return response

    def _done(self, method: str, arguments: Json, authorization: str) -> Json:
        tokens = {self.workspace.app_token} if method == "apps.connections.open" else self.workspace.bot_tokens
        if authorization.removeprefix("Bearer ") not in tokens:
            return {"ok": False, "error": "invalid_auth"}
        try:
            return {"ok": True, **self.api.call(method, arguments)}
        except SlackError as error:
            return {"ok": False, "error": str(error)}

    async def _upload(self, request: web.Request) -> web.Response:
        self.workspace.files[request.match_info["file"]].content = await request.read()
        return web.Response(text="OK")

    async def _download(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        self.downloads.append((request.path, authorization))
        file = self.workspace.files.get(request.match_info["file"])
        if file is None:
            return web.Response(status=404)
        if authorization.removeprefix("Bearer ") not in self.workspace.bot_tokens:
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        return web.Response(body=file.content, content_type=file.mimetype)

    def _posted(self, channel: str, message: Json) -> None:
        """Tell the app of its own message, as Slack does."""
        telling = asyncio.get_running_loop().create_task(self.tell(channel, message))
        self._told.add(telling)
        telling.add_done_callback(self._told.discard)


async def _arguments(request: web.Request) -> Json:
    """Return the arguments of a call, wherever the SDK has put them: query, form or JSON."""
    arguments: Json = dict(request.query)
    if request.content_type == "application/json":
        with contextlib.suppress(json.JSONDecodeError):
            arguments |= await request.json()
    elif request.method == "POST":
        arguments |= dict(await request.post())
    return arguments


def _answered(request: web.Request, answer: Json, fault: Fault | None) -> web.StreamResponse:
    if fault is None:
        return web.json_response(answer)
    if fault.cut:
        return _reset(request)
    headers = {"Retry-After": str(fault.retry_after)} if fault.status == 429 else {}
    if fault.error:
        needed = {"needed": fault.needed} if fault.needed else {}
        return web.json_response({"ok": False, "error": fault.error, **needed}, status=fault.status, headers=headers)
    return web.Response(status=fault.status, text="<html>upstream</html>", content_type="text/html")


def _reset(request: web.Request) -> web.Response:
    transport = request.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return web.Response()
