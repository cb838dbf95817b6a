"""The operations on conversations, and on sessions of the agent chat, #maestro (docs/decisions.md: chat sessions)."""

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import structlog
from pydantic import Field

from maestro.domain.agent_chat import CHANNEL, SessionView
from maestro.domain.columns import LARGEST
from maestro.domain.conversations.views import (
    AuthoredMessage,
    ConversationDetail,
    ConversationFilter,
    ConversationPage,
    MessagePage,
    message_view,
)
from maestro.domain.errors import Conflict, MediaUnavailable
from maestro.domain.jobs.filters import PageCursor
from maestro.domain.values import SearchText, Value, readable_by
from maestro.operations.inputs import RowId
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

LIMIT = 50
MOST = 200

MessageLimit = Annotated[int, Field(ge=1, le=MOST)]
_log = structlog.get_logger(__name__)

AfterMessage = Annotated[int, Field(ge=0, le=LARGEST)]


class ConversationQuery(ConversationFilter):
    """A filter of conversations and the page of its result; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(PageCursor.parse_row_position)] | None = None


class SearchQuery(Value):
    """A search for a text in the messages of one conversation, or of all without ``conversation``.

    ``cursor`` is the ``next`` of the previous page.
    """

    q: SearchText = Field(min_length=1)
    conversation: int | None = Field(default=None, ge=1, le=LARGEST)
    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


class ConversationOperations:
    """The operations on conversations; an unknown number raises ``NotFound``."""

    def __init__(self, store: Store, data_dir: Path, files: MediaFolder) -> None:
        self._store = store
        self._data_dir = data_dir
        self._files = files

    def list(self, query: ConversationQuery) -> ConversationPage:
        """List conversations, newest message first; ``q`` also searches messages that a compaction archived."""
        after = PageCursor.parse_row_position(query.cursor) if query.cursor is not None else None
        with self._store.view() as tx:
            rows, following = tx.conversations.lists.list_conversation_page(query, after, query.limit)
        return ConversationPage(items=tuple(rows), next=following.encode_text() if following is not None else None)

    def search(self, query: SearchQuery) -> MessagePage:
        """Return the messages that contain a text, newest first, of all conversations or of one.

        Without ``conversation``, one request reads 250,000 messages at most. ``next`` continues the search with older
        messages, even if this page is empty.
        """
        with self._store.view() as tx:
            return _message_page(
                tx.conversations.lists.search_messages(query.q, query.cursor, query.limit, query.conversation)
            )

    def show(self, conversation_id: RowId) -> ConversationDetail:
        """Return a conversation with its compactions; for a deleted conversation, the 404 response says so."""
        with self._store.view() as tx:
            return tx.conversations.lists.build_conversation_detail(conversation_id)

    def messages(self, conversation_id: RowId, limit: MessageLimit = LIMIT, cursor: AfterMessage = 0) -> MessagePage:
        """List the messages of a conversation, oldest first, including those that a compaction archived."""
        with self._store.view() as tx:
            return _message_page(tx.conversations.lists.list_messages_after(conversation_id, cursor, limit))

    def close(self, conversation_id: RowId, actor: str) -> ConversationDetail:
        """End a conversation as ``/new`` does: the next message begins another one. 409 if it has already ended."""
        with self._store.begin() as tx:
            tx.conversations.close_conversation(conversation_id)
            tx.system.audit.add_entry(actor, "conversation.close", str(conversation_id))
        return self.show(conversation_id)

    def delete(self, conversation_id: RowId, actor: str, facts: bool = False) -> None:
        """Delete a conversation with its messages, prompts and files; 409 while one of its jobs is open.

        ``facts`` also deletes the facts learned in the conversation. Its jobs and usage records stay, without texts.
        """
        with self._store.view() as tx:
            plan = tx.conversations.removals.plan_removal(conversation_id)
        with self._store.begin() as tx:
            tx.conversations.removals.carry_out(plan, actor, facts=facts)
            tx.system.audit.add_entry(actor, "conversation.delete", str(conversation_id), "with facts" if facts else "")
        remove_discarded_files(self._store, self._data_dir, self._files)


def _message_page(found: tuple[Sequence[AuthoredMessage], int | None]) -> MessagePage:
    messages, following = found
    return MessagePage(items=tuple(map(message_view, messages)), next=str(following) if following is not None else None)


def remove_discarded_files(store: Store, data_dir: Path, files: MediaFolder) -> None:
    """Delete the files of deleted conversations, including files that an interrupted deletion left.

    A file that a user sent again stays. One transaction checks and deletes, so no user can send the file in between;
    an object storage is called after it, and leaves an object that was uploaded again. What it cannot delete now stays
    recorded for the next deletion or start. Where hosts share the store, a folder stays recorded for ``ELSEWHERE``.
    """
    with store.view() as tx:
        discarded = tx.conversations.removals.list_discarded_files()
    for file in discarded:
        is_media, path = file.path.startswith("media/"), data_dir / file.path
        if not is_media:
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(store.location, str) and store.now - file.at < ELSEWHERE:
                continue
        with store.begin() as tx:
            unused = is_media and not tx.conversations.removals.is_used_again(path.name)
            if unused:
                files.delete_local(path.name)
        try:
            finished = not unused or files.delete_remote(path.name, file.at)
        except MediaUnavailable as error:
            _log.warning("files of deleted conversations stay in the object storage for now", reason=str(error))
            return
        if finished:
            with store.begin() as tx:
                tx.conversations.removals.delete_discarded(file.path)


ELSEWHERE = timedelta(days=30)
"""How long a deleted conversation's folders stay recorded, so that each host deletes its own at its next start."""


class SessionOperations:
    """The operations on sessions of the agent chat; ``pinned`` is the session id fixed by the settings, or empty."""

    def __init__(self, store: Store, *, enabled: bool, pinned: str) -> None:
        self._store = store
        self._enabled = enabled
        self._pinned = pinned

    def show(self) -> SessionView:
        """Return the open session of the agent chat, or one with an empty id if no session is open."""
        with self._store.view() as tx:
            return _current_session(tx)

    def begin(self, actor: str) -> SessionView:
        """End the open session and begin another; 409 if the settings fix the session or disable the agent chat."""
        self._check_changeable()
        with self._store.begin() as tx:
            tx.system.audit.add_entry(actor, "session.new", tx.chat.open_session(str(uuid4())))
            return _current_session(tx)

    def end(self, actor: str) -> str:
        """End the open session and return its id, or an empty text if none was open; raises as ``begin`` does."""
        self._check_changeable()
        with self._store.begin() as tx:
            ended = tx.chat.end_current_session() or ""
            if ended:
                tx.system.audit.add_entry(actor, "session.end", ended)
        return ended

    def _check_changeable(self) -> None:
        if not self._enabled:
            raise Conflict(f"{CHANNEL} is disabled by configuration: set chat.enabled to true first.")
        if self._pinned:
            raise Conflict(
                f"session.id keeps the session {self._pinned!r}. Take it out of the configuration, or write another id "
                "there, and restart Maestro."
            )


def _current_session(tx: Transaction) -> SessionView:
    current = tx.chat.find_current_session()
    session = tx.chat.get_session(current) if current else None
    if session is None:
        return SessionView(id="", started_at=None, posts=0)
    return SessionView(id=session.id, started_at=session.started_at, posts=tx.chat.count_posts())
