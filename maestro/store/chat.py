"""The posts of #maestro: the session is added and filtered here, and nowhere else."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from sqlalchemy import bindparam, func, true
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.chat.message import HUMAN, ChatCursor, ChatMessage, ChatReminder, Post, Unread, author_problem
from maestro.domain.errors import Forbidden
from maestro.store.chat_reminders import ChatReminders
from maestro.store.chat_sessions import ChatSessions
from maestro.store.prepared import NO_LIMIT, Prepared, greatest, insert


class Chat(ChatSessions):
    """Posts and cursors."""

    _HERE = ChatMessage.session_id == ChatSessions._OPEN_ONE.scalar_subquery()
    _AGENT = Prepared(select(Agent).where(Agent.slug == bindparam("slug")))
    _POST = Prepared(insert(ChatMessage))
    _POSTS = (
        select(ChatMessage.id, ChatMessage.ts, ChatMessage.author, ChatMessage.text)
        .where(_HERE)
        .order_by(col(ChatMessage.id))
    )
    _READ_UPTO = select(ChatCursor.last_id).where(ChatCursor.agent_id == bindparam("agent")).scalar_subquery()
    _OFFERED_UPTO = select(ChatCursor.offered_id).where(ChatCursor.agent_id == bindparam("agent")).scalar_subquery()
    _POINTER = select(
        greatest(func.coalesce(_READ_UPTO, 0), bindparam("offered") * func.coalesce(_OFFERED_UPTO, 0)).label("after")
    ).subquery()
    _NEW = (
        _POSTS.where(col(ChatMessage.id) > select(_POINTER.c.after).scalar_subquery())
        .limit(bindparam("at_most"))
        .subquery()
    )
    # Beside each post the cursor, which is one row without a post where there is nothing new.
    _AFTER = columns(_POINTER.c.after, *_NEW.c).select_from(_POINTER.outerjoin(_NEW, true())).order_by(_NEW.c.id)
    _UNREAD = Prepared(_AFTER)
    _REMINDERS = select(ChatReminder.job_id).where(col(ChatReminder.agent_id) == bindparam("agent"))
    _NEWS = Prepared(_AFTER.add_columns(_REMINDERS.exists()))
    _LAST = Prepared(_POSTS.order_by(None).order_by(col(ChatMessage.id).desc()).limit(bindparam("at_most")))
    _NEWEST = Prepared(select(func.max(ChatMessage.id)).where(_HERE))
    _COUNT = Prepared(select(func.count(col(ChatMessage.id))).where(_HERE))
    _MOVE = insert(ChatCursor)
    _READ = Prepared(
        _MOVE.on_conflict_do_update(
            index_elements=["agent_id"],
            set_={
                "last_id": greatest(ChatCursor.last_id, _MOVE.excluded.last_id),
                "offered_id": greatest(ChatCursor.offered_id, _MOVE.excluded.offered_id),
            },
        )
    )

    def post(self, author: str, text: str) -> int:
        """Add a post, already scanned and cut, to the open session, which is opened if there is none; return its id.

        Raises ``Forbidden`` for an author that does not take part.
        """
        problem = author_problem(author, None if author == HUMAN else self._agent(author))
        if problem:
            raise Forbidden(problem)
        moment = self._now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self._insert(self._POST, id=None, session_id=self.join(), ts=moment, author=author, text=text)

    def unread(self, slug: str, limit: int | None = None) -> Unread:
        """Return what an agent has not read of the open session, its own posts too: all, or the oldest ones."""
        return self._unread(slug, limit)

    def news(self, slug: str, job_id: str, limit: int) -> tuple[Unread, bool]:
        """Return the oldest posts that an agent has not read, and whether the next call of this job reminds it."""
        rows = self._rows(self._NEWS, agent=slug, offered=0, at_most=limit)
        has_reminders = rows[0][-1]
        due = has_reminders and ChatReminders(self._link, self._now).due(slug, job_id)
        return _unread([row[:-1] for row in rows]), due

    def mark_read(self, slug: str, pointer: int) -> None:
        """Note that an agent has read up to a post; a cursor never goes back."""
        self._change(self._READ, agent_id=slug, last_id=pointer, offered_id=0)

    def offer(self, slug: str) -> Unread:
        """Return what an agent outside has not read: by asking again it says that it read what it got before."""
        unread = self._unread(slug, with_offered=True)
        self._change(self._READ, agent_id=slug, last_id=unread.after, offered_id=unread.new_pointer)
        return unread

    def timeline(self, limit: int | None = None) -> Sequence[Post]:
        """Return the posts of the open session, oldest first: all, or the newest ones up to a limit."""
        rows = self._rows(self._LAST, at_most=NO_LIMIT if limit is None else limit)
        return [Post(*row) for row in reversed(rows)]

    def newest(self) -> int:
        """Return the id of the last post of the open session, 0 when there is none."""
        return int(self._value(self._NEWEST) or 0)

    def begin_ids_after(self, floor: int) -> None:
        """Give no id up to the floor from now on."""
        self._begin_ids_after(ChatMessage, floor)

    def count(self) -> int:
        """Return how many posts the open session has."""
        return int(self._value(self._COUNT))

    def _agent(self, author: str) -> Agent | None:
        return self._read(self._AGENT, Agent, slug=author.removeprefix("@"))

    def _unread(self, slug: str, limit: int | None = None, *, with_offered: bool = False) -> Unread:
        """Return what comes after an agent's cursor; ``with_offered`` counts as read what it was offered last."""
        at_most = NO_LIMIT if limit is None else limit
        return _unread(self._rows(self._UNREAD, agent=slug, offered=int(with_offered), at_most=at_most))


def _unread(rows: Sequence[tuple[Any, ...]]) -> Unread:
    """Return the posts of these rows, and the cursor, which is beside each of them."""
    return Unread([Post(*post) for _, *post in rows if post[0] is not None], rows[0][0])
