"""The client of Slack's Web API: sends, edits and searches. Each call is made once, and its failure is classified."""

import logging
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import PurePath
from typing import Any, cast

from aiohttp import ClientConnectorError, ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from connectors.account import read_content
from connectors.failures import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from connectors.markdown import (
    SEPARATED_TICKS,
    SHORT_MARKS,
    TICKS,
    ZERO_WIDTH,
    MarkdownDialect,
    render_lines,
    split_markdown,
)
from connectors.slack.platform import BOT_TOKEN
from maestro.domain.messages import OutgoingMessage, Receipt
from maestro.domain.network import LOCAL_NAMES

NO_THREAD = "thread_not_found"
MISSING_SCOPE = "missing_scope"
ACCOUNT = frozenset(
    {
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required"),
        *(MISSING_SCOPE, "not_allowed_token_type", "ekm_access_denied"),
        *("team_access_not_granted", "two_factor_setup_required", "accesslimited", "invalid_token"),
    }
)
"""Errors that only the operator can fix: the token is invalid or lacks permissions."""
CHANNEL = frozenset(
    {
        *("channel_not_found", "not_in_channel", "is_archived", "restricted_action", "messages_tab_disabled"),
        *("restricted_action_read_only_channel", "restricted_action_non_threadable_channel", "user_not_found"),
        *("cannot_dm_bot", "user_disabled", "team_not_found", "channel_is_limited_access", "is_inactive"),
    }
)
"""Errors with which every message to the channel would fail; a locked thread is not among them."""
DENIED = frozenset({"no_permission", "access_denied"})
"""Errors that concern the channel if the call named one, else the account."""
UNKNOWN_OUTCOME = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
"""Errors after which, by Slack's documentation, the call may have taken effect in part."""
BUSY = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

DEFAULT_RETRY_AFTER = timedelta(seconds=30)
"""The wait after a rate limit for which Slack names no time."""

BASE_URL = AsyncWebClient.BASE_URL
CALL_SECONDS = 20
"""The timeout of one call, in seconds."""

Fields = Mapping[str, Any]

_IN_URL = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "&": "&amp;"})

MAX_BUTTONS = 25
"""The most buttons in one row of actions."""
LABEL_CHARS = 75
SECTION_CHARS = 3_000
"""The most characters in one section block of a message."""

EVENT_TYPE = "maestro_delivery"
"""The event type in the metadata of sent messages, which other apps can see."""
SKEW = timedelta(minutes=5)
"""The greatest expected difference between Slack's clock and the local clock."""
CONTENT_SKEW = timedelta(seconds=30)
"""The clock difference allowed for a message without metadata; an older message with equal text is a different one."""
PAGE = 200
_REWRITTEN = re.compile(r"[<>\s]|:[a-z0-9_+'-]+:|[\u200d\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")
"""The parts of a text that Slack rewrites after a send: the brackets of links, white space, emoji."""


def answer_failure(
    status: int, answer: Fields, retry_after: str, *, token: str = "", optional: bool = False
) -> SendFailure:
    """Translate an unsuccessful answer into a send failure; ``retry_after`` is the header Retry-After or "".

    ``token`` names the option of the token used, for calls that concern the whole account. ``optional`` marks calls
    that need an optional scope, for example files and reactions: without that scope the account can still send
    messages.
    """
    code = str(answer.get("error") or "")
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in BUSY:
        after = timedelta(seconds=int(retry_after)) if retry_after.isdecimal() else DEFAULT_RETRY_AFTER
        return RetryableSend(f"Slack asked to wait {after.total_seconds():g} s", after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or not code or code in UNKNOWN_OUTCOME:
        return AmbiguousSend(f"Slack answered {status}" + (f" with the error {code}" if code else ""))
    needed = str(answer.get("needed") or "")
    lacks_optional_scope = optional and code == MISSING_SCOPE
    if (code in ACCOUNT or (token and code in DENIED)) and not lacks_optional_scope:
        return PermanentSend(_describe_fix(code, needed, token or BOT_TOKEN), FailureScope.ACCOUNT, code)
    scope = FailureScope.CHANNEL if code in CHANNEL | DENIED else FailureScope.MESSAGE
    return PermanentSend(f"Slack reports {code}" + (f": the scope {needed} is missing" if needed else ""), scope, code)


def _describe_fix(code: str, needed: str, token: str) -> str:
    if code == MISSING_SCOPE:
        scope = needed or "it needs"
        return f"the {token} lacks the scope {scope}: add it on the app's page and install the app again"
    if code in ("account_inactive", "token_revoked", "token_expired"):
        return f"Slack reports {code}: install the app again and set the new {token}"
    return f"Slack reports {code}: check the {token}"


def search_failure(failure: SendFailure) -> SendFailure:
    """Translate a failed search for a sent message into an ``AmbiguousSend``, because Slack did not answer.

    If Slack refused the search, for example because the app may not read the channel, the failure is permanent.
    """
    if isinstance(failure, PermanentSend):
        return PermanentSend(f"Slack refused the search for the message: {failure}", failure.scope, failure.code)
    unknown = AmbiguousSend(f"the search for the message in Slack failed: {failure}")
    unknown.retry_after = failure.retry_after
    return unknown


def silent_logger() -> logging.Logger:
    """Return a logger that logs nothing: the library would log users' messages and addresses with tickets."""
    return logging.Logger("slack_sdk", logging.CRITICAL + 1)


def make_client(token: str, base_url: str = "") -> AsyncWebClient:
    """Return a client that never retries by itself.

    The library's own handlers would post a message twice after a broken connection. The caller waits for rate limits
    (docs/invariants.md: one layer retries).
    """
    client = AsyncWebClient(
        token, base_url=base_url or BASE_URL, timeout=CALL_SECONDS, retry_handlers=[], logger=silent_logger()
    )
    if URL(client.base_url).host in LOCAL_NAMES:
        client.proxy = None  # The library would use the environment's proxy even for local servers.
    return client


async def call_slack(call: Awaitable[AsyncSlackResponse], *, token: str = "", optional: bool = False) -> Fields:
    """Await a call and return the fields of the answer; raises a ``SendFailure``."""
    with slack_errors(token=token, optional=optional):
        return cast("Fields", (await call).data)


@contextmanager
def slack_errors(*, token: str = "", optional: bool = False) -> Iterator[None]:
    """Translate the library's errors into a ``SendFailure`` that quotes no messages or tokens."""
    try:
        yield
    except SlackApiError as error:
        response = error.response
        if not isinstance(response, AsyncSlackResponse):
            raise AmbiguousSend("Slack's answer could not be read") from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = response.data if isinstance(response.data, dict) else {}
        retry_after = headers.get("retry-after", "")
        raise answer_failure(response.status_code, answer, retry_after, token=token, optional=optional) from None
    except ClientConnectorError as error:
        raise NotDispatched(f"Slack cannot be reached ({type(error).__name__})") from None
    except (ClientError, SlackClientError, TimeoutError, OSError) as error:
        raise AmbiguousSend(f"the connection to Slack broke ({type(error).__name__})") from None


def render_mrkdwn(text: str) -> str:
    """Return Markdown text in Slack's markup, mrkdwn; line breaks stay, so that the text can be split at them."""
    return "\n".join(render_lines(text, DIALECT))


def escape_text(text: str) -> str:
    """Return plain text with Slack's control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _render_link(label: str, url: str) -> str:
    text = escape_text(label).replace("|", "¦")
    return f"<{url.translate(_IN_URL)}|{text}>" if label.strip() else f"<{url.translate(_IN_URL)}>"


DIALECT = MarkdownDialect(
    plain=escape_text,
    # mrkdwn has no escape: a zero-width character after a mark keeps Slack from interpreting the mark.
    literal=lambda mark: escape_text(mark) + (ZERO_WIDTH if mark in "*_~`" else ""),
    code=lambda text: f"`{escape_text(text)}`",
    block=lambda line: escape_text(line).replace(TICKS, SEPARATED_TICKS),
    link=_render_link,
    around=SHORT_MARKS,
)


def button_blocks(message: OutgoingMessage) -> Sequence[dict[str, Any]]:
    """Return the blocks of a chunk with buttons, which Slack shows instead of its text; none without buttons."""
    if not message.buttons:
        return ()
    parts = split_markdown(message.content, SECTION_CHARS, lambda text: len(render_mrkdwn(text)))
    # ``verbatim`` keeps Slack from linking names and channels.
    texts = [{"type": "mrkdwn", "text": render_mrkdwn(part), "verbatim": True} for part in parts]
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


async def post_message(web: AsyncWebClient, message: OutgoingMessage) -> Receipt:
    """Post a message without mentions and link previews; raises a ``SendFailure``."""
    answer = await call_slack(
        web.chat_postMessage(
            channel=message.address.channel,
            text=render_mrkdwn(message.content),
            thread_ts=message.address.thread or None,
            blocks=button_blocks(message) or None,
            metadata=key_metadata(message),
            unfurl_links=False,
            unfurl_media=False,
        )
    )
    return Receipt(platform_message_id=str(answer["ts"]))


async def edit_message(web: AsyncWebClient, message: OutgoingMessage) -> None:
    """Edit a sent message without changing its key; raises a ``SendFailure``."""
    await call_slack(
        web.chat_update(
            channel=message.address.channel,
            ts=message.edits,
            text=render_mrkdwn(message.content),
            blocks=button_blocks(message),
            metadata=key_metadata(message),
            link_names=False,
        )
    )


async def upload_file(web: AsyncWebClient, message: OutgoingMessage) -> Receipt:
    """Send a file with its caption, under a name that contains the key; raises a ``SendFailure``."""
    caption = render_mrkdwn(message.content) if message.path is not None else ""
    content = await read_content(message)
    with slack_errors(optional=True):
        answer = await web.files_upload_v2(
            content=content,
            filename=file_name_with_key(message),
            title=message.filename,
            initial_comment=caption or None,
            channel=message.address.channel,
            thread_ts=message.address.thread or None,
        )
    files: list[Mapping[str, Any]] = answer.get("files") or []
    return Receipt(platform_message_id=str(files[0]["id"]) if files else file_name_with_key(message))


async def find_sent_message(web: AsyncWebClient, message: OutgoingMessage) -> Receipt | None:
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


def _has_same_text(post: Fields, message: OutgoingMessage) -> bool:
    """Tell whether a bot's message without metadata has the same text and is not older than the send."""
    if message.filename or message.tried_at is None or post.get("metadata") or not post.get("bot_id"):
        return False
    if float(post["ts"]) < (message.tried_at - CONTENT_SKEW).timestamp():
        return False
    expected = _REWRITTEN.sub(
        "", render_mrkdwn(message.content)
    )  # A text of emoji alone cannot be compared, and is empty here.
    return bool(expected) and expected == _REWRITTEN.sub("", str(post.get("text") or ""))


def key_metadata(message: OutgoingMessage) -> dict[str, Any]:
    return {"event_type": EVENT_TYPE, "event_payload": {"key": message.key}}


def file_name_with_key(message: OutgoingMessage) -> str:
    """Return the file name with the message's key, by which a search finds the file."""
    path = PurePath(message.filename)
    return f"{path.stem}-{message.key}{path.suffix}"


def _matching_ids(page: Fields, message: OutgoingMessage) -> Iterator[str]:
    """Yield Slack's ids of the messages or files on a page that have the message's key."""
    for post in page.get("messages") or ():
        if message.filename:
            yield from (
                str(file["id"]) for file in post.get("files") or () if file.get("name") == file_name_with_key(message)
            )
        elif ((post.get("metadata") or {}).get("event_payload") or {}).get("key") == message.key:
            yield str(post["ts"])
