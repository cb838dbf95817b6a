"""The pages of conversations, and that of the agent chat."""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.jobs.job import TextExcerpt, beginning
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import OPERATOR, PasswordRoute
from api.live import unchanged
from api.parts import AgentChat
from api.routes.dependencies import Number, Parts, chat_of, parts_of
from maestro.domain.agent_chat import CHANNEL, HUMAN
from maestro.domain.columns import LARGEST
from maestro.domain.conversations.conversation import ConversationStatus
from maestro.domain.conversations.views import (
    ConversationPage,
    ConversationRecord,
    MessageRange,
    MessageView,
    conversation_detail,
    excerpt_around,
    list_events,
    message_view,
)
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import SearchText, read
from maestro.domain.values import Value
from maestro.operations.conversations import ConversationQuery
from maestro.store.transaction import Transaction

LIST = "/conversations"
TITLE = "Conversations – Maestro"
FILTERS = ("q", "platform", "agent", "status", "user", "channel")
NOTHING = ConversationPage(items=(), next=None)
DONE = {"deleted": "The conversation is deleted, with everything that was said in it."}
"""What was done, by the word that stands in the address: no text of an address is shown."""

list_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=LIST)

HERE = "conversations"
SHOWN = 50
"""Messages on a page, and finds of a search."""
ROOM = 40_000
"""Characters of all messages together that the page shows at once; the rest of a long one is a click away."""
DONE_IN_CONVERSATION = {"closed": "The conversation has ended: the next message begins another one."}
"""What was done, by the word that stands in the address: no text of an address is shown."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=LIST)

RowId = Annotated[int, Field(ge=0, le=LARGEST)]

PAGE = "/maestro"
CHAT_TITLE = f"{CHANNEL} – Maestro"
POSTS_ON_A_PAGE = 200
"""Posts that the page shows at first; earlier ones are shown when they are asked for."""
HUES = 6

pane = APIRouter(route_class=PasswordRoute, include_in_schema=False)
posting = APIRouter(route_class=PasswordRoute, include_in_schema=False)
"""Registered only where there is a chat."""


@list_router.get("")
def show_list(request: Request, parts: Parts, done: str = "") -> Response:
    """List conversations, the most recently used first; an error in the filter is shown above the form."""
    same = unchanged(request)
    if same is not None:
        return same
    typed = {name: request.query_params.get(name, "").strip() for name in FILTERS}
    cursor = request.query_params.get("cursor", "")
    with parts.store.view() as tx:
        values = {**_choices(tx), "typed": typed, "said": DONE.get(done, ""), "first": not cursor}
    try:
        shown = parts.conversations.list(_query_of(typed, cursor))
    except InvalidEdit as error:
        return _list_page(request, {**values, "shown": NOTHING, "problem": error})
    return _list_page(request, {**values, "shown": shown, "problem": ""})


def _query_of(typed: Mapping[str, str], cursor: str) -> ConversationQuery:
    """Return the filter of the form; empty fields do not filter."""
    return read(ConversationQuery, {name: text for name, text in {**typed, "cursor": cursor}.items() if text})


def _choices(tx: Transaction) -> dict[str, object]:
    return {
        "platforms": tx.conversations.lists.platforms(),
        "agents": tx.agents.slugs(),
        "states": [state.value for state in ConversationStatus],
    }


def _list_page(request: Request, values: Mapping[str, object]) -> HTMLResponse:
    return render(request, "conversations.html", title=TITLE, **values)


class MessagesQuery(Value):
    """The part of a conversation to show: messages that contain ``q``, or consecutive messages.

    Consecutive messages are those after an id, before an id, around the time a fact was learned, or the newest.
    ``whole`` is the id of a message to show in full.
    """

    q: SearchText | None = None
    cursor: RowId | None = None
    after: RowId | None = None
    before: RowId | None = None
    fact: RowId | None = None
    whole: RowId | None = None


@router.get("/{conversation_id}")
def show(request: Request, conversation_id: Number, done: str = "") -> Response:
    """Show a conversation as a chat, its end first, or the messages found by a search."""
    same = unchanged(request)
    return same if same is not None else _page(request, conversation_id, said=DONE_IN_CONVERSATION.get(done, ""))


@router.post("/{conversation_id}/close")
def close(request: Request, parts: Parts, conversation_id: Number) -> Response:
    """End a conversation, and redirect to it."""
    return submit(
        lambda: parts.conversations.close(conversation_id, OPERATOR),
        lambda _: lead_back(f"{LIST}/{conversation_id}", done="closed"),
        lambda error: _page(request, conversation_id, error),
    )


@router.get("/{conversation_id}/delete")
def ask_to_delete(request: Request, conversation_id: Number) -> HTMLResponse:
    """Show what a deletion removes and keeps, and ask for confirmation."""
    return _doomed(request, conversation_id)


@router.post("/{conversation_id}/delete")
def delete(request: Request, parts: Parts, conversation_id: Number, facts: Annotated[bool, Form()] = False) -> Response:
    """Delete a conversation and redirect to the list; an error is shown on the confirmation page."""
    return submit(
        lambda: parts.conversations.delete(conversation_id, OPERATOR, facts),
        lambda _: lead_back(LIST, done="deleted"),
        lambda error: _doomed(request, conversation_id, error),
    )


def _page(
    request: Request, conversation_id: int, problem: MaestroError | None = None, *, said: str = ""
) -> HTMLResponse:
    given = {name: text for name in MessagesQuery.model_fields if (text := request.query_params.get(name, "").strip())}
    try:
        with parts_of(request).store.view() as tx:
            look, record = read(MessagesQuery, given), tx.conversations.lists.record(conversation_id)
            values = _found(tx, conversation_id, look) if look.q else _messages(tx, record, look)
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "conversation.html",
        at=f"{LIST}/{conversation_id}",
        title=f"Conversation {conversation_id} – Maestro",
        one=conversation_detail(record),
        look=look,
        said=said,
        problem=problem,
        **values,
    )


def _messages(tx: Transaction, record: ConversationRecord, look: MessagesQuery) -> Mapping[str, object]:
    """Return the entries of the requested part of the conversation."""
    number = record.listed.conversation.id or 0
    after, before = look.after, look.before
    if look.fact is not None:
        before = _moment_of(tx, number, look.fact)
    stretch = tx.conversations.lists.messages_around(number, after, before, SHOWN)
    facts = tx.conversations.lists.facts_learned(number, stretch)
    most = room_for_each([len(one.message.content) for one in stretch.messages])
    told = [
        {
            "message": message_view(entry.message) if entry.message else None,
            "compaction": entry.compaction,
            "fact": entry.fact,
        }
        for entry in list_events(stretch, record.compactions, facts)
    ]
    return {"told": told, "hits": None, "text": partial(_text, look.whole, most), **_ends(stretch)}


def room_for_each(lengths: Sequence[int], room: int = ROOM) -> int:
    """Return the most characters for each text; space that short texts do not need goes to long ones."""
    for taken, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - taken) > room:
            return room // (len(lengths) - taken)
        room -= length
    return max(lengths, default=0)


def _text(whole: int | None, most: int, one: MessageView) -> TextExcerpt:
    return beginning(one.content, None if one.id == whole else most)


def _moment_of(tx: Transaction, number: int, fact_id: int) -> int | None:
    """Return the id before which to list, so that the learned fact's messages appear; None for the newest."""
    fact = tx.memory.learned_in(number, fact_id)
    last = tx.conversations.lists.last_before(number, fact.created_at) if fact is not None else 0
    return last + 1 if last else None


def _ends(stretch: MessageRange) -> Mapping[str, object]:
    first, last = (stretch.messages[at].message.id if stretch.messages else None for at in (0, -1))
    return {"older": first if stretch.older else None, "newer": last if stretch.following is not None else None}


def _found(tx: Transaction, number: int, look: MessagesQuery) -> Mapping[str, object]:
    """Return the search results in the conversation, newest first."""
    found, following = tx.conversations.lists.containing(look.q or "", look.cursor, SHOWN, number)
    hits = [(message_view(one), excerpt_around(one.message.content, look.q or "")) for one in found]
    return {"told": (), "hits": hits, "older": None, "newer": None, "following": following}


def _doomed(request: Request, conversation_id: int, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        one = parts_of(request).conversations.show(conversation_id)
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "conversation-delete.html",
        title=f"Delete conversation {conversation_id} – Maestro",
        one=one,
        problem=problem,
    )


@pane.get(PAGE)
def show_chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the newest posts and a form for a new one; a notice if the configuration has no chat."""
    if parts.chat is None:
        return render(request, "agent-chat-off.html", title=CHAT_TITLE)
    return _chat_page(request, parts.chat)


@posting.post(PAGE)
def post(request: Request, parts: Parts, text: Annotated[str, Form()] = "") -> Response:
    """Post the form's text, for browsers without scripts; a rejected text is shown again."""
    chat = chat_of(parts)
    return submit(
        lambda: chat.service.post(HUMAN, text),
        lambda _: lead_back(f"{PAGE}#end"),
        lambda error: _chat_page(request, chat, text, error),
    )


def hue(author: str) -> int:
    """Return the number of an author's colour, which is always the same."""
    return zlib.crc32(author.encode()) % HUES


def clock_time(moment: str) -> str:
    """Return the time of a post, for browsers without scripts."""
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC"


def _chat_page(request: Request, chat: AgentChat, text: str = "", problem: MaestroError | None = None) -> HTMLResponse:
    rules = chat.rules()
    return render(
        request,
        "agent-chat.html",
        title=CHAT_TITLE,
        channel=CHANNEL,
        posts=chat.service.timeline(POSTS_ON_A_PAGE),
        rules=rules,
        shown=POSTS_ON_A_PAGE,
        hue=hue,
        clock_time=clock_time,
        text=text,
        problem=problem,
    )
