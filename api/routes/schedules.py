"""Heartbeats and crons, for operators."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.schedules.edits import BackfillWish, NewScheduleOfKind, PreviewWish, ScheduleChange
from maestro.domain.schedules.views import (
    BackfillView,
    PreviewView,
    ScheduleFilter,
    SchedulePage,
    ScheduleView,
    StartedRun,
    schedule_page,
)

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["schedules"], prefix="/api/schedules")


class ScheduleQuery(ScheduleFilter):
    """A filter and a page of its result; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: str | None = None


@router.get("")
def list_schedules(parts: Parts, query: Annotated[ScheduleQuery, Query()]) -> SchedulePage:
    """List heartbeats and crons with their next and last runs, heartbeats first, the oldest first."""
    with parts.store.view() as tx:
        return schedule_page(tx.schedules.page(query, query.cursor, query.limit + 1), query.limit)


@router.post("", status_code=HTTPStatus.CREATED)
def add_schedule(parts: Parts, new: NewScheduleOfKind) -> ScheduleView:
    """Plan something; 409 when the agent has something planned under that name. It runs from its next time on."""
    return parts.schedules.add(new.kind, new, OPERATOR)


@router.post("/preview", openapi_extra=FOR_VIEWERS)
def preview_schedule(parts: Parts, wish: PreviewWish) -> PreviewView:
    """Return the next five times of a schedule in its time zone, without planning anything."""
    return parts.schedules.preview(wish)


@router.get("/{ref}")
def show_schedule(parts: Parts, ref: str) -> ScheduleView:
    """Return a heartbeat or a cron by its ref, such as cron-3."""
    with parts.store.view() as tx:
        return tx.schedules.view(tx.schedules.get(ref))


@router.patch("/{ref}")
def change_schedule(parts: Parts, ref: str, change: ScheduleChange) -> ScheduleView:
    """Change the fields that are given; ``enabled`` pauses it, and lets it run again whatever paused it."""
    return parts.schedules.change(ref, change, OPERATOR)


@router.delete("/{ref}", status_code=HTTPStatus.NO_CONTENT)
def remove_schedule(parts: Parts, ref: str) -> None:
    """Remove a heartbeat or a cron; its jobs stay."""
    with parts.store.begin() as tx:
        tx.schedules.remove(tx.schedules.get(ref), OPERATOR)


@router.post("/{ref}/trigger", status_code=HTTPStatus.ACCEPTED)
def trigger_schedule(parts: Parts, ref: str) -> StartedRun:
    """Begin a run now, of a paused one too; 409 while another run is open, and when the agent is not active."""
    return parts.schedules.run_now(ref, OPERATOR)


@router.post("/{ref}/backfill", status_code=HTTPStatus.ACCEPTED)
def backfill_schedule(parts: Parts, ref: str, wish: BackfillWish, response: Response) -> BackfillView:
    """Begin a run for each time from ``from`` to ``to`` that had none, at most 100, one after the other.

    With ``preview`` it only tells which, with status 200.
    """
    if wish.preview:
        response.status_code = HTTPStatus.OK
    return parts.schedules.backfill(ref, wish, OPERATOR)
