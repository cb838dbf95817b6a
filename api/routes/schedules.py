"""Heartbeats and crons, for operators."""

from http import HTTPStatus

from fastapi import Response

from api.guards import OPERATOR
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.domain.schedules.edits import BackfillWish
from maestro.domain.schedules.views import BackfillView
from maestro.operations.schedules import ScheduleOperations

router = OperationAPIRouter("schedules")
router.serve("GET", "", ScheduleOperations.list, "list_schedules")
router.serve("POST", "", ScheduleOperations.add, "add_schedule")
router.serve("POST", "/preview", ScheduleOperations.preview, "preview_schedule")
router.serve("GET", "/{ref}", ScheduleOperations.show, "show_schedule")
router.serve("PATCH", "/{ref}", ScheduleOperations.change, "change_schedule")
router.serve("DELETE", "/{ref}", ScheduleOperations.remove, "remove_schedule")
router.serve("POST", "/{ref}/trigger", ScheduleOperations.run_now, "trigger_schedule", HTTPStatus.ACCEPTED)


@router.post("/{ref}/backfill", status_code=HTTPStatus.ACCEPTED)
def backfill_schedule(parts: Parts, ref: str, wish: BackfillWish, response: Response) -> BackfillView:
    """Begin a run for each time from ``from`` to ``to`` that had none, at most 100, one after the other.

    With ``preview`` it only tells which, with status 200.
    """
    if wish.preview:
        response.status_code = HTTPStatus.OK
    return parts.schedules.backfill(ref, wish, OPERATOR)
