"""Lists of conversations and messages for operators, including archived messages (docs/decisions.md: retention)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, case, func, tuple_
from sqlmodel import col, or_, select

from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import ArchivedMessage, Compaction, Conversation, Message
from maestro.domain.conversations.views import (
    AuthoredMessage,
    CompactionView,
    ConversationDetail,
    ConversationFilter,
    ConversationView,
    MessageRange,
)
from maestro.domain.jobs.filters import PageCursor
from maestro.domain.jobs.job import OPEN, Job
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import Role
from maestro.domain.llm.usage import UsageRow
from maestro.domain.memory.memory import MemoryFact
from maestro.domain.messages import InboxRow
from maestro.store.conversations.inbox import MediaFiles
from maestro.store.conversations.removals import Removals
from maestro.store.engine.repository import Repository

SEARCHED = 250_000
"""The most messages that one search reads, so that a search does not get slower as the store grows."""
MOST_LEARNED = 200
"""The most learned facts that one page of messages shows."""


class ConversationLists(Repository):
    """Queries for lists of conversations, and for lists of messages in conversations."""

    def list_conversation_page(
        self, conversation_filter: ConversationFilter, after: tuple[datetime, int] | None, limit: int
    ) -> tuple[Sequence[ConversationView], PageCursor | None]:
        """Return up to ``limit`` conversations after a time and an id, and the cursor of the next page.

        The conversation with the newest message comes first. A conversation that continues between two requests moves
        to the front.
        """
        newest_first = col(Conversation.last_message_at).desc(), col(Conversation.id).desc()
        chosen = select(Conversation, Agent.slug).join(Agent, col(Agent.id) == Conversation.agent_id)
        statement = chosen.where(*_filter_conditions(conversation_filter)).order_by(*newest_first).limit(limit + 1)
        if after is not None:
            statement = statement.where(tuple_(Conversation.last_message_at, Conversation.id) < after)
        rows = self._session.exec(statement).all()
        costs = self._read_conversation_costs([conversation.id or 0 for conversation, _ in rows[:limit]])
        page = [
            ConversationView.from_row(conversation, agent=agent, cost_usd=costs.get(conversation.id or 0))
            for conversation, agent in rows[:limit]
        ]
        return page, PageCursor(page[-1].last_message_at, str(page[-1].id)) if len(rows) > limit else None

    def list_platforms(self) -> Sequence[str]:
        """Return the platforms that have conversations; one indexed query finds each platform."""
        platforms: list[str] = []
        while True:
            rest = select(func.min(Conversation.platform))
            after = rest.where(col(Conversation.platform) > platforms[-1]) if platforms else rest
            first = self._session.exec(after).one()
            if first is None:
                return platforms
            platforms.append(first)

    def build_conversation_detail(self, conversation_id: int) -> ConversationDetail:
        """Return a conversation with all details except its messages; raises ``NotFound``."""
        conversation = Removals(self._link, self._now).get_conversation(conversation_id)
        agent = self._session.get_one(Agent, conversation.agent_id)
        open_jobs = select(Job.id).where(Job.conversation_id == conversation_id, col(Job.status).in_(OPEN))
        compactions = select(Compaction).where(Compaction.conversation_id == conversation_id)
        return ConversationDetail.from_row(
            conversation,
            agent=agent.slug,
            cost_usd=self._read_conversation_costs([conversation_id]).get(conversation_id),
            archived_count=self._count_rows(ArchivedMessage.conversation_id == conversation_id),
            facts_learned=self._count_rows(MemoryFact.source_conversation_id == conversation_id),
            open_jobs=tuple(self._find_all(open_jobs.order_by(col(Job.created_at)))),
            compactions=tuple(
                map(CompactionView.model_validate, self._find_all(compactions.order_by(col(Compaction.id))))
            ),
        )

    def list_messages_after(
        self, conversation_id: int, after: int, limit: int
    ) -> tuple[Sequence[AuthoredMessage], int | None]:
        """Return up to ``limit`` messages with ids above ``after``, and the id for the next page.

        Messages are sorted by id and include archived messages. Raises ``NotFound`` for an unknown conversation.
        """
        Removals(self._link, self._now).get_conversation(conversation_id)
        messages = self._list_messages_between(conversation_id, limit + 1, after=after)
        page = self._add_files(messages[:limit])
        return page, messages[limit - 1].message.id if len(messages) > limit else None

    def list_messages_around(
        self, conversation_id: int, after: int | None, before: int | None, limit: int
    ) -> MessageRange:
        """Return up to ``limit`` consecutive messages: after the id ``after``, before ``before``, or the newest."""
        if after is not None:
            messages = self._list_messages_between(conversation_id, limit + 1, after=after)
            older = bool(self._list_messages_between(conversation_id, 1, before=after + 1))
            return MessageRange(
                self._add_files(messages[:limit]), older, messages[limit] if len(messages) > limit else None
            )
        messages = self._list_messages_between(conversation_id, limit + 1, before=before)
        following = self._list_messages_between(conversation_id, 1, after=before - 1) if before is not None else []
        return MessageRange(self._add_files(messages[-limit:]), len(messages) > limit, next(iter(following), None))

    def find_last_before(self, conversation_id: int, moment: datetime) -> int:
        """Return the id of a conversation's last message at or before a time, or 0 if there is none."""
        newest = (
            select(table.id)
            .where(table.conversation_id == conversation_id, col(table.created_at) <= moment)
            .order_by(col(table.id).desc())
            .limit(1)
            for table in (Message, ArchivedMessage)
        )
        return max(self._session.exec(query).first() or 0 for query in newest)

    def list_learned_facts(self, conversation_id: int, messages: MessageRange) -> Sequence[MemoryFact]:
        """Return the facts that the agent learned during a range of messages and that are still stored."""
        facts = select(MemoryFact).where(MemoryFact.source_conversation_id == conversation_id)
        if messages.since is not None:
            facts = facts.where(col(MemoryFact.created_at) >= messages.since)
        if messages.until is not None:
            facts = facts.where(col(MemoryFact.created_at) < messages.until)
        return self._find_all(facts.order_by(col(MemoryFact.id)).limit(MOST_LEARNED))

    def search_messages(
        self, text: str, before: int | None, limit: int, conversation_id: int | None = None
    ) -> tuple[Sequence[AuthoredMessage], int | None]:
        """Return up to ``limit`` messages that contain a text, newest first, and the id for the next page.

        Without ``conversation_id``, one query searches at most ``SEARCHED`` messages: the newest, or those before the
        id ``before``. Older matches may exist even if the query found fewer than ``limit`` messages.
        """
        newest_ids = [self._session.exec(select(func.max(table.id))).one() for table in (Message, ArchivedMessage)]
        before_id = before or 1 + max(number or 0 for number in newest_ids)
        since = 0 if conversation_id is not None else before_id - SEARCHED
        messages: list[AuthoredMessage] = []
        for table in (Message, ArchivedMessage):
            conditions = [_contains_text(table.content, text), col(table.id) >= since]
            if before is not None:
                conditions.append(col(table.id) < before)
            if conversation_id is not None:
                conditions.append(col(table.conversation_id) == conversation_id)
            messages += self._read_authored_messages(table, limit + 1, *conditions, newest_first=True)
        messages.sort(key=_message_id, reverse=True)
        if len(messages) > limit:
            return messages[:limit], messages[limit - 1].message.id
        first_ids = (self._session.exec(select(func.min(table.id))).one() for table in (Message, ArchivedMessage))
        first_id = min((number for number in first_ids if number is not None), default=0)
        return messages, since if since > first_id else None

    def _list_messages_between(
        self, conversation_id: int, limit: int, *, after: int | None = None, before: int | None = None
    ) -> list[AuthoredMessage]:
        """Return the first messages after an id, or the last messages (before an id, if given), sorted by id."""
        backwards = after is None
        parts = []
        for table in (Message, ArchivedMessage):
            conditions: list[Any] = [table.conversation_id == conversation_id]
            conditions += [col(table.id) > after] if after is not None else []
            conditions += [col(table.id) < before] if before is not None else []
            parts.append(self._read_authored_messages(table, limit, *conditions, newest_first=backwards))
        messages = list(islice(merge(*parts, key=_message_id, reverse=backwards), limit))
        return messages[::-1] if backwards else messages

    def _add_files(self, messages: Sequence[AuthoredMessage]) -> list[AuthoredMessage]:
        with_files = [authored.message.inbox_id for authored in messages if authored.message.has_files]
        files = MediaFiles(self._link, self._now).list_files_of_messages(
            [number for number in with_files if number is not None]
        )
        return [replace(authored, files=files.get(authored.message.inbox_id or 0, ())) for authored in messages]

    def _read_conversation_costs(self, ids: Collection[int]) -> Mapping[int, float | None]:
        """Return the cost of each conversation's model calls in US dollars; None where no cost is known."""
        known = func.sum(case((col(UsageRow.state) != CallState.INTERRUPTED, col(UsageRow.cost_usd))))
        of = select(UsageRow.conversation_id, known).where(col(UsageRow.conversation_id).in_(ids))
        rows = self._session.exec(of.group_by(col(UsageRow.conversation_id)))
        return {number: cost for number, cost in rows if number is not None}

    def _read_authored_messages(
        self, table: type[Message] | type[ArchivedMessage], limit: int, *where: Any, newest_first: bool = False
    ) -> list[AuthoredMessage]:
        order = col(table.id).desc() if newest_first else col(table.id)
        by = func.coalesce(table.agent_id, Conversation.agent_id)
        rows = self._session.exec(
            select(table, Agent.slug, func.coalesce(InboxRow.user_name, Conversation.user_name))
            .join(Conversation, col(Conversation.id) == table.conversation_id)
            .join(Agent, col(Agent.id) == by)
            .outerjoin(InboxRow, col(InboxRow.id) == table.inbox_id)
            .where(*where)
            .order_by(order)
            .limit(limit)
        )
        return [
            AuthoredMessage(message, user if message.role is Role.USER else agent, archived=table is ArchivedMessage)
            for message, agent, user in rows
        ]


def _message_id(message: AuthoredMessage) -> int:
    return message.message.id or 0


def _contains_text(column: Any, text: str) -> ColumnElement[bool]:
    # ``LIKE`` ignores the case of ASCII letters; adding ``lower()`` would make it three times as slow.
    return col(column).contains(text, autoescape=True)


def _filter_conditions(wanted: ConversationFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.agent is not None:
        yield col(Conversation.agent_id) == select(Agent.id).where(Agent.slug == wanted.agent).scalar_subquery()
    for column, value in (
        (Conversation.platform, wanted.platform),
        (Conversation.channel, wanted.channel),
        (Conversation.user_id, wanted.user),
        (Conversation.status, wanted.status),
    ):
        if value is not None:
            yield col(column) == value
    if wanted.q:
        yield _text_condition(wanted.q)


def _text_condition(text: str) -> ColumnElement[bool]:
    """Return the condition that a text is in a conversation's user name or in one of its recent messages."""
    since = select(func.coalesce(func.max(Message.id), 0) - SEARCHED).scalar_subquery()
    queries = (
        select(table.conversation_id).where(_contains_text(table.content, text), col(table.id) > since)
        for table in (Message, ArchivedMessage)
    )
    return or_(_contains_text(Conversation.user_name, text), *(col(Conversation.id).in_(found) for found in queries))
