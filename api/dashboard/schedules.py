"""The pages of schedules: the list with its form, and the backfill of missed times."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import TextForm, moment_with_zone, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.dependencies import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import read
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.schedules.edits import (
    BackfillRequest,
    NewScheduleOfKind,
    ScheduleChange,
    ScheduleKind,
    SchedulePreviewRequest,
)
from maestro.domain.schedules.views import (
    BackfillView,
    ScheduleFilter,
    SchedulePage,
    SchedulePreview,
    ScheduleState,
    ScheduleView,
)

PAGE = "/schedules"
TITLE = "Schedules – Maestro"
SHOWN = 25
FILTERS = ("kind", "agent", "state")
DONE = {"backfilled": "The runs begin now, one after the other."}
"""What was done, by the word that stands in the address: no text of an address is shown."""
TIMING = frozenset({"schedule", "timezone", "jitter_seconds"})

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Ref = Annotated[str, Form()]

HERE = "schedules"

backfill_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{PAGE}/backfill")


class ScheduleForm(TextForm):
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
class _NextTimes:
    """When what was typed would come, or why it never does."""

    found: SchedulePreview | None = None
    problem: str = ""


@dataclass(frozen=True)
class _SchedulePageState:
    """What the page is told beside the list: what was typed, and what came of it."""

    typed: ScheduleForm = field(default_factory=ScheduleForm)
    problem: MaestroError | None = None
    said: str = ""
    times: _NextTimes | None = None
    open: bool = False


@router.get("")
def show(request: Request, parts: Parts, edit: str = "", done: str = "") -> HTMLResponse:
    """List what is planned, and offer to plan more, or to change what is named."""
    if not edit:
        return _page(request, _SchedulePageState(said=DONE.get(done, "")))
    try:
        schedule = parts.schedules.show(edit)
    except MaestroError as error:
        return refused(request, "schedules", error)
    return _page(request, _SchedulePageState(_form_of_schedule(schedule), open=True))


@router.post("")
def plan(request: Request, parts: Parts, typed: Annotated[ScheduleForm, Form()]) -> Response:
    """Plan something, and lead back to the list; what cannot be planned is said on the page."""
    return _submit(request, lambda: parts.schedules.add(read(NewScheduleOfKind, typed.fields()), OPERATOR), typed)


@router.post("/change")
def change(request: Request, parts: Parts, typed: Annotated[ScheduleForm, Form()]) -> Response:
    """Change what is planned, and lead back to the list."""
    return _submit(
        request,
        lambda: parts.schedules.change(typed.ref, read(ScheduleChange, typed.fields("kind")), OPERATOR),
        typed,
    )


@router.post("/preview", openapi_extra=FOR_VIEWERS)
def preview(request: Request, parts: Parts, typed: Annotated[ScheduleForm, Form()]) -> HTMLResponse:
    """Show when what was typed would come, where no script does it; nothing is planned."""
    return _page(request, _SchedulePageState(typed, times=_times(parts, typed), open=True))


@router.get("/times")
def times(request: Request, parts: Parts, typed: Annotated[ScheduleForm, Query()]) -> HTMLResponse:
    """Return that part of the page alone, for a script; an incomplete schedule is no error while it is typed."""
    return render(request, "schedule-times.html", title=TITLE, times=_times(parts, typed))


@router.post("/run")
def run(request: Request, parts: Parts, ref: Ref) -> Response:
    """Begin a run, and lead back to the list, which has its job."""
    return _submit(request, lambda: parts.schedules.run_now(ref, OPERATOR))


@router.post("/pause")
def pause(request: Request, parts: Parts, ref: Ref) -> Response:
    """Let a schedule rest, and lead back to the list."""
    return _submit(request, lambda: parts.schedules.change(ref, ScheduleChange(enabled=False), OPERATOR))


@router.post("/resume")
def resume(request: Request, parts: Parts, ref: Ref) -> Response:
    """Let a schedule run again, and lead back to the list."""
    return _submit(request, lambda: parts.schedules.change(ref, ScheduleChange(enabled=True), OPERATOR))


@router.post("/remove")
def remove(request: Request, parts: Parts, ref: Ref) -> Response:
    """Remove a schedule, and lead back to the list."""
    return _submit(request, lambda: parts.schedules.remove(ref, OPERATOR))


def _times(parts: ApiParts, typed: ScheduleForm) -> _NextTimes:
    wanted = {name: text.strip() for name, text in typed.model_dump(include=set(TIMING)).items()}
    try:
        return _NextTimes(parts.schedules.preview(read(SchedulePreviewRequest, wanted)))
    except MaestroError as error:
        return _NextTimes(problem=str(error))


def _submit(request: Request, operation: Callable[[], object], typed: ScheduleForm | None = None) -> Response:
    return submit(
        operation,
        lambda _: lead_back(PAGE),
        lambda error: _page(request, _SchedulePageState(typed or ScheduleForm(), error, open=typed is not None)),
    )


def _page(request: Request, shown: _SchedulePageState) -> HTMLResponse:
    given = request.query_params if request.method == "GET" else {}
    wanted = {name: given.get(name, "") for name in FILTERS}
    cursor = given.get("cursor") or None
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
    try:
        page = parts.schedules.page(_filter(wanted), SHOWN, cursor)
    except InvalidEdit as error:
        page, shown = SchedulePage(items=(), next=None), _SchedulePageState(problem=error)
    return render(
        request,
        "schedules.html",
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
        problem=shown.problem,
    )


def _filter(wanted: Mapping[str, str]) -> ScheduleFilter:
    return read(ScheduleFilter, {name: text for name, text in wanted.items() if text})


def _form_of_schedule(schedule: ScheduleView) -> ScheduleForm:
    """Return what stands in the form to change a schedule."""
    known = schedule.model_dump(by_alias=False, include=set(ScheduleForm.model_fields))
    script = "" if schedule.script is None else schedule.script.model_dump_json(indent=2)
    return ScheduleForm(**{**{name: str(value) for name, value in known.items()}, "script": script})


def _script(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidEdit("script: expected JSON, an object with url, template and condition") from None


@dataclass(frozen=True)
class BackfillForm:
    """The stretch that was typed."""

    start: str = ""
    end: str = ""

    def wish(self, *, preview: bool) -> BackfillRequest:
        """Return what is asked for; raises ``InvalidEdit``."""
        return read(
            BackfillRequest,
            {"from": moment_with_zone(self.start), "to": moment_with_zone(self.end), "preview": preview},
        )


@backfill_router.get("")
def show_backfill(request: Request, parts: Parts, ref: str = "") -> HTMLResponse:
    """Ask for a stretch, and tell which of its times would get a run."""
    given = request.query_params
    typed = BackfillForm(given.get("from", "").strip(), given.get("to", "").strip())
    if not (typed.start or typed.end):
        return _backfill_page(request, ref, typed)
    try:
        return _backfill_page(
            request, ref, typed, found=parts.schedules.backfill(ref, typed.wish(preview=True), OPERATOR)
        )
    except MaestroError as error:
        return _backfill_page(request, ref, typed, error)


@backfill_router.post("")
def begin_backfill(
    request: Request,
    parts: Parts,
    ref: Annotated[str, Form()],
    start: Annotated[str, Form(alias="from")] = "",
    end: Annotated[str, Form(alias="to")] = "",
) -> Response:
    """Begin the runs, and lead back to the list."""
    typed = BackfillForm(start.strip(), end.strip())
    return submit(
        lambda: parts.schedules.backfill(ref, typed.wish(preview=False), OPERATOR),
        lambda _: lead_back(PAGE, done="backfilled"),
        lambda error: _backfill_page(request, ref, typed, error),
    )


def _backfill_page(
    request: Request,
    ref: str,
    typed: BackfillForm,
    problem: MaestroError | None = None,
    found: BackfillView | None = None,
) -> HTMLResponse:
    try:
        one = parts_of(request).schedules.show(ref)
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "schedule-backfill.html",
        title=f"Make up for {ref} – Maestro",
        one=one,
        typed=typed,
        found=found,
        problem=problem,
    )
