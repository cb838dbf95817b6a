"""Judges and begins batches for operators; ``temporal.batches`` works on them, job by job."""

from collections.abc import Sequence

from ulid import ULID

from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.batch_views import BatchView, BatchWish, batch_view, wanted_text
from maestro.domain.jobs.batches import MOST, ReplayBatch
from maestro.domain.jobs.forecast import Forecast, Outlook, Outlooks, forecast
from maestro.store.audit import present_origin
from maestro.store.replays import chosen_agent
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class StoreBatchControl:
    """Reads what matches in one snapshot and writes the batch in one transaction; a ``BatchControl``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def forecast(self, wish: BatchWish) -> Forecast:
        """Tell what a batch would do; raises ``InvalidEdit`` for too many jobs or for edits that do not fit."""
        with self._store.view() as tx:
            return forecast(wish.action, _outlooks(tx, wish))

    def begin(self, wish: BatchWish, actor: str) -> BatchView:
        """Keep the batch; whoever works on batches begins at once.

        Raises as ``forecast`` does, and ``Conflict`` when not as many jobs match as expected.
        """
        with self._store.view() as tx:  # judged beside those who write: it may take seconds
            outlooks = _outlooks(tx, wish)
        if wish.expected is not None and wish.expected != len(outlooks):
            found = "1 job matches" if len(outlooks) == 1 else f"{len(outlooks)} jobs match"
            raise Conflict(f"{found} by now, not {wish.expected}. Look at them again, then repeat.")
        with self._store.begin() as tx:
            batch = _batch(tx, wish, actor, len(outlooks))
            tx.batches.add(batch, outlooks)
            tx.batches.end(batch.id)
            possible = sum(not one.problem for one in outlooks)
            tx.audit.add(actor, f"jobs.{wish.action}", batch.id, f"{possible} of {len(outlooks)} jobs")
        return self._view(batch.id)

    def stop(self, batch_id: str, actor: str) -> BatchView:
        """Let no more jobs of a batch begin; raises ``NotFound``, and ``Conflict`` when all have."""
        with self._store.begin() as tx:
            if tx.batches.get(batch_id).ended_at is not None:
                raise Conflict(f"batch {batch_id} has ended: every job of it has had its turn")
            tx.batches.stop(batch_id)
            tx.audit.add(actor, "batch.stop", batch_id)
        return self._view(batch_id)

    def _view(self, batch_id: str) -> BatchView:
        with self._store.view() as tx:
            return batch_view(tx.batches.get(batch_id), tx.batches.progress(batch_id), tx.now)


def _batch(tx: Transaction, wish: BatchWish, actor: str, total: int) -> ReplayBatch:
    return ReplayBatch(
        id=f"batch-{ULID()}",
        action=wish.action,
        edits=wish.changes.text,
        wanted=wanted_text(wish),
        actor=actor,
        origin=present_origin(),
        total=total,
        created_at=tx.now,
    )


def _outlooks(tx: Transaction, wish: BatchWish) -> Sequence[Outlook]:
    """Judge every job that is meant, in the order of their turns."""
    chosen_agent(tx, wish.changes)
    agents = {agent.slug: agent.id for agent in tx.agents.active()}
    judged = Outlooks(wish.action, tx.prospects.prices(), wish.changes, agents)
    found = tx.prospects.of(_ids(tx, wish))
    return [judged.of(one) if one is not None else judged.missing(job_id) for job_id, one in found]


def _ids(tx: Transaction, wish: BatchWish) -> Sequence[str]:
    if wish.filter is None:
        return tuple(dict.fromkeys(wish.ids or ()))
    ids = tx.prospects.ids(wish.filter, MOST + 1)
    if len(ids) > MOST:
        raise InvalidEdit(f"more than {MOST:,} jobs match; narrow the filter, for example with since and until")
    return ids
