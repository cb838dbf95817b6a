"""The operations on many jobs at once; ``temporal.replays`` runs the batches, job by job."""

from collections.abc import Sequence

from pydantic import Field
from ulid import ULID

from maestro.domain.columns import LARGEST
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.batch_preview import BatchPreview, JobPreview, JobPreviews, build_batch_preview
from maestro.domain.jobs.batches import (
    MOST,
    BatchItemPage,
    BatchPage,
    BatchRequest,
    BatchView,
    ItemState,
    ReplayBatch,
    StatusCounts,
    batch_view,
)
from maestro.domain.jobs.failures import ErrorGroupPage, grouped
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.values import Value
from maestro.store.replays import chosen_agent
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.store.users.audit import present_origin

LIMIT = 50
MOST_BATCHES = 200


class BatchQuery(Value):
    """A page of batches; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST_BATCHES)
    cursor: str | None = None


class ItemQuery(Value):
    """Items of a batch with these states, and a page of them; ``cursor`` is the ``next`` of the page before."""

    state: tuple[ItemState, ...] = ()
    limit: int = Field(default=LIMIT, ge=1, le=1000)
    cursor: int = Field(default=0, ge=0, le=LARGEST)


class BatchOperations:
    """The operations on many jobs: what matches is read in one snapshot, a batch is written in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def counts(self, query: JobFilter) -> StatusCounts:
        """Count the jobs of a filter by status; that of the filter itself does not matter."""
        with self._store.view() as tx:
            counts = tx.jobs.counts.statuses(query)
        return StatusCounts(total=sum(counts.values()), **{str(status): count for status, count in counts.items()})

    def errors(self, query: JobFilter) -> ErrorGroupPage:
        """Group the failed jobs of a filter, or those of its ``status``, by what went wrong; the newest first."""
        with self._store.view() as tx:
            failures = tx.jobs.counts.failures(query)
        return grouped(failures)

    def list(self, query: BatchQuery) -> BatchPage:
        """List batches with their progress, newest first."""
        return self.page(query.limit, query.cursor)

    def page(self, limit: int, cursor: str | None) -> BatchPage:
        """Return a page of any length of the batches."""
        with self._store.view() as tx:
            found = tx.jobs.batches.all(cursor, limit + 1)
            shown = [batch_view(batch, tx.jobs.batches.progress(batch.id), tx.now) for batch in found[:limit]]
        return BatchPage(items=tuple(shown), next=shown[-1].id if len(found) > limit else None)

    def show(self, batch_id: str) -> BatchView:
        """Return how far a batch is."""
        with self._store.view() as tx:
            return batch_view(tx.jobs.batches.get(batch_id), tx.jobs.batches.progress(batch_id), tx.now)

    def items(self, batch_id: str, query: ItemQuery) -> BatchItemPage:
        """List what came of each job of a batch, in their order; ``state`` may be given several times."""
        with self._store.view() as tx:
            tx.jobs.batches.get(batch_id)
            found = tx.jobs.batches.items(batch_id, query.state, query.cursor, query.limit + 1)
        more = len(found) > query.limit
        return BatchItemPage(items=tuple(found[: query.limit]), next=found[query.limit - 1].place if more else None)

    def forecast(self, wish: BatchRequest) -> BatchPreview:
        """Tell what a batch would do; raises ``InvalidEdit`` for too many jobs or for edits that do not fit."""
        with self._store.view() as tx:
            return build_batch_preview(wish.action, _outlooks(tx, wish))

    def begin(self, wish: BatchRequest, actor: str) -> BatchView:
        """Begin a batch; raises as ``forecast`` does, and ``Conflict`` when not as many jobs match as expected."""
        # A read-only view, because the selection may take seconds and must not block writers.
        with self._store.view() as tx:
            outlooks = _outlooks(tx, wish)
        if wish.expected is not None and wish.expected != len(outlooks):
            found = "1 job matches" if len(outlooks) == 1 else f"{len(outlooks)} jobs match"
            raise Conflict(f"{found} by now, not {wish.expected}. Look at them again, then repeat.")
        with self._store.begin() as tx:
            batch = _batch(tx, wish, actor, len(outlooks))
            tx.jobs.batches.add(batch, outlooks)
            tx.jobs.batches.end(batch.id)
            possible = sum(not one.problem for one in outlooks)
            tx.system.audit.add(actor, f"jobs.{wish.action}", batch.id, f"{possible} of {len(outlooks)} jobs")
        return self.show(batch.id)

    def stop(self, batch_id: str, actor: str) -> BatchView:
        """Let no more jobs of a batch begin; those that were begun go on. 409 when all have had their turn."""
        with self._store.begin() as tx:
            if tx.jobs.batches.get(batch_id).ended_at is not None:
                raise Conflict(f"batch {batch_id} has ended: every job of it has had its turn")
            tx.jobs.batches.stop(batch_id)
            tx.system.audit.add(actor, "batch.stop", batch_id)
        return self.show(batch_id)


def _batch(tx: Transaction, wish: BatchRequest, actor: str, total: int) -> ReplayBatch:
    return ReplayBatch(
        id=f"batch-{ULID()}",
        action=wish.action,
        edits=wish.changes.text,
        wanted=wish.filter.model_dump_json(exclude_defaults=True) if wish.filter is not None else "",
        actor=actor,
        origin=present_origin(),
        total=total,
        created_at=tx.now,
    )


def _outlooks(tx: Transaction, wish: BatchRequest) -> Sequence[JobPreview]:
    """Judge every selected job, in the order of the batch."""
    chosen_agent(tx, wish.changes)
    agents = {agent.slug: agent.id for agent in tx.agents.active()}
    judged = JobPreviews(wish.action, tx.jobs.candidates.prices(), wish.changes, agents)
    found = tx.jobs.candidates.of(_ids(tx, wish))
    return [
        judged.of(job) if job is not None else JobPreview(job_id, "", f"job {job_id} does not exist")
        for job_id, job in found
    ]


def _ids(tx: Transaction, wish: BatchRequest) -> Sequence[str]:
    if wish.filter is None:
        return tuple(dict.fromkeys(wish.ids or ()))
    ids = tx.jobs.candidates.ids(wish.filter, MOST + 1)
    if len(ids) > MOST:
        raise InvalidEdit(f"more than {MOST:,} jobs match; narrow the filter, for example with since and until")
    return ids
