"""Reads from the store what happened since the last look, so that counters only ever grow."""

from collections.abc import Collection

from maestro.domain.figures import UNDER_WAY, News
from maestro.domain.llm.budgets import BudgetScope
from maestro.domain.llm.calls import CallState
from maestro.store.store import Store


class Ledger:
    """Tells each message, ended job, ended call and ended chunk once, from the moment it is made on.

    What the tables hold at present would be no counter: a resumed job is no longer failed, and old rows may be deleted.
    Whichever process did the work, every process finds it here. Making one and reading it are transactions, short
    ones; two threads must not read at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.view() as tx:
            self._marks = tx.figures.marks()
            self._turns: Collection[int] = tx.figures.open_jobs().by_turn.keys()
            self._calls = tx.figures.open_calls()
            self._deliveries = tx.figures.open_deliveries()
            self._ignored = tx.ignored.by_reason()

    def read(self) -> News:
        """Return the news; raises ``StoreBusy``, and then the next look tells them."""
        with self._store.view() as tx:
            figures = tx.figures
            marks, open_jobs = figures.marks(), figures.open_jobs()
            gone = [turn for turn in self._turns if turn not in open_jobs.by_turn]
            ended = figures.ended_jobs(self._marks.turn, gone)
            received = figures.received(self._marks.inbox)
            calls = figures.calls(self._marks.call, self._calls)
            deliveries = figures.deliveries(self._marks.delivery, self._deliveries)
            connectors = figures.connectors()
            ignored = tx.ignored.by_reason()
            spending = tx.budgets.level((BudgetScope.DAY, ""))
        self._marks, self._turns = marks, open_jobs.by_turn.keys()
        before, self._ignored = self._ignored, ignored
        self._calls = {call.id for call in calls if call.state is CallState.SENT}
        self._deliveries = {chunk.id for chunk in deliveries if chunk.state in UNDER_WAY}
        return News(
            open_jobs=open_jobs,
            calls_open=len(self._calls),
            deliveries_open=len(self._deliveries),
            connectors=connectors,
            received=received,
            ignored={reason: count - before.get(reason, 0) for reason, count in ignored.items()},
            ended=ended,
            calls=[call for call in calls if call.id not in self._calls],
            deliveries=[chunk for chunk in deliveries if chunk.id not in self._deliveries],
            spending=spending,
        )
