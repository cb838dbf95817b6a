"""The server: every part of a local WhatsApp on one port of the loopback interface."""

import asyncio
import struct
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from aiohttp import web

from tests.support.whatsapp_server.business import NUMBER_ID, Business, Json
from tests.support.whatsapp_server.faults import STATUSES, Fault
from tests.support.whatsapp_server.graph import UPLOADED, GraphError, check, check_message
from tests.support.whatsapp_server.posting import Posting, Postman

PATIENCE = 60.0
MESSAGES, MEDIA, NUMBER, LOOKUP = "messages", "media", "number", "lookup"


@dataclass(frozen=True)
class Call:
    """One call of the API: what was asked for, its arguments, and the moment of the monotonic clock."""

    kind: str
    arguments: Json
    at: float = field(default_factory=time.monotonic)


class WhatsAppServer:
    """A running local WhatsApp; its methods are for the event loop it runs on."""

    def __init__(self) -> None:
        self.port = 0
        self.business = Business()
        self.postman = Postman(self.business)
        self.calls: list[Call] = []
        self.downloads: list[tuple[str, str]] = []
        """The path and the Authorization header of every file that was asked for."""
        self.tells: tuple[str, ...] = ("sent", "delivered")
        """The statuses that follow each message, in this order."""
        self.may_answer = asyncio.Event()
        """Lets an answer go that a fault holds."""
        self._acts: Mapping[str, Callable[[Json], Json]] = {
            MESSAGES: self._send,
            "reaction": self._react,
            "receipt": self._read,
            MEDIA: self._keep,
            NUMBER: lambda asked: {**self.business.numbers[asked["id"]], "quality_rating": "GREEN"},
            LOOKUP: lambda asked: self.business.files[asked["id"]].described(asked["id"]),
        }
        self._faults: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
        self._news = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def running(cls, port: int = 0) -> AsyncIterator["WhatsAppServer"]:
        """Serve on the running loop; port 0 takes a free one."""
        server = cls()
        runner = web.AppRunner(server._app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.port = runner.addresses[0][1]
        server.postman.work()
        try:
            yield server
        finally:
            await server.postman.end()
            await runner.cleanup()

    @property
    def base_url(self) -> str:
        """What ``connectors.whatsapp.baseUrl`` is to be."""
        return f"http://127.0.0.1:{self.port}"

    # What people do.

    def say(self, person: str, text: str, *, number: str = NUMBER_ID, **extra: Any) -> str:
        """Let a person write; Meta posts it until the app has taken it. Returns the id of the message."""
        return self.tell(self.business.wrote(person, "text", {"body": text}, **extra), number)

    def tell(self, message: Json, number: str = NUMBER_ID) -> str:
        """Let Meta post a message, and return its id."""
        self.postman.post([message], number=number)
        return str(message["id"])

    def show(self, person: str, kind: str, media_id: str, **part: Any) -> str:
        """Let a person send a file that Meta has."""
        file = self.business.files[media_id]
        return self.tell(self.business.wrote(person, kind, {"id": media_id, "mime_type": file.mime_type, **part}))

    def press(self, person: str, sent: Json, number: int) -> str:
        """Let a person press a button of a message of ours."""
        action = sent["interactive"]["action"]
        context = {"context": {"from": "15550100001", "id": sent["id"]}}
        if sent["interactive"]["type"] == "button":
            reply = {"type": "button_reply", "button_reply": action["buttons"][number]["reply"]}
        else:
            reply = {"type": "list_reply", "list_reply": action["sections"][0]["rows"][number]}
        return self.tell(self.business.wrote(person, "interactive", reply, **context))

    def file(self, content: bytes, mime_type: str, *, url: str = "", size: int = 0, sha256: str = "") -> str:
        """Keep a file and return its id; without a ``url`` it is at this server."""
        media_id = self.business.file(content, mime_type)
        file = self.business.files[media_id]
        file.url, file.size, file.sha256 = url or f"{self.base_url}/files/{media_id}", size, sha256
        return media_id

    def report(self, sent: Json, *statuses: str, code: int = 0) -> Posting:
        """Tell what became of a message of ours, all in one request."""
        told = [self._status(sent, one, code) for one in statuses]
        return self.postman.post(statuses=told, number=sent["number"])

    # What goes wrong.

    def fail(self, kind: str, *faults: Fault, skip: int = 0) -> None:
        """Let the next calls of a kind fail, one after another, once ``skip`` of them went well."""
        self._faults[kind].extend([*[None] * skip, *faults])

    # What the app did.

    def called(self, kind: str) -> list[Call]:
        """Return the calls of a kind so far, in order; for ``messages`` only those that say something to somebody."""
        return [call for call in self.calls if call.kind == kind]

    def sent(self, person: str) -> list[Json]:
        """Return what the number has sent to a person."""
        return self.business.sent[person]

    def texts(self, person: str) -> list[str]:
        """Return the texts that the number has sent to a person, those with buttons too."""
        return [text_of(one) for one in self.sent(person)]

    async def posts(self, person: str, count: int = 1) -> list[Json]:
        """Return what the number has sent to a person once there is so much of it."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.sent(person)) >= count)
        return self.sent(person)

    async def until_called(self, kind: str, count: int = 1) -> list[Call]:
        """Return the calls of a kind once there are so many."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.called(kind)) >= count)
        return self.called(kind)

    async def taken(self, *postings: Posting) -> None:
        """Return when the app has taken these requests, or all there are."""
        async with asyncio.timeout(PATIENCE):
            for one in postings or list(self.postman.postings):
                await one.taken.wait()

    # How it answers.

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=128 * 1024**2)
        app.router.add_get("/files/{file}", self._download)
        app.router.add_post("/{version}/{number}/messages", self._message)
        app.router.add_post("/{version}/{number}/media", self._upload)
        app.router.add_get("/{version}/{id}", self._look)
        return app

    async def _message(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        kind = "receipt" if body.get("status") == "read" else "reaction" if body.get("type") == "reaction" else MESSAGES
        return await self._answer(request, kind, {**body, "number": request.match_info["number"]})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        content = file.file.read()
        arguments = {**{name: form[name] for name in form if name != "file"}, "content": content, "name": file.filename}
        return await self._answer(request, MEDIA, arguments)

    async def _look(self, request: web.Request) -> web.StreamResponse:
        wanted = request.match_info["id"]
        kind = LOOKUP if wanted in self.business.files else NUMBER
        return await self._answer(request, kind, {"id": wanted, **request.query})

    async def _answer(self, request: web.Request, kind: str, arguments: Json) -> web.StreamResponse:
        async with self._news:
            self.calls.append(Call(kind, arguments))
            self._news.notify_all()
        fault = self._faults[kind].popleft() if self._faults[kind] else None
        status, answer = 200, Json()
        if fault is None or fault.stores:
            status, answer = self._done(request, kind, arguments)
        async with self._news:
            self._news.notify_all()
        if fault is not None and fault.silent:
            await asyncio.Event().wait()
        if fault is not None and fault.held:
            await self.may_answer.wait()
        return _failed(request, fault) if fault is not None and not fault.held else _json(answer, status)

    def _done(self, request: web.Request, kind: str, arguments: Json) -> tuple[int, Json]:
        number = request.match_info.get("number", arguments.get("id"))
        try:
            check(request.headers.get("Authorization", "").removeprefix("Bearer ") in self.business.tokens, 190)
            if number not in self.business.numbers and number not in self.business.files:
                return 400, _error(100, 33)
            return 200, self._acts[kind](arguments)
        except GraphError as error:
            return STATUSES.get(error.code, 400), _error(error.code)

    def _send(self, arguments: Json) -> Json:
        body = {name: value for name, value in arguments.items() if name != "number"}
        check_message(self.business, body)
        person = str(body.get("to") or body["recipient"])
        sent = {**body, "id": self.business.wamid(), "number": arguments["number"]}
        self.business.sent[person].append(sent)
        for status in self.tells:
            self.report(sent, status)
        return {
            "messaging_product": "whatsapp",
            "contacts": [{"input": person, "wa_id": person}],
            "messages": [{"id": sent["id"], "message_status": "accepted"}],
        }

    def _react(self, body: Json) -> Json:
        check_message(self.business, body)
        self.business.reactions.append(body)
        return {"messages": [{"id": self.business.wamid()}]}

    def _read(self, body: Json) -> Json:
        check(str(body.get("message_id")).startswith("wamid."))
        self.business.read.append(body)
        return {"success": True}

    def _keep(self, form: Json) -> Json:
        check(form.get("messaging_product") == "whatsapp" and form.get("type") in UPLOADED)
        return {"id": self.business.file(form["content"], form["type"])}

    def _status(self, sent: Json, status: str, code: int) -> Json:
        person = str(sent.get("to") or sent.get("recipient"))
        told: Json = {"id": sent["id"], "status": status, "timestamp": str(int(time.time())), "recipient_id": person}
        if "biz_opaque_callback_data" in sent:
            told["biz_opaque_callback_data"] = sent["biz_opaque_callback_data"]
        if status == "failed":
            told["errors"] = [{"code": code, "title": f"{person} cannot", "error_data": {"details": f"to {person}"}}]
        return told

    async def _download(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        self.downloads.append((request.path, authorization))
        file = self.business.files.get(request.match_info["file"])
        if file is None:
            return web.Response(status=404)
        if authorization.removeprefix("Bearer ") not in self.business.tokens:
            return web.Response(status=401)
        return web.Response(body=file.content, content_type=file.mime_type)


def text_of(sent: Json) -> str:
    """Return what a message of ours says, "" for a file without a caption."""
    kind = sent["type"]
    if kind == "text":
        return str(sent["text"]["body"])
    if kind == "interactive":
        return str(sent["interactive"]["body"]["text"])
    if kind == "template":
        return str(sent["template"]["components"][0]["parameters"][0]["text"])
    return str(sent[kind].get("caption", ""))


def _error(code: int, subcode: int = 0) -> Json:
    """Return an error as Meta writes it: it quotes whom and what it is about."""
    told: Json = {"message": f"(#{code}) to 4915112345", "type": "OAuthException", "code": code, "fbtrace_id": "A1b"}
    return {"error": {**told, "error_subcode": subcode} if subcode else told}


def _json(answer: Json, status: int) -> web.Response:
    return web.json_response(answer, status=status)


def _failed(request: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.cut:
        return _reset(request)
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    if fault.code >= 0:
        return web.json_response(_error(fault.code, fault.subcode), status=fault.status, headers=headers)
    return web.Response(status=fault.status, text=fault.text, content_type="text/html")


def _reset(request: web.Request) -> web.Response:
    transport = request.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return web.Response()
