"""The page of heartbeats and crons: planned, changed, paused, begun and removed, with plain forms."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import TextForm, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.errors import status_of
from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.reading import read
from maestro.domain.schedules.edits import NewScheduleOfKind, PreviewWish, ScheduleChange, ScheduleKind
from maestro.domain.schedules.views import PreviewView, ScheduleFilter, SchedulePage, ScheduleState, ScheduleView

PAGE = "/schedules"
TITLE = "Schedules – Maestro"
SHOWN = 25
FILTERS = ("kind", "agent", "state")
DONE = {"backfilled": "The runs begin now, one after the other."}
"""What was done, by the word that stands in the address: no text of an address is shown."""
TIMING = frozenset({"schedule", "timezone", "jitter_seconds"})

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Ref = Annotated[str, Form()]


class Typed(TextForm):
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
        return {**super().fields("ref", *left_out), "script": _script(self.script)}


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
    said: str = ""
    times: _Times | None = None
    open: bool = False


@router.get("")
def show(request: Request, parts: Parts, edit: str = "", done: str = "") -> HTMLResponse:
    """List what is planned, and offer to plan more, or to change what is named."""
    if not edit:
        return _page(request, _Shown(said=DONE.get(done, "")))
    try:
        schedule = parts.schedules.show(edit)
    except MaestroError as error:
        return refused(request, "schedules", error)
    return _page(request, _Shown(_typed(schedule), open=True))


@router.post("")
def plan(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> Response:
    """Plan something, and lead back to the list; what cannot be planned is said on the page."""
    return _done(request, lambda: parts.schedules.add(read(NewScheduleOfKind, typed.fields()), OPERATOR), typed)


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
    return _page(request, _Shown(typed, times=_times(parts, typed), open=True))


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
    return _done(request, lambda: parts.schedules.remove(ref, OPERATOR))


def _times(parts: ApiParts, typed: Typed) -> _Times:
    wanted = {name: text.strip() for name, text in typed.model_dump(include=set(TIMING)).items()}
    try:
        return _Times(parts.schedules.preview(read(PreviewWish, wanted)))
    except MaestroError as error:
        return _Times(problem=str(error))


def _done(request: Request, operation: Callable[[], object], typed: Typed | None = None) -> Response:
    return submit(
        operation,
        lambda _: lead_back(PAGE),
        lambda error: _page(request, _Shown(typed or Typed(), str(error), open=typed is not None), status_of(error)),
    )


def _page(request: Request, shown: _Shown, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    given = request.query_params if request.method == "GET" else {}
    wanted = {name: given.get(name, "") for name in FILTERS}
    cursor = given.get("cursor") or None
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
    try:
        page = parts.schedules.page(_filter(wanted), SHOWN, cursor)
    except InvalidEdit as error:
        page, shown, status = SchedulePage(items=(), next=None), _Shown(problem=str(error)), status_of(error)
    return render(
        request,
        "schedules.html",
        status,
        at=PAGE,
        title=TITLE,
        agents=agents,
        slugs=[one.slug for one in agents],
        schedules=page.items,
        following=page.next,
        first=cursor is None,
        wanted=wanted,
        filtered=any(wanted.values()),
        kinds=[kind.value for kind in ScheduleKind],
        states=[state.value for state in ScheduleState],
        shown=shown,
    )


def _filter(wanted: Mapping[str, str]) -> ScheduleFilter:
    return read(ScheduleFilter, {name: text for name, text in wanted.items() if text})


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
