"""The session of #maestro in the life of a process (docs/decisions.md: chat sessions)."""

from maestro.settings import Settings
from maestro.store.store import Store


def join_session(store: Store, settings: Settings) -> None:
    """Open a session where none is open, and just the one of ``session.id`` where that is set.

    One that a crash has left open goes on, so that nothing in it stays unread.
    """
    if settings.chat.enabled:
        with store.begin() as tx:
            tx.chat.join(settings.session.id)


def end_session(store: Store, settings: Settings) -> None:
    """End the open session.

    Without a chat nobody was told anything, so nothing is ended. One of ``session.id`` stays open where other processes
    share the store: their next post would open another.
    """
    shared = not settings.temporal.embedded
    if settings.chat.enabled and not (settings.session.id and shared):
        with store.begin() as tx:
            tx.chat.end()
