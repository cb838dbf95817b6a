"""Many jobs at once: how many there are, what failed, and batches that replay or cancel them."""

from typing import Any, Literal

from fastapi import Response, status
from pydantic import model_validator

from api.guards import OPERATOR
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.domain.jobs.batch_views import BatchView, BatchWish, Selection, check_edits
from maestro.domain.jobs.batches import BatchAction
from maestro.domain.jobs.forecast import Forecast
from maestro.domain.jobs.job import Edits
from maestro.operations.batches import BatchOperations

BEGUN: dict[int | str, dict[str, Any]] = {
    status.HTTP_200_OK: {"model": Forecast, "description": "What a dry run found"},
    status.HTTP_202_ACCEPTED: {"model": BatchView, "description": "The batch, which goes on by itself"},
}
"""What a request for a batch is answered with."""


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


router = OperationAPIRouter("batches", tag="jobs")
router.serve("GET", "/counts", BatchOperations.counts, "count_jobs")
router.serve("GET", "/errors", BatchOperations.errors, "group_errors")


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


router.serve("GET", "/batches", BatchOperations.list, "list_batches")
router.serve("GET", "/batches/{batch_id}", BatchOperations.show, "show_batch")
router.serve("GET", "/batches/{batch_id}/items", BatchOperations.items, "list_items")
router.serve("POST", "/batches/{batch_id}/stop", BatchOperations.stop, "stop_batch")


def _batch(parts: Parts, wish: BatchWish, response: Response, *, dry_run: bool) -> Forecast | BatchView:
    if dry_run:
        return parts.batches.forecast(wish)
    response.status_code = status.HTTP_202_ACCEPTED
    return parts.batches.begin(wish, OPERATOR)
