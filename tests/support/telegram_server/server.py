"""The server: every part of a local Telegram on one port of the loopback interface."""

import asyncio
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

from tests.support.telegram_server.bot_api import ApiError, BotApi
from tests.support.telegram_server.bots import GROWING_TOKEN, HOLDING_TOKEN, OTHER_TOKEN, TOKEN, Bot
from tests.support.telegram_server.chats import Chats, Json, TelegramFile, entities
from tests.support.telegram_server.faults import Fault

PATIENCE = 60.0
HEADER = "X-Telegram-Bot-Api-Secret-Token"


@dataclass(frozen=True)
class Call:
    """One call: its method, its arguments, the bot's token, and the moment of the monotonic clock."""

    method: str
    arguments: Json
    token: str
    at: float = field(default_factory=time.monotonic)


class TelegramServer:
    """A running local Telegram; its methods are for the event loop it runs on."""

    def __init__(self) -> None:
        self.port = 0
        self.chats = Chats()
        self.api = BotApi(self.chats)
        names = {
            TOKEN: "maestro_bot",
            OTHER_TOKEN: "other_bot",
            HOLDING_TOKEN: "third_bot",
            GROWING_TOKEN: "fourth_bot",
        }
        self.bots = {token: Bot(token, name) for token, name in names.items()}
        self.calls: list[Call] = []
        self.downloads: list[str] = []
        """The path of every file that was asked for."""
        self._faults: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
        self._news = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def running(cls, port: int = 0) -> AsyncIterator["TelegramServer"]:
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
            await runner.cleanup()

    @property
    def root(self) -> str:
        """What ``connectors.telegram.baseUrl`` is to be."""
        return f"http://127.0.0.1:{self.port}"

    # What people do.

    async def say(self, chat: int, user: int, text: str, *, token: str = TOKEN, **extra: Any) -> int:
        """Write a message of which a bot is told; return its number."""
        message = self.chats.write(chat, user, text, **extra)
        await self.tell("message", message, token)
        return int(message["message_id"])

    async def send_file(self, chat: int, user: int, kind: str, file: TelegramFile, **extra: Any) -> int:
        """Send a file of this kind, ``caption`` below it; return the message's number."""
        shown = self.chats.shown(file, width=1, height=1, length=1, duration=1, **extra.pop("shown", {}))
        extra |= {kind: [shown] if kind == "photo" else shown, "caption_entities": entities(extra.get("caption", ""))}
        return await self.say(chat, user, "", **extra)

    async def edit(self, chat: int, number: int, text: str, token: str = TOKEN) -> None:
        """Change the text of a message."""
        message = self.chats.find(chat, number)
        assert message is not None
        message.update(text=text, entities=entities(text), edit_date=int(time.time()))
        await self.tell("edited_message", dict(message), token)

    async def press(self, chat: int, user: int, number: int, button: int, token: str = TOKEN) -> str:
        """Press a button below a message of the bot; return the id of the press."""
        message = self.chats.find(chat, number)
        assert message is not None
        data = message["reply_markup"]["inline_keyboard"][button][0]["callback_data"]
        press = f"{4_300_000_000_000_000_000 + self.chats.number()}"
        about = {"id": press, "from": self.chats.person(user), "message": message, "chat_instance": "1", "data": data}
        await self.tell("callback_query", about, token)
        return press

    async def tell(self, kind: str, about: Json, token: str = TOKEN) -> Json:
        """Tell a bot of something: where it has a webhook at once, else when it asks."""
        update = await self.bots[token].tell(kind, about)
        if self.bots[token].url:
            await self.push(token)
        return update

    async def push(self, token: str) -> None:
        """Post what waits to a bot's webhook, until it does not take something."""
        bot = self.bots[token]
        while bot.waiting and await self.post(bot.url, bot.waiting[0], bot.secret) == 200:
            bot.waiting.pop(0)

    async def post(self, url: str, update: Any, secret: str) -> int:
        """Post something to a webhook and return the status of the answer; bytes go as they are."""
        body: Any = {"data": update} if isinstance(update, bytes) else {"json": update}
        headers = {HEADER: secret, "Content-Type": "application/json"}
        async with aiohttp.ClientSession() as session, session.post(url, headers=headers, **body) as response:
            return response.status

    # What goes wrong.

    def fail(self, method: str, *faults: Fault, skip: int = 0) -> None:
        """Let the next calls of a method fail, one after another, once ``skip`` of them went well."""
        self._faults[method].extend([*[None] * skip, *faults])

    # What the bot did.

    def called(self, method: str) -> list[Call]:
        """Return the calls of a method so far, in order."""
        return [call for call in self.calls if call.method == method]

    def posted(self, chat: int) -> list[Json]:
        """Return what bots have sent to a chat."""
        return [one for one in self.chats.messages[chat] if one.get("from", {}).get("is_bot")]

    def texts(self, chat: int) -> list[str]:
        """Return the words that bots have sent to a chat."""
        return [str(one.get("text") or one.get("caption") or "") for one in self.posted(chat)]

    async def posts(self, chat: int, count: int = 1) -> list[Json]:
        """Return what bots have sent to a chat once there is so much of it."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.posted(chat)) >= count)
        return self.posted(chat)

    async def until_called(self, method: str, count: int = 1) -> Sequence[Call]:
        """Return the calls of a method once there are so many."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.called(method)) >= count)
        return self.called(method)

    # How it answers.

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", r"/bot{token:[0-9]+:[^/]+}/{method}", self._call)
        app.router.add_get(r"/file/bot{token:[0-9]+:[^/]+}/{path:.+}", self._download)
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method, token = request.match_info["method"], request.match_info["token"]
        call = Call(method, await _arguments(request), token)
        await self._note(call)
        queue = self._faults[method]
        fault = queue.popleft() if queue else None
        if fault is not None and fault.late:
            await asyncio.sleep(fault.late)
            fault = None
        done = self._refusal("Unauthorized", 401) if token not in self.bots else None
        if done is None and (fault is None or fault.stores):
            done = await self._done(call)
        await self._note()
        if fault is None:
            return done or web.Response(status=500)
        if fault.silent:
            await asyncio.Event().wait()
        return _reset(request) if fault.cut else self._failed(fault)

    async def _note(self, call: Call | None = None) -> None:
        async with self._news:
            self.calls += [call] if call is not None else []
            self._news.notify_all()

    async def _done(self, call: Call) -> web.Response:
        bot = self.bots[call.token]
        if call.method == "getUpdates":
            found = None if bot.url else await bot.updates(call.arguments)
            if found is None:
                return self._refusal("Conflict: terminated by other getUpdates request", 409)
            return web.json_response({"ok": True, "result": found})
        try:
            return web.json_response({"ok": True, "result": self.api.call(bot, call.method, call.arguments)})
        except ApiError as error:
            return self._refusal(f"Bad Request: {error}", 400)

    def _failed(self, fault: Fault) -> web.Response:
        if not fault.description:
            return web.Response(status=fault.status, text="<html>upstream</html>", content_type="text/html")
        return self._refusal(fault.description, fault.status, fault.parameters)

    def _refusal(self, description: str, status: int, parameters: Json | None = None) -> web.Response:
        said = {"ok": False, "error_code": status, "description": description}
        return web.json_response(said | ({"parameters": parameters} if parameters else {}), status=status)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        self.downloads.append(request.match_info["path"])
        found = [one for one in self.chats.files.values() if one.path == request.match_info["path"]]
        if not found or request.match_info["token"] not in self.bots:
            return web.Response(status=404)
        if found[0].redirect:
            raise web.HTTPFound(found[0].redirect)
        return web.Response(body=found[0].content, content_type="application/octet-stream")


async def _arguments(request: web.Request) -> Json:
    """Return what a call was sent with: texts as they are, files as a name and bytes."""
    form = await request.post()
    return {
        name: (value.filename, value.file.read()) if isinstance(value, web.FileField) else value
        for name, value in form.items()
    }


def _reset(request: web.Request) -> web.Response:
    transport = request.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return web.Response()
