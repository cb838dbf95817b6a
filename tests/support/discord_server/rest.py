"""The REST interface: what a bot asks for, and what it is told, faults included."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.support.discord_server.faults import Cut, Fault, Scripted
from tests.support.discord_server.gateway import Gateway
from tests.support.discord_server.world import BOT, TOKEN, Channel, Json, Message, World, snowflake

PREFIX = "/api/v10"
MOST_OF_A_PAGE = 100
BODY = web.RequestKey("body", dict)
MOST_CHARACTERS = 2000
UNKNOWN_CHANNEL, UNKNOWN_MESSAGE, INVALID_FORM, UNKNOWN_WEBHOOK = 10003, 10008, 50035, 10015
UNKNOWN_EMOJI, OF_ANOTHER_AUTHOR = 10014, 50005
DEFERRED_UPDATE = 6
"""The type of a callback that says a press was taken."""

Answer = Callable[[web.Request], Awaitable["Told"]]


@dataclass(frozen=True)
class Told:
    """An answer: JSON, or nothing with 204."""

    body: Any = None
    status: int = 200


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Json
    kind: str
    authorization: str


class Refused(Exception):
    """The server says no, with Discord's own code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.told = Told({"message": message, "code": code}, status)


class Rest:
    """Serves requests; ``asked`` keeps them all."""

    def __init__(self, world: World, gateway: Gateway) -> None:
        self._world = world
        self._gateway = gateway
        self.asked: list[Asked] = []
        self.faults: list[Scripted] = []
        self.typed: list[int] = []
        self.said_to_interactions: dict[str, list[Json]] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return every route that a bot of ours needs."""
        routes: list[tuple[str, str, str, Answer]] = [
            ("GET", "/users/@me", "me", self._me),
            ("GET", "/oauth2/applications/@me", "application", self._application),
            ("GET", "/gateway/bot", "gateway", self._where),
            ("PUT", "/applications/{application}/commands", "commands", self._commands),
            ("GET", "/channels/{channel}", "channel", self._channel),
            ("GET", "/channels/{channel}/messages", "history", self._history),
            ("POST", "/channels/{channel}/messages", "messages", self._post),
            ("GET", "/channels/{channel}/messages/{message}", "message", self._message),
            ("PATCH", "/channels/{channel}/messages/{message}", "edit", self._edit),
            ("PUT", "/channels/{channel}/messages/{message}/reactions/{emoji}/@me", "reaction", self._react),
            ("POST", "/channels/{channel}/typing", "typing", self._typing),
            ("POST", "/interactions/{interaction}/{token}/callback", "callback", self._callback),
            ("PATCH", "/webhooks/{application}/{token}/messages/@original", "original", self._original),
        ]
        return [web.route(method, PREFIX + path, self._guarded(kind, answer)) for method, path, kind, answer in routes]

    def _guarded(self, kind: str, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def respond(request: web.Request) -> web.StreamResponse:
            asked = await self._note(request, kind)
            fault = self._fault(asked, int(request.match_info.get("channel", 0)))
            if fault is not None and fault.cut is Cut.BEFORE:
                return _cut(request)
            if fault is not None and fault.cut is Cut.HELD_BEFORE:
                await asyncio.Event().wait()
            told = Told(fault.body(), fault.status) if fault is not None else None
            if fault is None or fault.does_it:
                done = await self._answer(answer, request, asked)
                told = told or done
            if fault is not None and fault.cut is Cut.HELD_AFTER:
                await asyncio.Event().wait()
            if fault is not None and fault.cut is Cut.AFTER:
                return _cut(request)
            assert told is not None
            return _response(told, fault.headers if fault is not None else {})

        return respond

    async def _answer(self, answer: Answer, request: web.Request, asked: Asked) -> Told:
        open_to_all = asked.kind in ("callback", "original")
        if not open_to_all and asked.authorization != f"Bot {TOKEN}":
            return Told({"message": "401: Unauthorized", "code": 0}, 401)
        try:
            return await answer(request)
        except Refused as refused:
            return refused.told

    async def _note(self, request: web.Request, kind: str) -> Asked:
        body = await _body(request)
        request[BODY] = body
        headers = request.headers.get("Authorization", "")
        asked = Asked(request.method, request.path, dict(request.query), body, kind, headers)
        self.asked.append(asked)
        return asked

    def _fault(self, asked: Asked, channel: int) -> Fault | None:
        for scripted in self.faults:
            if scripted.serves(asked.method, asked.kind, channel):
                scripted.times -= 1
                return scripted.fault
        return None

    async def _me(self, _: web.Request) -> Told:
        return Told({**BOT.json(), "verified": True, "mfa_enabled": False, "flags": 0})

    async def _application(self, _: web.Request) -> Told:
        told = {"id": str(BOT.id), "name": BOT.name, "description": "", "icon": None, "summary": "", "flags": 0}
        return Told(
            {**told, "bot_public": True, "bot_require_code_grant": False, "verify_key": "", "owner": BOT.json()}
        )

    async def _where(self, _: web.Request) -> Told:
        limit = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
        return Told({"url": self._gateway.url, "shards": 1, "session_start_limit": limit})

    async def _commands(self, request: web.Request) -> Told:
        given = {"application_id": str(BOT.id), "version": "1", "default_member_permissions": None}
        wanted: list[Json] = request[BODY]["list"]
        self._world.commands = [{**given, **one, "id": str(snowflake())} for one in wanted]
        return Told(self._world.commands)

    async def _channel(self, request: web.Request) -> Told:
        return Told(self._found(request).json())

    async def _history(self, request: web.Request) -> Told:
        """Return a page, the newest message first, as Discord does whatever was asked for."""
        messages = self._found(request).messages
        limit = min(int(request.query.get("limit", 50)), MOST_OF_A_PAGE)
        before, after = int(request.query.get("before", 1 << 63)), int(request.query.get("after", 0))
        fitting = [message for message in messages if after < message.id < before]
        page = fitting[:limit] if "after" in request.query else fitting[-limit:]
        return Told([message.json() for message in reversed(page)])

    async def _message(self, request: web.Request) -> Told:
        return Told(self._meant(request).json())

    async def _edit(self, request: web.Request) -> Told:
        """Change a message, which only its author may; what is not named stays as it is."""
        message, said = self._meant(request), request[BODY]
        if message.author != BOT:
            raise Refused(403, OF_ANOTHER_AUTHOR, "Cannot edit a message authored by another user")
        if len(said.get("content") or "") > MOST_CHARACTERS:
            raise Refused(400, INVALID_FORM, "Invalid Form Body")
        message.content, message.edited = said.get("content", message.content), datetime.now(UTC)
        message.components = said.get("components", message.components)
        message.allowed_mentions = said.get("allowed_mentions")
        await self._gateway.dispatch("MESSAGE_UPDATE", self._world.told(message))
        return Told(message.json())

    async def _react(self, request: web.Request) -> Told:
        emoji, message = request.match_info["emoji"], self._meant(request)
        if emoji.isascii() and not emoji.rpartition(":")[2].isdecimal():
            raise Refused(400, UNKNOWN_EMOJI, "Unknown Emoji")
        if emoji not in message.reactions:
            message.reactions.append(emoji)
        return Told(status=204)

    async def _post(self, request: web.Request) -> Told:
        channel, said = self._found(request), request[BODY]
        files = said.get("files", {})
        if len(said.get("content") or "") > MOST_CHARACTERS:
            raise Refused(400, INVALID_FORM, "Invalid Form Body")
        if len(str(said.get("nonce", ""))) > 25:
            raise Refused(400, INVALID_FORM, "Invalid Form Body: nonce")
        sent = Message(
            snowflake(),
            channel.id,
            BOT,
            said.get("content") or "",
            attachments=[_attached(name, content) for name, content in files.items()],
            nonce=str(said.get("nonce", "")) if said.get("enforce_nonce") else "",
            reply_to=int(said.get("message_reference", {}).get("message_id", 0)),
            flags=said.get("flags", 0),
            allowed_mentions=said.get("allowed_mentions"),
            components=said.get("components", []),
        )
        kept, is_new = self._world.keep(sent)
        if is_new:
            await self._gateway.dispatch("MESSAGE_CREATE", self._world.told(kept))
        return Told(kept.json())

    async def _typing(self, request: web.Request) -> Told:
        self.typed.append(self._found(request).id)
        return Told(status=204)

    async def _callback(self, request: web.Request) -> Told:
        self.said_to_interactions.setdefault(request.match_info["token"], []).append(request[BODY])
        if request.query.get("with_response") not in ("1", "true"):
            return Told(status=204)
        kind = 3 if request[BODY]["type"] == DEFERRED_UPDATE else 2
        interaction = {"id": request.match_info["interaction"], "type": kind, "response_message_loading": True}
        return Told({"interaction": {**interaction, "response_message_ephemeral": True}})

    async def _original(self, request: web.Request) -> Told:
        token = request.match_info["token"]
        if token not in self.said_to_interactions:
            raise Refused(404, UNKNOWN_WEBHOOK, "Unknown Webhook")
        self.said_to_interactions[token].append(request[BODY])
        content = request[BODY].get("content") or ""
        channel = next(iter(self._world.channels.values()))
        return Told(Message(snowflake(), channel.id, BOT, content, webhook=True).json())

    def _meant(self, request: web.Request) -> Message:
        wanted = int(request.match_info["message"])
        for message in self._found(request).messages:
            if message.id == wanted:
                return message
        raise Refused(404, UNKNOWN_MESSAGE, "Unknown Message")

    def _found(self, request: web.Request) -> Channel:
        found = self._world.channels.get(int(request.match_info["channel"]))
        if found is None:
            raise Refused(404, UNKNOWN_CHANNEL, "Unknown Channel")
        return found


def _attached(name: str, content: bytes) -> Json:
    told = {
        "id": str(snowflake()),
        "filename": name.replace(" ", "_"),
        "size": len(content),
        "url": "",
        "proxy_url": "",
    }
    return {**told, "text": content.decode(errors="replace")}


async def _body(request: web.Request) -> Json:
    """Read JSON, or a form with the JSON in ``payload_json`` and files beside it; a list is put into ``list``."""
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        files = {one.filename: one.file.read() for one in form.values() if isinstance(one, web.FileField)}
        payload = form["payload_json"]
        assert isinstance(payload, str)
        return {**json.loads(payload), "files": files}
    text = await request.text()
    said = json.loads(text) if text else {}
    return {"list": said} if isinstance(said, list) else said


def _response(told: Told, headers: Mapping[str, str]) -> web.Response:
    """Write JSON; the library wants the content type without a charset."""
    if told.status == 204:
        return web.Response(status=204)
    body = json.dumps(told.body).encode()
    return web.Response(body=body, status=told.status, content_type="application/json", headers=headers)


def _cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
