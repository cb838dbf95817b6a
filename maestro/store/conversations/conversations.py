"""Queries for conversations, messages and compactions; a conversation's counters equal sums over its messages."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    delete,
    false,
    func,
    insert,
    inspect,
    true,
    union_all,
    update,
)
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.context.history import plain_chars
from maestro.domain.conversations.conversation import (
    ArchivedMessage,
    Compaction,
    Conversation,
    ConversationStatus,
    Message,
    MessageColumns,
    RemovedConversation,
    StoredMessage,
    conversation_key,
)
from maestro.domain.errors import Conflict
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address, InboxRow
from maestro.store.cache import cached_by_version
from maestro.store.conversations.inbox import Inbox
from maestro.store.conversations.lists import ConversationLists
from maestro.store.conversations.removals import Removals
from maestro.store.conversations.retention import Retention
from maestro.store.engine.repository import LazyRepository, Repository, read_once, require_found, with_values
from maestro.store.engine.statements import PreparedStatement, is_in_list, row_insert, write_json_list

COLUMNS = tuple(MessageColumns.model_fields)


class Compactions(Repository):
    """Queries for compactions: summaries that replace older messages of a conversation in prompts."""

    _LATEST = PreparedStatement(
        select(Compaction)
        .where(Compaction.conversation_id == bindparam("of_conversation"))
        .order_by(col(Compaction.id).desc())
        .limit(bindparam("at_most"))
    )

    @cached_by_version("compactions")
    def list_latest_compactions(self, conversation_id: int, limit: int) -> Sequence[Compaction]:
        """Return up to ``limit`` compactions of a conversation as read-only rows, newest first."""
        return self._read_models(self._LATEST, Compaction, of_conversation=conversation_id, at_most=limit)

    def archive_messages(self, conversation_id: int, ids: Sequence[int]) -> None:
        """Move messages of a conversation to the archive, which pages still show and prompts do not contain.

        See docs/decisions.md: retention.
        """
        its_own = col(Message.id).in_(ids), col(Message.conversation_id) == conversation_id
        going = select(*(getattr(Message, name) for name in COLUMNS)).where(*its_own)
        self._session.exec(insert(ArchivedMessage).from_select(COLUMNS, going))
        self._session.exec(delete(Message).where(*its_own))
        sums = select(func.count(), func.coalesce(func.sum(Message.token_estimate), 0))
        count, tokens = self._session.exec(sums.where(Message.conversation_id == conversation_id)).one()
        self._update_row(Conversation, conversation_id, message_count=count, total_tokens_estimate=tokens)

    def add_compaction(self, compaction: Compaction) -> Compaction:
        return self._save_objects(compaction)


class ConversationMatch(NamedTuple):
    """The conversation of a message (None without one), and the inbox id of the ``/new`` that closed it."""

    conversation: Conversation | None
    closed_by: int | None


def _find_statement(next_new: Subquery) -> Select[Any]:
    """Return the statement that reads a message's conversation and the first ``/new`` after the message."""
    closed_by = next_new.c.next_new
    status = case((closed_by.is_(None), ConversationStatus.ACTIVE), else_=ConversationStatus.CLOSED)
    its_own = and_(
        col(Conversation.key) == bindparam("of_key"),
        col(Conversation.status) == status,
        col(Conversation.closed_by_inbox_id).is_not_distinct_from(closed_by),
    )
    return columns(closed_by, *inspect(Conversation).columns).select_from(next_new.outerjoin(Conversation, its_own))


def _message_columns(table: type[MessageColumns]) -> list[ColumnElement[Any]]:
    return [inspect(table).columns[name] for name in MessageColumns.model_fields]


class Conversations(Repository):
    """Queries for conversations and their messages."""

    lists = LazyRepository(ConversationLists)
    compactions = LazyRepository(Compactions)
    removals = LazyRepository(Removals)
    retention = LazyRepository(Retention)

    _COUNT = PreparedStatement(
        update(Conversation)
        .where(col(Conversation.id) == bindparam("of_id"))
        .values(
            total_tokens_estimate=col(Conversation.total_tokens_estimate) + bindparam("tokens"),
            message_count=col(Conversation.message_count) + 1,
            last_message_at=bindparam("at"),
        )
    )
    _COLUMNS = tuple(column.key for column in inspect(Conversation).columns)
    _AT, _AT_OF_USER = (
        PreparedStatement(_find_statement(new.subquery())) for new in (Inbox.NEXT_NEW, Inbox.NEXT_NEW_OF)
    )
    _RECORDED = PreparedStatement(
        union_all(
            columns(*_message_columns(Message), false()).where(col(Message.inbox_id) == bindparam("of_inbox")),
            columns(*_message_columns(ArchivedMessage), true()).where(
                col(ArchivedMessage.inbox_id) == bindparam("of_inbox")
            ),
        )
    )
    _UNARCHIVED = PreparedStatement(delete(ArchivedMessage).where(col(ArchivedMessage.id) == bindparam("of_id")))
    # A prompt reads hundreds of messages, and columns are cheaper to read than ``Message`` objects.
    _LINE_FIELDS = tuple(name for name in StoredMessage._fields if name != "plain_chars")
    _LINE = columns(*(getattr(Message, name) for name in _LINE_FIELDS))
    _UP_TO = (
        col(Message.conversation_id) == bindparam("of_conversation"),
        col(Message.id) <= bindparam("up_to"),
        col(Message.superseded).is_(False),
    )
    _NEWEST = PreparedStatement(_LINE.where(*_UP_TO).order_by(col(Message.id).desc()).limit(bindparam("at_most")))
    _OUTLINE = PreparedStatement(
        columns(*(getattr(Message, name) for name in ("id", "role", "token_estimate", "inbox_id", "plain_chars")))
        .where(*_UP_TO)
        .order_by(col(Message.id).desc())
        .limit(bindparam("at_most"))
    )
    _LISTED = PreparedStatement(_LINE.where(is_in_list(col(Message.id), "ids")))
    _LAST_IDS = tuple(PreparedStatement(select(func.max(one))) for one in (Conversation.id, RemovedConversation.id))

    def get(self, conversation_id: int | None) -> Conversation:
        """Return the conversation with this id and its current counters; raises ``NotFound``."""
        return require_found(
            self._session.get(Conversation, conversation_id, populate_existing=True),
            f"conversation {conversation_id} does not exist",
        )

    @read_once
    def read(self, conversation_id: int | None) -> Conversation:
        """Return a conversation by id as a read-only row, which costs less than ``get``; raises ``NotFound``."""
        return require_found(
            self._read_model_by(Conversation, id=conversation_id), f"conversation {conversation_id} does not exist"
        )

    def find_conversation(self, agent_id: int, row: InboxRow, *, keyed_by_user: bool) -> ConversationMatch:
        """Return an agent's conversation for an inbox message, and the ``/new`` that closed the conversation.

        The conversation is the one that was open when the message arrived, even if a ``/new`` arrived since.
        """
        address = row.address
        alone = row.user_id if keyed_by_user else None
        which = self._AT if alone is None else self._AT_OF_USER
        of = {**address.model_dump(), "after": row.id, "user_id": alone}
        closed_by, *cells = self._read_row(which, of_key=conversation_key(agent_id, address, alone), **of) or (
            None,
            None,
        )
        if cells[0] is None:
            return ConversationMatch(None, closed_by)
        conversation: Conversation = Conversation.__new__(Conversation)
        conversation.__dict__.update(zip(self._COLUMNS, cells, strict=True))
        return ConversationMatch(conversation, closed_by)

    def find_or_begin(self, agent_id: int, row: InboxRow, *, keyed_by_user: bool) -> Conversation:
        """Return an agent's conversation for an inbox message as a read-only row; begin one if there is none."""
        found, closed_by = self.find_conversation(agent_id, row, keyed_by_user=keyed_by_user)
        if found is None and self._link.scoped is not None:
            # A job of another lane may begin the same conversation, as in a channel whose binding was changed.
            key = conversation_key(agent_id, row.address, row.user_id if keyed_by_user else None)
            self._link.driver.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"conversation:{key}"])
            found, closed_by = self.find_conversation(agent_id, row, keyed_by_user=keyed_by_user)
        if found is not None:
            self._cached_values()[("read", (found.id,))] = found
            return found
        user = (row.user_id, row.user_name)
        return self.begin_conversation(agent_id, row.address, user, keyed_by_user=keyed_by_user, closed_by=closed_by)

    def begin_conversation(
        self, agent_id: int, address: Address, user: tuple[str, str], *, keyed_by_user: bool, closed_by: int | None
    ) -> Conversation:
        """Begin a conversation of an agent with a user in a channel; return it as a read-only row.

        ``user`` is an id and a name. ``closed_by`` is the inbox id of a ``/new`` that has already closed the
        conversation.
        """
        user_id, user_name = user
        key = conversation_key(agent_id, address, user_id if keyed_by_user else None)
        number = self._insert_row(
            row_insert(Conversation),
            id=self._compute_next_id(),
            key=key,
            agent_id=agent_id,
            user_id=user_id,
            user_name=user_name,
            status=ConversationStatus.ACTIVE if closed_by is None else ConversationStatus.CLOSED,
            closed_by_inbox_id=closed_by,
            total_tokens_estimate=0,
            message_count=0,
            started_at=self._now,
            last_message_at=self._now,
            **address.model_dump(),
        )
        return self.read(number)

    def _compute_next_id(self) -> int:
        """Return the id of a new conversation.

        Ids of deleted conversations are not reused, so that rows of one never refer to another conversation.
        """
        following = 1 + max(self._read_value(newest) or 0 for newest in self._LAST_IDS)
        if self._link.sqlite:
            return following
        # The highest id may be one that is not yet committed, or one of a release that does not use the sequence.
        numbering = "SELECT greatest(nextval(pg_get_serial_sequence('conversations', 'id')), %s)"
        return int(self._link.driver.execute(numbering, [following]).fetchone()[0])

    def close_conversations(self, address: Address, user_id: str | None, inbox_id: int) -> int:
        """Close the open conversations of a channel, or of one user in it, for a ``/new``; return their number."""
        statement = (
            update(Conversation)
            .where(*(col(getattr(Conversation, name)) == value for name, value in address.model_dump().items()))
            .where(col(Conversation.status) == ConversationStatus.ACTIVE)
            .values(status=ConversationStatus.CLOSED, closed_by_inbox_id=inbox_id)
        )
        if user_id is not None:
            statement = statement.where(col(Conversation.user_id) == user_id)
        return self._session.exec(statement).rowcount

    def close_conversation(self, conversation_id: int) -> None:
        """Close a conversation without a ``/new``; raises ``NotFound``, or ``Conflict`` if it is already closed.

        An answer that is being written is still added to it. Unanswered messages begin a new conversation.
        """
        conversation = self.removals.get_conversation(conversation_id)
        if conversation.status is ConversationStatus.CLOSED:
            raise Conflict(f"conversation {conversation_id} has ended already")
        conversation.status = ConversationStatus.CLOSED
        self._session.flush()

    @read_once
    def find_recorded_message(self, inbox_id: int | None) -> MessageColumns | None:
        """Return the message recorded for an inbox row, from the conversation or the archive; None without one."""
        row = self._read_row(self._RECORDED, of_inbox=inbox_id) if inbox_id is not None else None
        if row is None:
            return None
        model = ArchivedMessage if row[-1] else Message
        message: MessageColumns = model.__new__(model)
        message.__dict__.update(zip(MessageColumns.model_fields, row, strict=False))
        return message

    def restore_recorded_message(self, inbox_id: int | None) -> MessageColumns | None:
        """Return the message recorded for an inbox row; if it is archived, first move it back to its conversation.

        A replayed job may answer a message that a compaction has archived after the job's first run.
        """
        message = self.find_recorded_message(inbox_id)
        if not isinstance(message, ArchivedMessage):
            return message
        self._write(self._UNARCHIVED, of_id=message.id)
        return self.add_message(message)

    def filter_by_author(self, user_id: str, message_ids: Collection[int]) -> Mapping[int, int]:
        """Return the inbox ids of the given messages that a user wrote, by message id."""
        messages = select(Message.id, InboxRow.id).join(InboxRow, col(InboxRow.id) == Message.inbox_id)
        return dict(
            self._run_statement(messages.where(col(Message.id).in_(message_ids), InboxRow.user_id == user_id)).all()
        )

    @read_once
    def read_message(self, message_id: int | None) -> MessageColumns:
        """Return a message by id as a read-only row, from the conversation or the archive; raises ``NotFound``."""
        message = self._read_model_by(Message, id=message_id) or self._read_model_by(ArchivedMessage, id=message_id)
        return require_found(message, f"message {message_id} does not exist")

    def list_messages(self, conversation_id: int) -> Sequence[Message]:
        """Return the messages of a conversation that are not archived, oldest first."""
        return self._find_all(
            select(Message).where(Message.conversation_id == conversation_id).order_by(col(Message.id))
        )

    def add_message(self, message: MessageColumns, *, is_plain: bool = True) -> MessageColumns:
        """Store a message, update the conversation's counters, and return the message with its id.

        Prompts always load the full text of a message that was stored with ``is_plain`` false.
        """
        columns = {name: getattr(message, name) for name in MessageColumns.model_fields}
        chars = plain_chars(message) if is_plain else None
        known = self._cached_values().get(("read", (message.conversation_id,)))
        columns["id"] = self._insert_row(row_insert(Message), **columns, plain_chars=chars)
        self._write(self._COUNT, of_id=message.conversation_id, tokens=message.token_estimate, at=self._now)
        if known is not None:
            tokens, messages = known.total_tokens_estimate + message.token_estimate, known.message_count + 1
            counted = with_values(
                known, total_tokens_estimate=tokens, message_count=messages, last_message_at=self._now
            )
            self._cached_values()[("read", (message.conversation_id,))] = counted
        added = MessageColumns.model_construct(**columns)
        self._cached_values()[("read_message", (added.id,))] = added
        if added.inbox_id is not None:
            self._cached_values()[("find_recorded_message", (added.inbox_id,))] = added
        return added

    def mark_superseded(self, job_ids: Sequence[str]) -> None:
        """Exclude the answers of these jobs from later prompts, because restarts of the jobs replace the answers."""
        self._session.exec(
            update(Message)
            .where(col(Message.job_id).in_(job_ids), col(Message.role) == Role.ASSISTANT)
            .values(superseded=True)
        )

    def list_newest_messages(self, conversation_id: int, last_id: int, limit: int) -> list[StoredMessage]:
        """Return up to ``limit`` messages with ids up to ``last_id``, newest first, without superseded answers."""
        rows = self._read_rows(self._NEWEST, of_conversation=conversation_id, up_to=last_id, at_most=limit)
        return [StoredMessage(*row) for row in rows]

    def list_message_outlines(
        self, conversation_id: int, last: MessageColumns, limit: int, answered_ids: Collection[int]
    ) -> list[StoredMessage]:
        """Return the messages that ``list_newest_messages`` returns, but most plain messages without their texts.

        Texts are read only for the last message, for messages that are not plain, and for ``answered_ids`` (inbox ids).
        For other messages the prompt needs only columns of an index.
        """
        rows = self._read_rows(self._OUTLINE, of_conversation=conversation_id, up_to=last.id, at_most=limit)
        whole = {last.id: StoredMessage(*(getattr(last, name) for name in self._LINE_FIELDS))}
        missing = [number for number, _, _, inbox_id, chars in rows if chars is None or inbox_id in answered_ids]
        if missing != [last.id]:
            whole.update(
                (row[0], StoredMessage(*row)) for row in self._read_rows(self._LISTED, ids=write_json_list(missing))
            )
        return [
            whole.get(number) or StoredMessage(number, role, "", tokens, inbox_id, "", None, False, chars)
            for number, role, tokens, inbox_id, chars in rows
        ]
