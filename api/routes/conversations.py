"""Conversations: the list, what was said in one, and its end (decision 18)."""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, field_validator
from starlette.responses import StreamingResponse

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.columns import LARGEST
from maestro.domain.conversations.export import as_json, as_markdown
from maestro.domain.conversations.views import (
    ConversationDetail,
    ConversationFilter,
    ConversationPage,
    Mark,
    SaidPage,
    SaidView,
    conversation_detail,
    conversation_view,
    said_view,
)
from maestro.domain.values import Value
from maestro.domain.words import SearchText
from maestro.store.store import Store

LIMIT = 50
MOST = 200

router = APIRouter(route_class=PasswordRoute, tags=["conversations"], prefix="/api/conversations")

Limit = Annotated[int, Query(ge=1, le=MOST)]
After = Annotated[int, Query(ge=0, le=LARGEST)]


Written = Callable[[ConversationDetail, Iterable[SaidView]], Iterator[str]]

TYPES = {"json": "application/json", "md": "text/markdown; charset=utf-8"}


def _file_of(media_type: str) -> dict[int | str, dict[str, object]]:
    """Describe a download in the words of OpenAPI."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}, "description": "The conversation"}}


class ConversationQuery(ConversationFilter):
    """A filter and a page of its result; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: str | None = None

    @field_validator("cursor")
    @classmethod
    def _ours(cls, text: str | None) -> str | None:
        if text is not None:
            Mark.decode(text)
        return text

    @property
    def after(self) -> Mark | None:
        """Return where the page begins."""
        return Mark.decode(self.cursor) if self.cursor is not None else None


class SearchQuery(Value):
    """A part of what was said, and a page of where, in one conversation if its number is given.

    ``cursor`` is the ``next`` of the page before.
    """

    q: SearchText = Field(min_length=1)
    conversation: int | None = Field(default=None, ge=1, le=LARGEST)
    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


@router.get("")
def list_conversations(parts: Parts, query: Annotated[ConversationQuery, Query()]) -> ConversationPage:
    """List conversations, the one that was spoken in last first; ``q`` also looks at what compactions took away."""
    with parts.store.view() as tx:
        found, following = tx.conversation_lists.page(query, query.after, query.limit)
    return ConversationPage(
        items=tuple(map(conversation_view, found)), next=following.encode() if following is not None else None
    )


@router.get("/search")
def search_conversations(parts: Parts, query: Annotated[SearchQuery, Query()]) -> SaidPage:
    """Return the messages that contain a text, newest first, of all conversations or of one.

    Of all, one request reads 250,000 messages; ``next`` goes on with older ones, and may be there when none was found.
    """
    with parts.store.view() as tx:
        found, following = tx.conversation_lists.containing(query.q, query.cursor, query.limit, query.conversation)
    return SaidPage(items=tuple(map(said_view, found)), next=str(following) if following is not None else None)


@router.get("/{conversation_id}")
def show_conversation(parts: Parts, conversation_id: Number) -> ConversationDetail:
    """Return a conversation with its compactions; 404 says so when it was deleted."""
    with parts.store.view() as tx:
        return conversation_detail(tx.conversation_lists.record(conversation_id))


@router.get("/{conversation_id}/messages")
def list_messages(parts: Parts, conversation_id: Number, limit: Limit = LIMIT, cursor: After = 0) -> SaidPage:
    """List what was said in a conversation, oldest first, with what compactions took away from the models."""
    with parts.store.view() as tx:
        found, following = tx.conversation_lists.said(conversation_id, cursor, limit)
    return SaidPage(items=tuple(map(said_view, found)), next=str(following) if following is not None else None)


@router.get("/{conversation_id}/export.json", response_class=StreamingResponse, responses=_file_of("application/json"))
def export_json(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with everything that was said in it, as one JSON object."""
    return _download(parts.store, conversation_id, as_json, "json")


@router.get("/{conversation_id}/export.md", response_class=StreamingResponse, responses=_file_of("text/markdown"))
def export_markdown(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with everything that was said in it, as a text to read."""
    return _download(parts.store, conversation_id, as_markdown, "md")


@router.post("/{conversation_id}/close")
def close_conversation(parts: Parts, conversation_id: Number) -> ConversationDetail:
    """End a conversation as ``/new`` does: the next message begins another; 409 for one that has ended."""
    parts.conversations.close(conversation_id, OPERATOR)
    with parts.store.view() as tx:
        return conversation_detail(tx.conversation_lists.record(conversation_id))


@router.delete("/{conversation_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_conversation(parts: Parts, conversation_id: Number, facts: bool = False) -> None:
    """Delete a conversation with everything that was said in it, its prompts and its files; 409 while a job is open.

    With ``facts`` what was learned in it is forgotten too. Jobs and usage stay, without their texts.
    """
    parts.conversations.delete(conversation_id, OPERATOR, facts=facts)


def _download(store: Store, conversation_id: int, written: Written, ending: str) -> StreamingResponse:
    with store.view() as tx:
        detail = conversation_detail(tx.conversation_lists.record(conversation_id))
    headers = {"Content-Disposition": f'attachment; filename="conversation-{conversation_id}.{ending}"'}
    return StreamingResponse(
        written(detail, _everything(store, conversation_id)), media_type=TYPES[ending], headers=headers
    )


def _everything(store: Store, conversation_id: int) -> Iterator[SaidView]:
    """Yield all messages, page by page: a slow reader must not keep a connection to the store."""
    after: int | None = 0
    while after is not None:
        with store.view() as tx:
            found, after = tx.conversation_lists.said(conversation_id, after, MOST)
        yield from map(said_view, found)
