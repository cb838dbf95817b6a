"""The spool of answers beside the file of a test's store."""

from maestro.llm.middleware.replay import FOLDER, AnswerSpool, Keep
from maestro.store.store import Store
from tests.support.fresh_store import path_of


def answer_spool(store: Store, keep: Keep = lambda *_: None) -> AnswerSpool:
    """Return the spool as a process of this store has it."""
    return AnswerSpool(store, path_of(store).with_name(FOLDER), keep)
