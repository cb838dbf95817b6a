"""The sessions of #maestro (docs/decisions.md: chat sessions)."""

from uuid import uuid4

from sqlalchemy import bindparam
from sqlmodel import col, select, update

from maestro.domain.chat.session import ChatSession
from maestro.store.prepared import Prepared, insert
from maestro.store.repository import Repository


class ChatSessions(Repository):
    """Opens and ends sessions; at most one is open, because who changes that has the database to itself."""

    _IS_OPEN = col(ChatSession.ended_at).is_(None)
    _OPEN_ONE = select(ChatSession.id).where(_IS_OPEN)
    _CURRENT = Prepared(_OPEN_ONE)
    _OPEN = Prepared(insert(ChatSession).on_conflict_do_update(index_elements=["id"], set_={"ended_at": None}))
    _END_OTHERS = Prepared(
        update(ChatSession).where(_IS_OPEN, col(ChatSession.id) != bindparam("but")).values(ended_at=bindparam("at"))
    )
    _BY_ID = Prepared(select(ChatSession).where(ChatSession.id == bindparam("session_id")))

    def current(self) -> str | None:
        """Return the id of the open session, None when there is none."""
        found: str | None = self._value(self._CURRENT)
        return found

    def join(self, pinned: str = "") -> str:
        """Return the id of the open session, which is ``pinned`` where one is given; opens it if it is not open."""
        current = self.current()
        if current is not None and pinned in ("", current):
            return current
        return self.open(pinned or str(uuid4()))

    def open(self, session_id: str) -> str:
        """Let just this session be open: a new one, or an earlier one that goes on; return its id."""
        self._change(self._END_OTHERS, but=session_id, at=self._now)
        self._change(self._OPEN, id=session_id, started_at=self._now, ended_at=None)
        return session_id

    def end(self) -> str | None:
        """End the open session and return its id, None when there was none; the next post opens another."""
        current = self.current()
        self._change(self._END_OTHERS, but="", at=self._now)
        return current

    def session(self, session_id: str) -> ChatSession | None:
        """Return a session as a value, if there is one of this id."""
        return self._read(self._BY_ID, ChatSession, session_id=session_id)
