"""The spool of answers beside the file of a test's store."""

from maestro.llm.middleware.replay import FOLDER, AnswerSpool, Keep, keep_no_rows
from maestro.llm.protocols import AttemptNotes
from maestro.store.store import Store
from temporal.attempts import HeartbeatNotes
from tests.support.fresh_store import path_of

NO_ACTIVITY = HeartbeatNotes()
"""The notes outside of an activity: they keep nothing."""


def answer_spool(
    store: Store, keep: Keep = keep_no_rows, notes: AttemptNotes = NO_ACTIVITY, *, host: str = ""
) -> AnswerSpool:
    """Return the spool as a process of this store has it, on a host with a folder of its own."""
    return AnswerSpool(store, path_of(store).parent / host / FOLDER, keep, notes)
