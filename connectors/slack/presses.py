"""Buttons: how they are put below a message, and what happens when somebody presses one."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from connectors.base import ConnectorContext
from connectors.slack.config import PLATFORM
from connectors.slack.errors import SlackTrouble
from connectors.slack.receive import TS, Event, Us, is_direct, moment
from connectors.slack.render import mrkdwn
from connectors.splitting import split
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import Address, Button, IncomingMessage, OutgoingMessage

MOST = 25
"""Buttons in one row of actions."""
LABEL_CHARS = 75
SECTION_CHARS = 3_000
"""Characters of the longest section of a message with blocks."""
PRESSED = "block_actions"
GONE = "This button is for nothing any more."
NOT_FOR_YOU = "This is for somebody else to answer."

log = structlog.get_logger(__name__)

Block = dict[str, Any]


@dataclass(frozen=True)
class Press:
    """A button that somebody pressed: the key and the number it has, and the message that it says, still empty."""

    key: str
    number: int
    message: IncomingMessage


class Whispers(Protocol):
    """Who tells a person something that nobody else sees."""

    def __call__(self, address: Address, user_id: str, text: str) -> Awaitable[None]:
        """Tell it; raises a ``SlackTrouble``."""
        ...


def blocks_of(message: OutgoingMessage) -> Sequence[Block]:
    """Return a chunk as the blocks that Slack shows instead of its text; none where it has no buttons."""
    if not message.buttons:
        return ()
    parts = split(message.content, SECTION_CHARS, lambda text: len(mrkdwn(text)))
    drawn = [_drawn(message.key, number, button) for number, button in enumerate(message.buttons[:MOST])]
    return [*map(_section, parts), {"type": "actions", "elements": drawn}]


def pressed(payload: Event, us: Us) -> Press | None:
    """Return the press that Slack tells of, None for what is none of a button of ours.

    It mentions nobody: from somebody who was not asked it is no line for an agent.
    """
    action = next((one for one in payload.get("actions") or () if one.get("type") == "button"), None)
    if payload.get("type") != PRESSED or action is None:
        return None
    key, _, number = str(action.get("value") or "").rpartition(":")
    channel, at = str((payload.get("channel") or {}).get("id") or ""), str(action.get("action_ts") or "")
    below, user = payload.get("message") or {}, payload.get("user") or {}
    ts = str(below.get("ts") or "")
    if not (key and number.isascii() and number.isdecimal() and channel and TS.fullmatch(ts) and TS.fullmatch(at)):
        return None
    message = IncomingMessage(
        id=f"{ts}:{at}",
        address=Address(platform=PLATFORM, account=us.account, channel=channel, thread=_thread(below, ts)),
        user_id=str(user.get("id") or ""),
        user_name=str(user.get("name") or user.get("username") or ""),
        sent_at=moment(at),
        is_direct=is_direct(channel),
        reply_to=ts,
    )
    return Press(key, int(number), message)


class Presses:
    """Hands presses to Maestro; what it raises means that Slack is not to be told that we have them."""

    def __init__(self, context: ConnectorContext, us: Us, whisper: Whispers) -> None:
        self._context = context
        self._us = us
        self._whisper = whisper
        self._whispering: set[asyncio.Task[None]] = set()

    async def press(self, payload: Event) -> None:
        """Take in a press; who pressed what is for nothing any more, or for somebody else, alone sees so."""
        press = pressed(payload, self._us)
        if press is None:
            return
        says = await self._context.pressed(press.key, press.number)
        if says is None:
            self._tell(press.message, GONE)
            return
        try:
            accepted = await self._context.accept(press.message.model_copy(update={"content": says}))
        except InvalidMessage as error:
            log.info("slack.press_refused", channel=press.message.address.channel, reason=str(error))
            return
        if accepted.ignored:
            self._tell(press.message, NOT_FOR_YOU)

    def _tell(self, message: IncomingMessage, text: str) -> None:
        """Say it in the background: Slack waits three seconds for its own answer."""
        task = asyncio.create_task(self._say(message, text))
        self._whispering.add(task)
        task.add_done_callback(self._whispering.discard)

    async def _say(self, message: IncomingMessage, text: str) -> None:
        try:
            await self._whisper(message.address, message.user_id, text)
        except SlackTrouble as trouble:
            log.warning("slack.press_not_answered", reason=str(trouble))


def _thread(below: Event, ts: str) -> str:
    """Return the thread in which a message was posted; one with replies names itself."""
    thread = str(below.get("thread_ts") or "")
    return thread if thread != ts else ""


def _section(text: str) -> Block:
    """Return a part of a text; ``verbatim`` keeps Slack from finding names and channels in it."""
    shown = {"type": "mrkdwn", "text": mrkdwn(text), "verbatim": True}
    return {"type": "section", "expand": True, "text": shown}


def _drawn(key: str, number: int, button: Button) -> Block:
    label = {"type": "plain_text", "text": button.label[:LABEL_CHARS], "emoji": False}
    name = f"{key}:{number}"
    return {"type": "button", "action_id": name, "value": name, "text": label}
