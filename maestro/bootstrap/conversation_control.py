"""Deletes conversations for operators, and then the files that nobody refers to any more (decision 18)."""

import shutil
from pathlib import Path

from maestro.store.store import Store

MEDIA = "media"


class StoreConversationControl:
    """Deletes in the store first, so that a file is gone only when nothing names it; a ``ConversationControl``."""

    def __init__(self, store: Store, data_dir: Path) -> None:
        self._store = store
        self._data_dir = data_dir

    def close(self, conversation_id: int, actor: str) -> None:
        """End a conversation, so that the next message begins another; nothing of it is lost.

        Raises ``NotFound``, and ``Conflict`` for one that has ended.
        """
        with self._store.begin() as tx:
            tx.conversations.close(conversation_id)
            tx.audit.add(actor, "conversation.close", str(conversation_id))

    def delete(self, conversation_id: int, actor: str, *, facts: bool) -> None:
        """Delete a conversation with its files, with ``facts`` also what was learned in it.

        Raises ``NotFound``, and ``Conflict`` while a job of it is open.
        """
        with self._store.view() as tx:
            plan = tx.removals.plan(conversation_id)
        with self._store.begin() as tx:
            tx.removals.carry_out(plan, actor, facts=facts)
            tx.audit.add(actor, "conversation.delete", str(conversation_id), "with facts" if facts else "")
        remove_discarded(self._store, self._data_dir)


def remove_discarded(store: Store, data_dir: Path) -> None:
    """Remove the files and folders that deletions left, also those of a process that died before it came to that."""
    with store.view() as tx:
        paths = tx.removals.discarded()
    for path in paths:
        _remove(store, data_dir, path)


def _remove(store: Store, data_dir: Path, path: str) -> None:
    """Remove a file unless the same one was sent again; nobody can send it while it is looked at."""
    place = data_dir / path
    if not path.startswith(f"{MEDIA}/"):
        shutil.rmtree(place, ignore_errors=True)
    with store.begin() as tx:
        if path.startswith(f"{MEDIA}/") and not tx.removals.wanted_again(place.name):
            place.unlink(missing_ok=True)
        tx.removals.done_with(path)
