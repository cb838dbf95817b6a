"""Sends to Slack: Markdown as mrkdwn, buttons as blocks, files, and the search for a sent message by its key."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import PurePath
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from connectors.failures import PermanentSend
from connectors.markdown import SEPARATED_TICKS, SHORT_MARKS, TICKS, ZERO_WIDTH, MarkdownDialect, render_lines
from connectors.media import read_content
from connectors.slack.api import Fields, call_slack, slack_errors
from connectors.splitting import split
from maestro.domain.messages import Address, OutgoingMessage, Receipt

_IN_URL = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "&": "&amp;"})

MAX_BUTTONS = 25
"""Buttons in one row of actions."""
LABEL_CHARS = 75
SECTION_CHARS = 3_000
"""Characters of the longest section of a message with blocks."""

EVENT_TYPE = "maestro_delivery"
"""The event type in the metadata of sent messages, which other apps can see."""
SKEW = timedelta(minutes=5)
"""The greatest expected difference between Slack's clock and the local clock."""
CONTENT_SKEW = timedelta(seconds=30)
"""The clock difference allowed for messages without metadata: an earlier message with equal text is another one."""
PAGE = 200
_REWRITTEN = re.compile(r"[<>\s]|:[a-z0-9_+'-]+:|[\u200d\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")
"""The parts of a text that Slack rewrites after a send: the brackets of links, white space, emoji."""


def mrkdwn(text: str) -> str:
    """Return the text as mrkdwn; line breaks stay, so that the text can be split at them."""
    return "\n".join(render_lines(text, DIALECT))


def escape(text: str) -> str:
    """Return plain text with Slack's control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _render_link(label: str, url: str) -> str:
    text = escape(label).replace("|", "¦")
    return f"<{url.translate(_IN_URL)}|{text}>" if label.strip() else f"<{url.translate(_IN_URL)}>"


DIALECT = MarkdownDialect(
    plain=escape,
    # mrkdwn has no escape: a zero-width character after a mark keeps Slack from interpreting the mark.
    literal=lambda mark: escape(mark) + (ZERO_WIDTH if mark in "*_~`" else ""),
    code=lambda text: f"`{escape(text)}`",
    block=lambda line: escape(line).replace(TICKS, SEPARATED_TICKS),
    link=_render_link,
    around=SHORT_MARKS,
)


def button_blocks(message: OutgoingMessage) -> Sequence[dict[str, Any]]:
    """Return the blocks of a chunk with buttons, which Slack shows instead of its text; none without buttons."""
    if not message.buttons:
        return ()
    parts = split(message.content, SECTION_CHARS, lambda text: len(mrkdwn(text)))
    # ``verbatim`` keeps Slack from linking names and channels.
    texts = [{"type": "mrkdwn", "text": mrkdwn(part), "verbatim": True} for part in parts]
    buttons = [
        {
            "type": "button",
            "action_id": f"{message.key}:{number}",
            "value": f"{message.key}:{number}",
            "text": {"type": "plain_text", "text": button.label[:LABEL_CHARS], "emoji": False},
        }
        for number, button in enumerate(message.buttons[:MAX_BUTTONS])
    ]
    sections = [{"type": "section", "expand": True, "text": text} for text in texts]
    return [*sections, {"type": "actions", "elements": buttons}]


async def post(web: AsyncWebClient, message: OutgoingMessage) -> Receipt:
    """Post a message without mentions and link previews; raises a ``SendFailure``."""
    answer = await call_slack(
        web.chat_postMessage(
            channel=message.address.channel,
            text=mrkdwn(message.content),
            thread_ts=message.address.thread or None,
            blocks=button_blocks(message) or None,
            metadata=_metadata(message),
            unfurl_links=False,
            unfurl_media=False,
        )
    )
    return Receipt(platform_message_id=str(answer["ts"]))


async def edit(web: AsyncWebClient, message: OutgoingMessage) -> None:
    """Edit a sent message without changing its key; raises a ``SendFailure``."""
    await call_slack(
        web.chat_update(
            channel=message.address.channel,
            ts=message.edits,
            text=mrkdwn(message.content),
            blocks=button_blocks(message),
            metadata=_metadata(message),
            link_names=False,
        )
    )


async def react(web: AsyncWebClient, address: Address, message_id: str, emoji: str) -> None:
    """Add a reaction to a message, which may have it already; raises a ``SendFailure``."""
    try:
        await call_slack(web.reactions_add(channel=address.channel, timestamp=message_id, name=emoji), optional=True)
    except PermanentSend as refused:
        if refused.code != "already_reacted":
            raise


async def post_to_user(web: AsyncWebClient, address: Address, user_id: str, text: str) -> None:
    """Post a text that is visible to one user only; raises a ``SendFailure``."""
    await call_slack(
        web.chat_postEphemeral(
            channel=address.channel, user=user_id, text=escape(text), thread_ts=address.thread or None
        )
    )


async def upload(web: AsyncWebClient, message: OutgoingMessage) -> Receipt:
    """Send a file with its caption, under a name that contains the key; raises a ``SendFailure``."""
    caption = mrkdwn(message.content) if message.path is not None else ""
    content = await read_content(message)
    with slack_errors(optional=True):
        answer = await web.files_upload_v2(
            content=content,
            filename=keyed_name(message),
            title=message.filename,
            initial_comment=caption or None,
            channel=message.address.channel,
            thread_ts=message.address.thread or None,
        )
    files: list[Mapping[str, Any]] = answer.get("files") or []
    return Receipt(platform_message_id=str(files[0]["id"]) if files else keyed_name(message))


async def find(web: AsyncWebClient, message: OutgoingMessage) -> Receipt | None:
    """Find a sent message by its key, searching from the first send attempt on; raises a ``SendFailure``.

    A message without metadata is found by its content and time. A file appears in the channel with a delay; until then
    it is not found.
    """
    address = message.address
    since = f"{(message.tried_at - SKEW).timestamp():.6f}" if message.tried_at else "0"
    read = partial(web.conversations_history, channel=address.channel)
    if address.thread:
        read = partial(web.conversations_replies, channel=address.channel, ts=address.thread)
    cursor, alike = "", list[Fields]()
    while True:
        page = await call_slack(
            read(oldest=since, limit=PAGE, include_all_metadata=True, cursor=cursor or None), optional=True
        )
        for message_id in _matching_ids(page, message):
            return Receipt(platform_message_id=message_id)
        alike.extend(post for post in page.get("messages") or () if _has_same_text(post, message))
        cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
        if not cursor:
            break
    bot_id = (await call_slack(web.auth_test(), optional=True)).get("bot_id") if alike else None
    own_ids = (str(post["ts"]) for post in alike if post["bot_id"] == bot_id)
    return next((Receipt(platform_message_id=ts) for ts in own_ids), None)


async def show_typing(web: AsyncWebClient, address: Address) -> None:
    """Show a typing status in a thread; Slack removes the status after two minutes or with the answer."""
    await call_slack(
        web.assistant_threads_setStatus(channel_id=address.channel, thread_ts=address.thread, status="is typing…")
    )


def _has_same_text(post: Fields, message: OutgoingMessage) -> bool:
    """Tell whether a bot's message without metadata has the same text and is not older than the send."""
    if message.filename or message.tried_at is None or post.get("metadata") or not post.get("bot_id"):
        return False
    if float(post["ts"]) < (message.tried_at - CONTENT_SKEW).timestamp():
        return False
    expected = _REWRITTEN.sub("", mrkdwn(message.content))  # empty if the text is emoji alone, which cannot be compared
    return bool(expected) and expected == _REWRITTEN.sub("", str(post.get("text") or ""))


def _metadata(message: OutgoingMessage) -> dict[str, Any]:
    return {"event_type": EVENT_TYPE, "event_payload": {"key": message.key}}


def keyed_name(message: OutgoingMessage) -> str:
    """Return the file name with the message's key, by which a search finds the file."""
    path = PurePath(message.filename)
    return f"{path.stem}-{message.key}{path.suffix}"


def _matching_ids(page: Fields, message: OutgoingMessage) -> Iterator[str]:
    """Yield Slack's ids of the messages or files on a page that have the message's key."""
    for post in page.get("messages") or ():
        if message.filename:
            yield from (str(file["id"]) for file in post.get("files") or () if file.get("name") == keyed_name(message))
        elif ((post.get("metadata") or {}).get("event_payload") or {}).get("key") == message.key:
            yield str(post["ts"])
