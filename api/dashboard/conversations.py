"""The pages of conversations, and the page of the agent chat (#maestro)."""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import read_filters, read_query, submit, without_empty
from api.dashboard.jobs.job import excerpt
from api.dashboard.pages import not_modified, redirect_to_page, refusal_page, render
from api.guards import OPERATOR, Number, Parts, PasswordRoute, request_parts, require_chat
from api.parts import AgentChat
from maestro.domain.agent_chat import CHANNEL, HUMAN
from maestro.domain.columns import LARGEST
from maestro.domain.conversations.conversation import ConversationStatus
from maestro.domain.conversations.views import (
    ConversationDetail,
    ConversationPage,
    excerpt_around,
    list_events,
    message_view,
)
from maestro.domain.errors import MaestroError
from maestro.domain.values import SearchText, Value, read
from maestro.operations.conversations import ConversationQuery
from maestro.store.transaction import Transaction

PAGE = "/conversations"
HERE = "conversations"
FILTERS = ("q", "platform", "agent", "status", "user", "channel")
NOTICES = {
    "deleted": "The conversation was deleted with all its messages.",
    "closed": "The conversation has ended: the next message starts a new one.",
}
"""Notices after a completed form; the page's address holds only their keys, so that it cannot inject a text."""
MESSAGES = 50
"""The most messages or search results on a page."""
TOTAL_CHARS = 40_000
"""The most characters of all messages on a page together; a cut message has a link to its full text."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

RowId = Annotated[int, Field(ge=0, le=LARGEST)]

CHAT_PAGE = "/maestro"
POSTS = 200
"""The most posts that the page shows at first; a script loads earlier ones on request."""

chat_router = APIRouter(route_class=PasswordRoute, include_in_schema=False)
posting = APIRouter(route_class=PasswordRoute, include_in_schema=False)
"""The router for new posts, added to the app only if the configuration enables the agent chat."""


@router.get("")
def show_conversations(request: Request, parts: Parts, done: str = "") -> Response:
    """List the conversations, the most recently used first; an error in the filter is shown above the form."""
    if same := not_modified(request):
        return same
    filters, cursor = read_filters(request, FILTERS), request.query_params.get("cursor", "")
    query, problem = read_query(ConversationQuery, {**filters, "cursor": cursor})
    with parts.store.view() as tx:
        platforms, agents = tx.conversations.lists.list_platforms(), tx.agents.list_agent_slugs()
    return render(
        request,
        "conversations.html",
        filters=filters,
        page=ConversationPage(items=(), next=None) if problem else parts.conversations.list(query),
        first=not cursor,
        platforms=platforms,
        agents=agents,
        states=tuple(ConversationStatus),
        notice=NOTICES.get(done, ""),
        problem=problem,
    )


class MessagesQuery(Value):
    """The part of a conversation to show: messages that contain ``q``, or consecutive messages.

    Consecutive messages are those ``after`` or ``before`` a message id, those around the source of a ``fact``, or the
    newest. ``whole`` is the id of a message to show in full.
    """

    q: SearchText | None = None
    cursor: RowId | None = None
    after: RowId | None = None
    before: RowId | None = None
    fact: RowId | None = None
    whole: RowId | None = None


@router.get("/{conversation_id}")
def show_conversation(request: Request, conversation_id: Number, done: str = "") -> Response:
    """Show a conversation as a chat, by default its newest messages, or the messages that a search found."""
    return not_modified(request) or _conversation_page(request, conversation_id, notice=NOTICES.get(done, ""))


@router.post("/{conversation_id}/close")
def close_conversation(request: Request, parts: Parts, conversation_id: Number) -> Response:
    """End a conversation, and redirect to its page."""
    return submit(
        lambda: parts.conversations.close(conversation_id, OPERATOR),
        lambda _: redirect_to_page(f"{PAGE}/{conversation_id}", done="closed"),
        lambda error: _conversation_page(request, conversation_id, error),
    )


@router.get("/{conversation_id}/delete")
def confirm_deletion(request: Request, conversation_id: Number) -> HTMLResponse:
    """Show what a deletion of the conversation removes and what stays, and ask for confirmation."""
    return _deletion_page(request, conversation_id)


@router.post("/{conversation_id}/delete")
def delete_conversation(
    request: Request, parts: Parts, conversation_id: Number, facts: Annotated[bool, Form()] = False
) -> Response:
    """Delete a conversation and redirect to the list; an error is shown on the confirmation page."""
    return submit(
        lambda: parts.conversations.delete(conversation_id, OPERATOR, facts),
        lambda _: redirect_to_page(PAGE, done="deleted"),
        lambda error: _deletion_page(request, conversation_id, error),
    )


def _conversation_page(
    request: Request, conversation_id: int, problem: MaestroError | None = None, *, notice: str = ""
) -> HTMLResponse:
    try:
        with request_parts(request).store.view() as tx:
            query = read(MessagesQuery, without_empty(read_filters(request, MessagesQuery.model_fields)))
            conversation = tx.conversations.lists.build_conversation_detail(conversation_id)
            content = _find_messages(tx, conversation_id, query) if query.q else _list_entries(tx, conversation, query)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    return render(
        request,
        "conversation.html",
        at=f"{PAGE}/{conversation_id}",
        conversation=conversation,
        query=query,
        notice=notice,
        problem=problem,
        **content,
    )


def _list_entries(tx: Transaction, conversation: ConversationDetail, query: MessagesQuery) -> Mapping[str, object]:
    """Return the messages, compactions and learned facts of the requested part of the conversation."""
    number = conversation.id
    before = query.before if query.fact is None else _position_of_fact(tx, number, query.fact)
    section = tx.conversations.lists.list_messages_around(number, query.after, before, MESSAGES)
    facts = tx.conversations.lists.list_learned_facts(number, section)
    ids = [listed.message.id for listed in section.messages]
    limit = chars_per_text([len(listed.message.content) for listed in section.messages])
    return {
        "entries": list(list_events(section, conversation.compactions, facts)),
        "hits": None,
        "text": lambda message: excerpt(message.content, None if message.id == query.whole else limit),
        "older": ids[0] if ids and section.older else None,
        "newer": ids[-1] if ids and section.following is not None else None,
    }


def chars_per_text(lengths: Sequence[int], room: int = TOTAL_CHARS) -> int:
    """Return the most characters to show of each text, so that all texts together have at most ``room``."""
    for taken, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - taken) > room:
            return room // (len(lengths) - taken)
        room -= length
    return max(lengths, default=0)


def _position_of_fact(tx: Transaction, number: int, fact_id: int) -> int | None:
    """Return the message id after the source of a fact, or None if the fact or its source is unknown."""
    fact = tx.memory.get_fact_learned_in(number, fact_id)
    last = tx.conversations.lists.find_last_before(number, fact.created_at) if fact is not None else 0
    return last + 1 if last else None


def _find_messages(tx: Transaction, number: int, query: MessagesQuery) -> Mapping[str, object]:
    """Return the messages of the conversation that match the search, newest first."""
    text = query.q or ""
    found, following = tx.conversations.lists.search_messages(text, query.cursor, MESSAGES, number)
    hits = [(message_view(listed), excerpt_around(listed.message.content, text)) for listed in found]
    return {"entries": (), "hits": hits, "older": None, "newer": None, "following": following}


def _deletion_page(request: Request, conversation_id: int, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        conversation = request_parts(request).conversations.show(conversation_id)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    return render(request, "conversation-delete.html", conversation=conversation, problem=problem)


@chat_router.get(CHAT_PAGE)
def show_chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the newest posts of the agent chat and a form for a new post, or a notice if the chat is disabled."""
    if parts.chat is None:
        return render(request, "agent-chat-off.html")
    return _chat_page(request, parts.chat)


@posting.post(CHAT_PAGE)
def add_post(request: Request, parts: Parts, text: Annotated[str, Form()] = "") -> Response:
    """Add a post to the agent chat, for browsers without scripts; a rejected text is shown again in the form."""
    chat = require_chat(parts)
    return submit(
        lambda: chat.service.add_post(HUMAN, text),
        lambda _: redirect_to_page(f"{CHAT_PAGE}#end"),
        lambda error: _chat_page(request, chat, text, error),
    )


def _chat_page(request: Request, chat: AgentChat, text: str = "", problem: MaestroError | None = None) -> HTMLResponse:
    return render(
        request,
        "agent-chat.html",
        channel=CHANNEL,
        posts=chat.service.list_posts(POSTS),
        rules=chat.rules(),
        most_posts=POSTS,
        hue=lambda author: zlib.crc32(author.encode()) % 6,  # The same author always has the same colour.
        clock_time=lambda moment: f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC",
        text=text,
        problem=problem,
    )
