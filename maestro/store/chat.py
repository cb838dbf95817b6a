"""Queries for the agent chat (#maestro): its posts, sessions and reminders.

See docs/decisions.md: chat sessions.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import Any
from uuid import uuid4

from sqlalchemy import bindparam, delete, func, true, update
from sqlalchemy import select as columns
from sqlmodel import col, not_, or_, select

from maestro.domain.agent_chat import (
    HUMAN,
    ChatCursor,
    ChatMessage,
    ChatReminder,
    ChatSession,
    Post,
    UnreadPosts,
    author_problem,
)
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Forbidden
from maestro.domain.jobs.job import OPEN, Job
from maestro.store.engine.repository import LazyRepository, Repository
from maestro.store.engine.statements import NO_LIMIT, PreparedStatement, insert, is_one_of, larger_of_two, row_insert


class ChatSessions(Repository):
    """Queries for the sessions of the agent chat, of which at most one is open."""

    _IS_OPEN = col(ChatSession.ended_at).is_(None)
    _OPEN_ONE = select(ChatSession.id).where(_IS_OPEN)
    _CURRENT = PreparedStatement(_OPEN_ONE)
    _OPEN = PreparedStatement(insert(ChatSession).on_conflict_do_update(index_elements=["id"], set_={"ended_at": None}))
    _END_OTHERS = PreparedStatement(
        update(ChatSession).where(_IS_OPEN, col(ChatSession.id) != bindparam("but")).values(ended_at=bindparam("at"))
    )

    def find_current_session(self) -> str | None:
        """Return the id of the open session, or None if none is open."""
        session_id: str | None = self._read_value(self._CURRENT)
        return session_id

    def join_current_session(self, pinned: str = "") -> str:
        """Return the id of the open session; first open the session ``pinned``, or a new one if none is open."""
        current = self.find_current_session()
        if current is not None and pinned in ("", current):
            return current
        return self.open_session(pinned or str(uuid4()))

    def open_session(self, session_id: str) -> str:
        """Open a session with this id, new or ended; end any other open session, and return the id."""
        self._run_change(self._END_OTHERS, but=session_id, at=self._now)
        self._run_change(self._OPEN, id=session_id, started_at=self._now, ended_at=None)
        return session_id

    def end_current_session(self) -> str | None:
        """End the open session and return its id, or None without one; the next post opens a new session."""
        current = self.find_current_session()
        self._run_change(self._END_OTHERS, but="", at=self._now)
        return current

    def get_session(self, session_id: str) -> ChatSession | None:
        """Return the session with this id as a read-only row, or None if there is none."""
        return self._read_model_by(ChatSession, id=session_id)


class ChatReminders(Repository):
    """Queries for reminders to agents whose last answer only posted to the chat, one for each agent and job.

    The next model call of the job shows the reminder; after the job's end, the next call of any job of the agent does.
    """

    _DUE = (
        col(ChatReminder.agent_id) == bindparam("of_agent"),
        or_(
            col(ChatReminder.job_id) == bindparam("for_job"),
            select(Job.id).where(Job.id == ChatReminder.job_id, not_(is_one_of(col(Job.status), OPEN))).exists(),
        ),
    )
    _IS_DUE = PreparedStatement(select(ChatReminder.job_id).where(*_DUE).limit(1))
    _SHOWN = PreparedStatement(delete(ChatReminder).where(*_DUE))
    _REMIND = PreparedStatement(insert(ChatReminder).on_conflict_do_nothing())

    def is_due(self, slug: str, job_id: str) -> bool:
        """Return whether the next model call of this job has to show a reminder to the agent."""
        return self._has_row(self._IS_DUE, of_agent=slug, for_job=job_id)

    def clear_reminder(self, slug: str, job_id: str) -> None:
        """Delete the reminder of a job, because a model has answered the call that showed the reminder."""
        self._write(self._SHOWN, of_agent=slug, for_job=job_id)

    def record_reminder(self, slug: str, job_id: str) -> None:
        """Store a reminder that the next model call of a job shows."""
        self._write(self._REMIND, agent_id=slug, job_id=job_id)


class Chat(ChatSessions):
    """Queries for posts of the agent chat, and for the cursors up to which agents have read the posts."""

    reminders = LazyRepository(ChatReminders)

    _HERE = ChatMessage.session_id == ChatSessions._OPEN_ONE.scalar_subquery()
    _POSTS = (
        select(ChatMessage.id, ChatMessage.ts, ChatMessage.author, ChatMessage.text)
        .where(_HERE)
        .order_by(col(ChatMessage.id))
    )
    _READ_UPTO = select(ChatCursor.last_id).where(ChatCursor.agent_id == bindparam("agent")).scalar_subquery()
    _OFFERED_UPTO = select(ChatCursor.offered_id).where(ChatCursor.agent_id == bindparam("agent")).scalar_subquery()
    _POINTER = select(
        larger_of_two(func.coalesce(_READ_UPTO, 0), bindparam("offered") * func.coalesce(_OFFERED_UPTO, 0)).label(
            "after"
        )
    ).subquery()
    _NEW = (
        _POSTS.where(col(ChatMessage.id) > select(_POINTER.c.after).scalar_subquery())
        .limit(bindparam("at_most"))
        .subquery()
    )
    # Each row contains the cursor and one new post; without new posts, one row contains only the cursor.
    _AFTER = columns(_POINTER.c.after, *_NEW.c).select_from(_POINTER.outerjoin(_NEW, true())).order_by(_NEW.c.id)
    _UNREAD = PreparedStatement(_AFTER)
    _REMINDERS = select(ChatReminder.job_id).where(col(ChatReminder.agent_id) == bindparam("agent"))
    _NEWS = PreparedStatement(_AFTER.add_columns(_REMINDERS.exists()))
    _LAST = PreparedStatement(_POSTS.order_by(None).order_by(col(ChatMessage.id).desc()).limit(bindparam("at_most")))
    _NEWEST = PreparedStatement(select(func.max(ChatMessage.id)).where(_HERE))
    _COUNT = PreparedStatement(select(func.count(col(ChatMessage.id))).where(_HERE))
    _MOVE = insert(ChatCursor)
    _READ = PreparedStatement(
        _MOVE.on_conflict_do_update(
            index_elements=["agent_id"],
            set_={
                "last_id": larger_of_two(ChatCursor.last_id, _MOVE.excluded.last_id),
                "offered_id": larger_of_two(ChatCursor.offered_id, _MOVE.excluded.offered_id),
            },
        )
    )

    def add_post(self, author: str, text: str) -> int:
        """Add a post to the open session and return the post's id; ``text`` is already scanned and shortened.

        Opens a session if none is open. Raises ``Forbidden`` for an author that does not take part in the chat.
        """
        agent = self._read_model_by(Agent, slug=author.removeprefix("@")) if author != HUMAN else None
        problem = author_problem(author, agent)
        if problem:
            raise Forbidden(problem)
        moment = self._now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {"session_id": self.join_current_session(), "ts": moment, "author": author, "text": text}
        return self._insert_row(row_insert(ChatMessage), id=None, **values)

    def list_unread(self, slug: str, limit: int | None = None, *, with_offered: bool = False) -> UnreadPosts:
        """Return up to ``limit`` unread posts of the open session for an agent, oldest first, including its own posts.

        With ``with_offered``, the posts that the last ``mark_offered`` returned count as read.
        """
        at_most = NO_LIMIT if limit is None else limit
        return _unread(self._read_rows(self._UNREAD, agent=slug, offered=int(with_offered), at_most=at_most))

    def list_news(self, slug: str, job_id: str, limit: int) -> tuple[UnreadPosts, bool]:
        """Return an agent's oldest unread posts, and whether the next model call of this job has to show a reminder."""
        rows = self._read_rows(self._NEWS, agent=slug, offered=0, at_most=limit)
        has_reminders = rows[0][-1]
        due = has_reminders and self.reminders.is_due(slug, job_id)
        return _unread([row[:-1] for row in rows]), due

    def mark_read(self, slug: str, pointer: int) -> None:
        """Move the cursor of an agent forward to a post; the cursor never moves back."""
        self._write_shared(self._READ, (slug,), agent_id=slug, last_id=pointer, offered_id=0)

    def mark_offered(self, slug: str) -> UnreadPosts:
        """Return an external agent's unread posts, and mark the posts that its previous request returned as read."""
        unread = self.list_unread(slug, with_offered=True)
        self._run_change(self._READ, agent_id=slug, last_id=unread.after, offered_id=unread.new_pointer)
        return unread

    def list_posts(self, limit: int | None = None) -> Sequence[Post]:
        """Return the newest ``limit`` posts of the open session, oldest first."""
        rows = self._read_rows(self._LAST, at_most=NO_LIMIT if limit is None else limit)
        return [Post(*row) for row in reversed(rows)]

    def find_newest_id(self) -> int:
        """Return the id of the last post of the open session, or 0 if there is none."""
        return int(self._read_value(self._NEWEST) or 0)

    def begin_ids_after(self, floor: int) -> None:
        """Assign only ids above ``floor`` to new posts."""
        self._begin_ids_after(ChatMessage, floor)

    def count_posts(self) -> int:
        return int(self._read_value(self._COUNT))


def _unread(rows: Sequence[tuple[Any, ...]]) -> UnreadPosts:
    """Build an agent's unread posts from joined rows, each with the agent's cursor and at most one post."""
    return UnreadPosts([Post(*post) for _, *post in rows if post[0] is not None], rows[0][0])
