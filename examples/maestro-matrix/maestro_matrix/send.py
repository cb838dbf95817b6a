"""Sends to Matrix: each message under its key, without mentions and link previews."""

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
from maestro_matrix.receive import BOTS, event_time
from maestro_matrix.render import html

KEY = "org.maestro.key"
"""The field of a sent message with its key, by which it is found after the homeserver forgot the transaction id."""
KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}
SKEW = timedelta(minutes=5)
"""The greatest expected difference between the homeserver's clock and the local clock."""
MAX_SEARCHED = 500
"""The most events of a room that are read in the search for a sent message."""


async def post(server: Homeserver, message: OutgoingMessage, *, quote: bool) -> Receipt:
    """Send a chunk or a file; raises a ``SendFailure``. A repeated key returns the message that was sent before."""
    fields = await _file_content(server, message) if message.filename else text(message)
    content = {**fields, KEY: message.key, **relation(message, quote=quote)}
    try:
        sent = await server.put(message.address.channel, EventType.ROOM_MESSAGE, message.key, content)
    except MatrixTrouble as trouble:
        raise send_failure(trouble) from None
    return Receipt(platform_message_id=sent)


async def edit(server: Homeserver, message: OutgoingMessage) -> None:
    """Replace the text of a sent message; raises a ``SendFailure``.

    Each edit has a new transaction id: the homeserver accepts an id once, and an edit may restore an earlier text.
    """
    fields = text(message)
    replaced = {"rel_type": "m.replace", "event_id": message.edits}
    content = {**fields, "body": f"* {fields['body']}", "m.new_content": fields, "m.relates_to": replaced}
    try:
        await server.put(message.address.channel, EventType.ROOM_MESSAGE, f"edit-{uuid.uuid4().hex}", content)
    except MatrixTrouble as trouble:
        raise send_failure(trouble) from None


async def react(server: Homeserver, address: Address, message_id: str, emoji: str) -> None:
    """Add a reaction to a message, once; raises a ``SendFailure``."""
    key = f"react-{hashlib.sha256(message_id.encode()).hexdigest()}"
    content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": message_id, "key": emoji}}
    try:
        await server.put(address.channel, EventType.REACTION, key, content)
    except MatrixTrouble as trouble:
        if not isinstance(trouble, Refused) or trouble.code != DUPLICATE:
            raise send_failure(trouble) from None


async def find(server: Homeserver, user_id: str, message: OutgoingMessage) -> Receipt | None:
    """Find a sent message by its key among the messages since its first send attempt; raises a ``SendFailure``."""
    start, searched = "", 0
    while searched < MAX_SEARCHED:
        try:
            page = await server.earlier(message.address.channel, start)
        except MatrixTrouble as trouble:
            raise send_failure(trouble) from None
        for event in page.get("chunk") or ():
            if event.get("sender") == user_id and event["content"].get(KEY) == message.key:
                return Receipt(platform_message_id=str(event["event_id"]))
            if message.tried_at is not None and event_time(event) < message.tried_at - SKEW:
                return None
            searched += 1
        start = str(page.get("end") or "")
        if not start:
            return None
    raise AmbiguousSend(f"the message is not among the last {MAX_SEARCHED} events of the room")


def text(message: OutgoingMessage) -> Json:
    """Return the content of a text message.

    A notice has the type ``m.notice``, which bots do not answer and clients do not announce; an answer has ``m.text``.
    """
    return {"msgtype": BOTS if message.notice else "m.text", "body": message.content, **_format_fields(message.content)}


def relation(message: OutgoingMessage, *, quote: bool) -> Mapping[str, Json]:
    """Return the relation of a message to its thread and to the quoted message."""
    thread, answered = message.address.thread, message.reply_to if quote else ""
    quoted = {"m.in_reply_to": {"event_id": answered or thread}}
    if thread:
        return {"m.relates_to": {"rel_type": "m.thread", "event_id": thread, "is_falling_back": not answered, **quoted}}
    return {"m.relates_to": quoted} if answered else {}


async def _file_content(server: Homeserver, message: OutgoingMessage) -> Json:
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
        **_format_fields(caption),
    }


def _format_fields(content: str) -> Json:
    """Return the fields for the HTML, for no mentions and, in clients that support it, for no link previews."""
    rendered = html(content) if content else ""
    formatted = {"format": "org.matrix.custom.html", "formatted_body": rendered} if rendered else {}
    return {**formatted, "m.mentions": {}, "com.beeper.linkpreviews": []}
