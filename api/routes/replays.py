"""Many jobs at once: how many there are, what failed, and batches that replay or cancel them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response, status
from pydantic import Field, model_validator

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.batch_views import (
    BatchItemPage,
    BatchPage,
    BatchView,
    BatchWish,
    Selection,
    StatusCounts,
    batch_view,
    check_edits,
    item_page,
    status_counts,
)
from maestro.domain.jobs.batches import BatchAction, ItemState
from maestro.domain.jobs.edits import Edits
from maestro.domain.jobs.failures import ErrorGroupPage, grouped
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.forecast import Forecast
from maestro.domain.values import Value

LIMIT = 50
MOST = 200
MOST_ITEMS = 1000
BEGUN: dict[int | str, dict[str, Any]] = {
    status.HTTP_200_OK: {"model": Forecast, "description": "What a dry run found"},
    status.HTTP_202_ACCEPTED: {"model": BatchView, "description": "The batch, which goes on by itself"},
}
"""What a request for a batch is answered with."""

router = APIRouter(route_class=PasswordRoute, tags=["jobs"], prefix="/api/jobs")


class BulkReplay(Selection):
    """Which jobs to replay and how; with ``dryRun`` it is only told what that would do.

    ``edits`` go with the mode ``restart``.
    """

    mode: Literal["resume", "restart"]
    edits: Edits | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _fitting(self) -> "BulkReplay":
        check_edits(self.mode, self.edits)
        return self


class BulkCancel(Selection):
    """Which jobs to cancel; with ``dryRun`` it is only told what that would do."""

    dry_run: bool = False


class BatchQuery(Value):
    """A page of batches; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: str | None = None


class ItemQuery(Value):
    """Items of a batch with these states, and a page of them; ``cursor`` is the ``next`` of the page before."""

    state: tuple[ItemState, ...] = ()
    limit: int = Field(default=LIMIT, ge=1, le=MOST_ITEMS)
    cursor: int = Field(default=0, ge=0, le=LARGEST)


@router.get("/counts")
def count_jobs(parts: Parts, query: Annotated[JobFilter, Query()]) -> StatusCounts:
    """Count the jobs of a filter by status; that of the filter itself does not matter."""
    with parts.store.view() as tx:
        return status_counts(tx.tallies.statuses(query))


@router.get("/errors")
def group_errors(parts: Parts, query: Annotated[JobFilter, Query()]) -> ErrorGroupPage:
    """Group the failed jobs of a filter, or those of its ``status``, by what went wrong; the newest first."""
    with parts.store.view() as tx:
        failures = tx.tallies.failures(query)
    return grouped(failures)


@router.post("/replay", responses=BEGUN, response_model=None)
def replay_jobs(parts: Parts, wish: BulkReplay, response: Response) -> Forecast | BatchView:
    """Replay many jobs; 409 when it is another number of jobs by now than ``expected``."""
    chosen = wish.model_dump(exclude={"mode", "dry_run"}, exclude_unset=True)
    return _batch(parts, BatchWish(action=BatchAction(wish.mode), **chosen), response, dry_run=wish.dry_run)


@router.post("/cancel", responses=BEGUN, response_model=None)
def cancel_jobs(parts: Parts, wish: BulkCancel, response: Response) -> Forecast | BatchView:
    """Stop many open jobs for good; 409 when it is another number of jobs by now than ``expected``."""
    chosen = wish.model_dump(exclude={"dry_run"}, exclude_unset=True)
    return _batch(parts, BatchWish(action=BatchAction.CANCEL, **chosen), response, dry_run=wish.dry_run)


@router.get("/batches")
def list_batches(parts: Parts, query: Annotated[BatchQuery, Query()]) -> BatchPage:
    """List batches with their progress, newest first."""
    with parts.store.view() as tx:
        found = tx.batches.all(query.cursor, query.limit + 1)
        shown = [batch_view(batch, tx.batches.progress(batch.id), tx.now) for batch in found[: query.limit]]
    return BatchPage(items=tuple(shown), next=shown[-1].id if len(found) > query.limit else None)


@router.get("/batches/{batch_id}")
def show_batch(parts: Parts, batch_id: str) -> BatchView:
    """Return how far a batch is."""
    with parts.store.view() as tx:
        return batch_view(tx.batches.get(batch_id), tx.batches.progress(batch_id), tx.now)


@router.get("/batches/{batch_id}/items")
def list_items(parts: Parts, batch_id: str, query: Annotated[ItemQuery, Query()]) -> BatchItemPage:
    """List what came of each job of a batch, in their order; ``state`` may be given several times."""
    with parts.store.view() as tx:
        tx.batches.get(batch_id)
        return item_page(tx.batches.items(batch_id, query.state, query.cursor, query.limit + 1), query.limit)


@router.post("/batches/{batch_id}/stop")
def stop_batch(parts: Parts, batch_id: str) -> BatchView:
    """Let no more jobs of a batch begin; those that were begun go on. 409 when all have had their turn."""
    return parts.batches.stop(batch_id, OPERATOR)


def _batch(parts: Parts, wish: BatchWish, response: Response, *, dry_run: bool) -> Forecast | BatchView:
    if dry_run:
        return parts.batches.forecast(wish)
    response.status_code = status.HTTP_202_ACCEPTED
    return parts.batches.begin(wish, OPERATOR)
