"""The session of #maestro in the life of a process (decision 12)."""

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

    One of ``session.id`` stays open where other processes share the store: their next post would open another.
    """
    if settings.session.id and not settings.temporal.embedded:
        return
    with store.begin() as tx:
        tx.chat.end()
