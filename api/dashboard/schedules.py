"""The page of heartbeats and crons: planned, changed, paused, begun and removed, with plain forms."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.dashboard.pages import render
from api.errors import status_of
from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.reading import read
from maestro.domain.schedules.edits import NewScheduleOfKind, PreviewWish, ScheduleChange
from maestro.domain.schedules.views import PreviewView, ScheduleFilter, ScheduleView
from maestro.domain.schedules.words import distance

PAGE = "/schedules"
TITLE = "Schedules – Maestro"
SHOWN = 200
"""Schedules that the page lists; the command and the API list the others."""
TIMING = frozenset({"schedule", "timezone", "jitter_seconds"})

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Ref = Annotated[str, Form()]


class Typed(BaseModel):
    """What stands in the form; what is wrong with it is said by the rules of what it becomes."""

    ref: str = ""
    kind: str = "cron"
    agent: str = ""
    name: str = ""
    schedule: str = ""
    timezone: str = "UTC"
    jitter_seconds: str = "0"
    prompt: str = ""
    script: str = ""
    platform: str = "web"
    account: str = DEFAULT_ACCOUNT
    channel: str = ""
    thread: str = ""

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return what was typed, without the blanks around it; raises ``InvalidEdit`` for a script that is no JSON."""
        found: dict[str, object] = {
            name: text.strip() for name, text in self.model_dump(exclude={"ref", *left_out}).items()
        }
        return {**found, "script": _script(self.script)}


@dataclass(frozen=True)
class _Times:
    """When what was typed would come, or why it never does."""

    found: PreviewView | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Shown:
    """What the page is told beside the list: what was typed, and what came of it."""

    typed: Typed = field(default_factory=Typed)
    problem: str = ""
    times: _Times | None = None


@router.get("")
def show(request: Request, parts: Parts, edit: str = "") -> HTMLResponse:
    """List what is planned, and offer to plan more, or to change what is named."""
    if not edit:
        return _page(request, _Shown())
    with parts.store.view() as tx:
        schedule = tx.schedules.view(tx.schedules.get(edit))
    return _page(request, _Shown(_typed(schedule)))


@router.post("")
def plan(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> Response:
    """Plan something, and lead back to the list; what cannot be planned is said on the page."""

    def wish() -> None:
        new = read(NewScheduleOfKind, typed.fields())
        parts.schedules.add(new.kind, new, OPERATOR)

    return _done(request, wish, typed)


@router.post("/change")
def change(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> Response:
    """Change what is planned, and lead back to the list."""
    return _done(
        request,
        lambda: parts.schedules.change(typed.ref, read(ScheduleChange, typed.fields("kind")), OPERATOR),
        typed,
    )


@router.post("/preview", openapi_extra=FOR_VIEWERS)
def preview(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> HTMLResponse:
    """Show when what was typed would come, where no script does it; nothing is planned."""
    return _page(request, _Shown(typed, times=_times(parts, typed)))


@router.get("/times")
def times(request: Request, parts: Parts, typed: Annotated[Typed, Query()]) -> HTMLResponse:
    """Return that part of the page alone, for a script; half a schedule is no error, while somebody types."""
    return render(request, "schedule-times.html", title=TITLE, times=_times(parts, typed))


@router.post("/run")
def run(request: Request, parts: Parts, ref: Ref) -> Response:
    """Begin a run, and lead back to the list, which has its job."""
    return _done(request, lambda: parts.schedules.run_now(ref, OPERATOR))


@router.post("/pause")
def pause(request: Request, parts: Parts, ref: Ref) -> Response:
    """Let a schedule rest, and lead back to the list."""
    return _done(request, lambda: parts.schedules.change(ref, ScheduleChange(enabled=False), OPERATOR))


@router.post("/resume")
def resume(request: Request, parts: Parts, ref: Ref) -> Response:
    """Let a schedule run again, and lead back to the list."""
    return _done(request, lambda: parts.schedules.change(ref, ScheduleChange(enabled=True), OPERATOR))


@router.post("/remove")
def remove(request: Request, parts: Parts, ref: Ref) -> Response:
    """Remove a schedule, and lead back to the list."""
    return _done(request, lambda: _remove(parts, ref))


def _times(parts: ApiParts, typed: Typed) -> _Times:
    wanted = {name: text.strip() for name, text in typed.model_dump(include=set(TIMING)).items()}
    try:
        return _Times(parts.schedules.preview(read(PreviewWish, wanted)))
    except MaestroError as error:
        return _Times(problem=str(error))


def _remove(parts: ApiParts, ref: str) -> None:
    with parts.store.begin() as tx:
        tx.schedules.remove(tx.schedules.get(ref), OPERATOR)


def _done(request: Request, wish: Callable[[], object], typed: Typed | None = None) -> Response:
    try:
        wish()
    except MaestroError as error:
        return _page(request, _Shown(typed or Typed(), problem=str(error)), status_of(error))
    return RedirectResponse(PAGE, HTTPStatus.SEE_OTHER)


def _page(request: Request, shown: _Shown, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
        schedules = tx.schedules.page(ScheduleFilter(), None, SHOWN + 1)
        now = tx.now
    return render(
        request,
        "schedules.html",
        status,
        title=TITLE,
        agents=agents,
        schedules=schedules[:SHOWN],
        more=len(schedules) > SHOWN,
        shown=shown,
        far=lambda moment: distance(moment, now),
    )


def _typed(schedule: ScheduleView) -> Typed:
    """Return what stands in the form to change a schedule."""
    known = schedule.model_dump(by_alias=False, include=set(Typed.model_fields))
    script = "" if schedule.script is None else schedule.script.model_dump_json(indent=2)
    return Typed(**{**{name: str(value) for name, value in known.items()}, "script": script})


def _script(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidEdit("script: expected JSON, an object with url, template and condition") from None
