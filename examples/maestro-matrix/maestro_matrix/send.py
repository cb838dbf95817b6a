"""The way out: one message under its key, with nobody mentioned and no link looked at."""

import asyncio
import hashlib
import uuid
from collections.abc import Mapping
from datetime import timedelta

from mautrix.types import EventType

from connectors.failures import AmbiguousSend
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro_matrix.errors import DUPLICATE, MatrixTrouble, Refused, send_failure
from maestro_matrix.homeserver import Homeserver, Json
from maestro_matrix.receive import BOTS, moment
from maestro_matrix.render import html

KEY = "org.maestro.key"
"""Where our messages hold their key: homeservers forget which keys they have seen."""
KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}
SKEW = timedelta(minutes=5)
"""How far the homeserver's clock may be from ours."""
LOOKED_AT = 500
"""Events of a room that are looked at for one of ours."""


async def post(server: Homeserver, message: OutgoingMessage, *, quote: bool) -> Receipt:
    """Send a chunk or a file; raises a ``SendFailure``. A repeat gives the message that is there already."""
    said = await _file(server, message) if message.filename else text(message)
    content = {**said, KEY: message.key, **relation(message, quote=quote)}
    try:
        sent = await server.put(message.address.channel, EventType.ROOM_MESSAGE, message.key, content)
    except MatrixTrouble as trouble:
        raise send_failure(trouble) from None
    return Receipt(platform_message_id=sent)


async def edit(server: Homeserver, message: OutgoingMessage) -> None:
    """Let a message of ours say something else; raises a ``SendFailure``.

    Its key is new each time: the homeserver takes each only once, and a text may come back that stood there before.
    """
    said = text(message)
    replaced = {"rel_type": "m.replace", "event_id": message.edits}
    content = {**said, "body": f"* {said['body']}", "m.new_content": said, "m.relates_to": replaced}
    try:
        await server.put(message.address.channel, EventType.ROOM_MESSAGE, f"edit-{uuid.uuid4().hex}", content)
    except MatrixTrouble as trouble:
        raise send_failure(trouble) from None


async def react(server: Homeserver, address: Address, message_id: str, emoji: str) -> None:
    """Put an emoji to a message, once; raises a ``SendFailure``."""
    key = f"react-{hashlib.sha256(message_id.encode()).hexdigest()}"
    content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": message_id, "key": emoji}}
    try:
        await server.put(address.channel, EventType.REACTION, key, content)
    except MatrixTrouble as trouble:
        if not isinstance(trouble, Refused) or trouble.code != DUPLICATE:
            raise send_failure(trouble) from None


async def find(server: Homeserver, us: str, message: OutgoingMessage) -> Receipt | None:
    """Look for a message by its key, among those since it was first handed over; raises a ``SendFailure``."""
    start, looked_at = "", 0
    while looked_at < LOOKED_AT:
        try:
            page = await server.earlier(message.address.channel, start)
        except MatrixTrouble as trouble:
            raise send_failure(trouble) from None
        for event in page.get("chunk") or ():
            if event.get("sender") == us and event["content"].get(KEY) == message.key:
                return Receipt(platform_message_id=str(event["event_id"]))
            if message.tried_at is not None and moment(event) < message.tried_at - SKEW:
                return None
            looked_at += 1
        start = str(page.get("end") or "")
        if not start:
            return None
    raise AmbiguousSend(f"it is not among the last {LOOKED_AT} events of the room")


def text(message: OutgoingMessage) -> Json:
    """Return what a message says.

    ``m.notice`` is for what no program is to answer, and clients tell nobody that it came: an answer is ``m.text``.
    """
    return {"msgtype": BOTS if message.notice else "m.text", "body": message.content, **_shown(message.content)}


def relation(message: OutgoingMessage, *, quote: bool) -> Mapping[str, Json]:
    """Return where a message belongs: in a thread, and below what it quotes."""
    thread, answered = message.address.thread, message.reply_to if quote else ""
    quoted = {"m.in_reply_to": {"event_id": answered or thread}}
    if thread:
        return {"m.relates_to": {"rel_type": "m.thread", "event_id": thread, "is_falling_back": not answered, **quoted}}
    return {"m.relates_to": quoted} if answered else {}


async def _file(server: Homeserver, message: OutgoingMessage) -> Json:
    path = message.path
    data = await asyncio.to_thread(path.read_bytes) if path is not None else message.content.encode()
    kind = message.content_type or "text/plain"
    try:
        where = await server.upload(data, message.filename, kind)
    except MatrixTrouble as trouble:
        raise send_failure(trouble, spare_room=True) from None
    caption = message.content if path is not None else ""
    return {
        "msgtype": KINDS.get(kind.partition("/")[0], "m.file"),
        "body": caption or message.filename,
        "filename": message.filename,
        "url": where,
        "info": {"mimetype": kind, "size": len(data)},
        **_shown(caption),
    }


def _shown(content: str) -> Json:
    """Return how a text is formatted, that it mentions nobody, and, for clients that know of it, has no previews."""
    shown = html(content) if content else ""
    formatted = {"format": "org.matrix.custom.html", "formatted_body": shown} if shown else {}
    return {**formatted, "m.mentions": {}, "com.beeper.linkpreviews": []}
