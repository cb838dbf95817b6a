"""The operations on the sessions of #maestro (docs/decisions.md: chat sessions)."""

from uuid import uuid4

from maestro.domain.agent_chat import CHANNEL, SessionView
from maestro.domain.errors import Conflict
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class SessionOperations:
    """The operations on the session of the agent chat; ``pinned`` is the id of a session that settings keep open."""

    def __init__(self, store: Store, *, enabled: bool, pinned: str) -> None:
        self._store = store
        self._enabled = enabled
        self._pinned = pinned

    def show(self) -> SessionView:
        """Return the open session."""
        with self._store.view() as tx:
            return _current_session(tx)

    def begin(self, actor: str) -> SessionView:
        """End the open session and begin another; 409 if the settings pin the session or disable the chat."""
        self._check_changeable()
        with self._store.begin() as tx:
            tx.system.audit.add(actor, "session.new", tx.chat.open(str(uuid4())))
            return _current_session(tx)

    def end(self, actor: str) -> str:
        """End the open session and return its id, empty if none was open; raises as ``begin`` does."""
        self._check_changeable()
        with self._store.begin() as tx:
            ended = tx.chat.end() or ""
            if ended:
                tx.system.audit.add(actor, "session.end", ended)
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
    current = tx.chat.current()
    session = tx.chat.session(current) if current else None
    if session is None:
        return SessionView(id="", started_at=None, posts=0)
    return SessionView(id=session.id, started_at=session.started_at, posts=tx.chat.count())
