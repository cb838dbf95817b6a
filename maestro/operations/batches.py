"""The operations on many jobs at once; ``temporal.replays`` runs the batches, job by job."""

from collections.abc import Sequence

from pydantic import Field
from ulid import ULID

from maestro.domain.columns import LARGEST
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.batch_preview import BatchPreview, JobPreview, JobPreviews, build_batch_preview
from maestro.domain.jobs.batches import (
    MOST_JOBS,
    BatchItemPage,
    BatchPage,
    BatchRequest,
    BatchView,
    ItemState,
    ReplayBatch,
    StatusCounts,
    batch_view,
)
from maestro.domain.jobs.filters import ErrorGroupPage, JobFilter, group_failures
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
    """The operations on many jobs; a snapshot selects the jobs, and one transaction writes a batch."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def counts(self, query: JobFilter) -> StatusCounts:
        """Count the jobs that match a filter by status; the filter's own ``status`` is ignored."""
        with self._store.view() as tx:
            counts = tx.jobs.counts.statuses(query)
        return StatusCounts(total=sum(counts.values()), **{str(status): count for status, count in counts.items()})

    def errors(self, query: JobFilter) -> ErrorGroupPage:
        """Group the failed jobs that match a filter, or the jobs with its ``status``, by error, newest first."""
        with self._store.view() as tx:
            return group_failures(tx.jobs.counts.failures(query))

    def list(self, query: BatchQuery) -> BatchPage:
        """List batches with their progress, newest first."""
        with self._store.view() as tx:
            rows = tx.jobs.batches.all(query.cursor, query.limit + 1)
            views = [batch_view(row, tx.jobs.batches.progress(row.id), tx.now) for row in rows[: query.limit]]
        return BatchPage(items=tuple(views), next=views[-1].id if len(rows) > query.limit else None)

    def show(self, batch_id: str) -> BatchView:
        """Return the progress of a batch."""
        with self._store.view() as tx:
            return batch_view(tx.jobs.batches.get(batch_id), tx.jobs.batches.progress(batch_id), tx.now)

    def items(self, batch_id: str, query: ItemQuery) -> BatchItemPage:
        """List the result of each job of a batch, in the order of the batch; ``state`` may be given several times."""
        with self._store.view() as tx:
            tx.jobs.batches.get(batch_id)
            found = tx.jobs.batches.items(batch_id, query.state, query.cursor, query.limit + 1)
        more = len(found) > query.limit
        return BatchItemPage(items=tuple(found[: query.limit]), next=found[query.limit - 1].place if more else None)

    def forecast(self, request: BatchRequest) -> BatchPreview:
        """Return what a batch would do; raises ``InvalidEdit`` for too many jobs or for impossible edits."""
        with self._store.view() as tx:
            return build_batch_preview(request.action, _previews(tx, request))

    def begin(self, request: BatchRequest, actor: str) -> BatchView:
        """Begin a batch; raises as ``forecast`` does, and ``Conflict`` if not as many jobs match as expected."""
        # The selection may take seconds, so it reads in a view, which does not block writers.
        with self._store.view() as tx:
            previews = _previews(tx, request)
        if request.expected is not None and request.expected != len(previews):
            matching = "1 job matches" if len(previews) == 1 else f"{len(previews)} jobs match"
            raise Conflict(f"{matching} by now, not {request.expected}. Look at them again, then repeat.")
        with self._store.begin() as tx:
            batch = ReplayBatch(
                id=f"batch-{ULID()}",
                action=request.action,
                edits=request.changes.text,
                wanted=request.filter.model_dump_json(exclude_defaults=True) if request.filter is not None else "",
                actor=actor,
                origin=present_origin(),
                total=len(previews),
                created_at=tx.now,
            )
            tx.jobs.batches.add(batch, previews)
            tx.jobs.batches.end(batch.id)
            possible = sum(not preview.problem for preview in previews)
            tx.system.audit.add(actor, f"jobs.{request.action}", batch.id, f"{possible} of {len(previews)} jobs")
        return self.show(batch.id)

    def stop(self, batch_id: str, actor: str) -> BatchView:
        """Stop a batch before its next job; jobs that have begun go on. 409 for a batch that has ended."""
        with self._store.begin() as tx:
            if tx.jobs.batches.get(batch_id).ended_at is not None:
                raise Conflict(f"batch {batch_id} has ended already; there is nothing to stop")
            tx.jobs.batches.stop(batch_id)
            tx.system.audit.add(actor, "batch.stop", batch_id)
        return self.show(batch_id)


def _previews(tx: Transaction, request: BatchRequest) -> Sequence[JobPreview]:
    """Preview every selected job, in the order of the batch."""
    chosen_agent(tx, request.changes)
    agents = {agent.slug: agent.id for agent in tx.agents.active()}
    previews = JobPreviews(request.action, tx.jobs.candidates.prices(), request.changes, agents)
    found = tx.jobs.candidates.read_jobs(_selected_ids(tx, request))
    return [
        previews.preview_job(job) if job is not None else JobPreview(job_id, "", f"job {job_id} does not exist")
        for job_id, job in found
    ]


def _selected_ids(tx: Transaction, request: BatchRequest) -> Sequence[str]:
    if request.filter is None:
        return tuple(dict.fromkeys(request.ids or ()))
    ids = tx.jobs.candidates.ids(request.filter, MOST_JOBS + 1)
    if len(ids) > MOST_JOBS:
        raise InvalidEdit(f"more than {MOST_JOBS:,} jobs match; narrow the filter, for example with since and until")
    return ids
