"""What operators look at: conversations, and what was said in them, compacted or not (decision 18)."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, func, tuple_
from sqlmodel import col, or_, select

from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.compaction import Compaction
from maestro.domain.conversations.conversation import ArchivedMessage, Conversation, Message
from maestro.domain.conversations.views import ConversationFilter, Listed, Mark, Record, Spoken
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.job import OPEN, Job
from maestro.domain.llm.prompts import Role
from maestro.domain.memory.memory import MemoryFact
from maestro.store.removals import Removals
from maestro.store.repository import Repository


class ConversationLists(Repository):
    """Reads only."""

    def page(self, wanted: ConversationFilter, after: Mark | None, limit: int) -> tuple[Sequence[Listed], Mark | None]:
        """Return up to ``limit`` conversations after the mark, and the mark for those that follow.

        The one that was spoken in last comes first, so one that is spoken in between two requests moves to the front.
        """
        newest_first = col(Conversation.last_message_at).desc(), col(Conversation.id).desc()
        chosen = select(Conversation, Agent.slug).join(Agent, col(Agent.id) == Conversation.agent_id)
        statement = chosen.where(*_conditions(wanted)).order_by(*newest_first).limit(limit + 1)
        if after is not None:
            here = tuple_(Conversation.last_message_at, Conversation.id)
            statement = statement.where(here < (after.last_message_at, after.conversation_id))
        found = [Listed(*row) for row in self._session.exec(statement)]
        return found[:limit], found[limit - 1].mark if len(found) > limit else None

    def record(self, conversation_id: int) -> Record:
        """Return everything about a conversation but what was said in it; raises ``NotFound``."""
        conversation = Removals(self._link, self._now).conversation(conversation_id)
        agent = self._session.get_one(Agent, conversation.agent_id)
        open_jobs = select(Job.id).where(Job.conversation_id == conversation_id, col(Job.status).in_(OPEN))
        compactions = select(Compaction).where(Compaction.conversation_id == conversation_id)
        return Record(
            listed=Listed(conversation, agent.slug),
            archived=self._count(ArchivedMessage.conversation_id, conversation_id),
            facts=self._count(MemoryFact.source_conversation_id, conversation_id),
            open_jobs=self._session.exec(open_jobs.order_by(col(Job.created_at))).all(),
            compactions=self._session.exec(compactions.order_by(col(Compaction.id))).all(),
        )

    def said(self, conversation_id: int, after: int, limit: int) -> tuple[Sequence[Spoken], int | None]:
        """Return up to ``limit`` messages after the one with this id, and the id to go on after.

        They come in the order they were said, those in the archive among the others. Raises ``NotFound``.
        """
        Removals(self._link, self._now).conversation(conversation_id)
        kept, archived = (
            self._spoken(table, limit + 1, table.conversation_id == conversation_id, col(table.id) > after)
            for table in (Message, ArchivedMessage)
        )
        found = list(islice(merge(kept, archived, key=_said_first), limit + 1))
        return found[:limit], found[limit - 1].message.id if len(found) > limit else None

    def containing(self, text: str, before: int | None, limit: int) -> tuple[Sequence[Spoken], int | None]:
        """Return up to ``limit`` messages that contain a text, newest first, and the id to go on before.

        It reads through everything that was ever said, and takes as long.
        """
        found: list[Spoken] = []
        for table in (Message, ArchivedMessage):
            conditions = [col(table.content).icontains(text, autoescape=True)]
            if before is not None:
                conditions.append(col(table.id) < before)
            found += self._spoken(table, limit + 1, *conditions, newest_first=True)
        found.sort(key=_said_first, reverse=True)
        return found[:limit], found[limit - 1].message.id if len(found) > limit else None

    def _spoken(
        self, table: type[Message] | type[ArchivedMessage], limit: int, *where: Any, newest_first: bool = False
    ) -> list[Spoken]:
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
            Spoken(message, user if message.role is Role.USER else agent, archived=table is ArchivedMessage)
            for message, agent, user in rows
        ]

    def _count(self, column: Any, conversation_id: int) -> int:
        return int(self._run(select(func.count()).where(column == conversation_id)).scalar_one())


def _said_first(spoken: Spoken) -> int:
    return spoken.message.id or 0


def _conditions(wanted: ConversationFilter) -> Iterator[ColumnElement[bool]]:
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
        yield _mentions(wanted.q)


def _mentions(text: str) -> ColumnElement[bool]:
    said = (
        select(table.conversation_id).where(col(table.content).icontains(text, autoescape=True))
        for table in (Message, ArchivedMessage)
    )
    named = col(Conversation.user_name).icontains(text, autoescape=True)
    return or_(named, *(col(Conversation.id).in_(found) for found in said))
