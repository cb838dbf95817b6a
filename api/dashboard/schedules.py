"""The pages of schedules: the list with its form, and the backfill of missed runs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import (
    FormAction,
    FormText,
    TextForm,
    form_routes,
    moment_with_zone,
    read_filters,
    submit,
    without_empty,
)
from api.dashboard.pages import redirect_to, refusal_page, render
from api.guards import FOR_VIEWERS, OPERATOR, Parts, PasswordRoute, parts_of
from api.parts import ApiParts
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
from maestro.domain.schedules.views import BackfillView, SchedulePage, SchedulePreview, ScheduleState
from maestro.operations.background import ScheduleOperations, ScheduleQuery

PAGE = "/schedules"
HERE = "schedules"
PAGE_SIZE = 25
FILTERS = ("kind", "agent", "state")
NOTICES = {"backfilled": "The missed runs start now, one after the other."}
"""Notices after a completed form, by the word in the page's address; text from the address is never shown."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)
router.routes.extend(
    form_routes(
        PAGE,
        lambda request, error, **_: _render_page(request, problem=error),
        FormAction("/run", "schedules", ScheduleOperations.run_now),
        FormAction("/pause", "schedules", ScheduleOperations.change, change=ScheduleChange(enabled=False)),
        FormAction("/resume", "schedules", ScheduleOperations.change, change=ScheduleChange(enabled=True)),
        FormAction("/remove", "schedules", ScheduleOperations.remove),
    )
)


class ScheduleForm(TextForm):
    """The form of a schedule, as texts that the operation validates."""

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
        """Return the fields without surrounding blanks; raises ``InvalidEdit`` for a script that is not JSON."""
        return {**super().fields("ref", *left_out), "script": _parse_script(self.script)}


@router.get("")
def show_schedules(request: Request, parts: Parts, edit: str = "", done: str = "") -> HTMLResponse:
    """List the schedules, with an empty form, or with the form filled from the schedule ``edit``."""
    if not edit:
        return _render_page(request, notice=NOTICES.get(done, ""))
    try:
        schedule = parts.schedules.show(edit)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    script = "" if schedule.script is None else schedule.script.model_dump_json(indent=2)
    return _render_page(request, ScheduleForm.from_view(schedule, script=script))


@router.post("")
def add_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Add a schedule, and redirect to the list; an error is shown on the page."""
    return _submit(request, lambda: parts.schedules.add(read(NewScheduleOfKind, form.fields()), OPERATOR), form)


@router.post("/change")
def change_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Change a schedule, and redirect to the list."""
    return _submit(
        request, lambda: parts.schedules.change(form.ref, read(ScheduleChange, form.fields("kind")), OPERATOR), form
    )


@router.post("/preview", openapi_extra=FOR_VIEWERS)
def preview_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> HTMLResponse:
    """Show the next times of the entered schedule, without saving it, for browsers without scripts."""
    return _render_page(request, form, times=_next_times(parts, form))


@router.get("/times")
def show_next_times(request: Request, parts: Parts, form: Annotated[ScheduleForm, Query()]) -> HTMLResponse:
    """Return the next times alone, for a script; an invalid schedule has status 200, because the user still types."""
    return render(request, "schedule-times.html", times=_next_times(parts, form))


def _next_times(parts: ApiParts, form: ScheduleForm) -> SchedulePreview | str:
    """Return the next times of the entered schedule, or the error in it."""
    fields = {"schedule": form.schedule, "timezone": form.timezone, "jitter_seconds": form.jitter_seconds}
    try:
        stripped = {name: text.strip() for name, text in fields.items()}
        return parts.schedules.preview(read(SchedulePreviewRequest, stripped))
    except MaestroError as error:
        return str(error)


def _submit(request: Request, operation: Callable[[], object], form: ScheduleForm) -> Response:
    return submit(operation, lambda _: redirect_to(PAGE), lambda error: _render_page(request, form, error))


def _render_page(
    request: Request,
    form: ScheduleForm | None = None,
    problem: MaestroError | None = None,
    notice: str = "",
    times: SchedulePreview | str = "",
) -> HTMLResponse:
    """Return the page, with the form open if it is given."""
    parts, reading = parts_of(request), request.method == "GET"
    filters = read_filters(request, FILTERS) if reading else dict.fromkeys(FILTERS, "")
    cursor = request.query_params.get("cursor") or None if reading else None
    with parts.store.view() as tx:
        agents = [agent for agent in tx.agents.all() if agent.status is not AgentStatus.ARCHIVED]
    try:
        query = {**without_empty(filters), "limit": PAGE_SIZE, "cursor": cursor}
        page = parts.schedules.list(read(ScheduleQuery, query))
    except InvalidEdit as error:
        page, form, problem, notice = SchedulePage(items=(), next=None), None, error, ""
    return render(
        request,
        "schedules.html",
        at=PAGE,
        agents=agents,
        slugs=[agent.slug for agent in agents],
        page=page,
        first=cursor is None,
        filters=filters,
        filtered=any(filters.values()),
        kinds=tuple(ScheduleKind),
        states=tuple(ScheduleState),
        form=form or ScheduleForm(),
        open=form is not None,
        problem=problem,
        notice=notice,
        times=times,
    )


def _parse_script(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        raise InvalidEdit("script: expected JSON, an object with url, template and condition") from None


@dataclass(frozen=True)
class BackfillForm:
    """The entered period of a backfill."""

    start: str = ""
    end: str = ""

    def request(self, *, preview: bool) -> BackfillRequest:
        """Return the request for a backfill; raises ``InvalidEdit``."""
        start, end = moment_with_zone(self.start), moment_with_zone(self.end)
        return read(BackfillRequest, {"from": start, "to": end, "preview": preview})


@router.get("/backfill")
def show_backfill(request: Request, parts: Parts, ref: str = "") -> Response:
    """Show the form for the period of a backfill, and the times in the period that would get a run."""
    filters = read_filters(request, ("from", "to"))
    form = BackfillForm(filters["from"], filters["to"])
    if not (form.start or form.end):
        return _backfill_page(request, ref, form)
    return submit(
        lambda: parts.schedules.backfill(ref, form.request(preview=True), OPERATOR),
        lambda backfill: _backfill_page(request, ref, form, backfill=backfill),
        lambda error: _backfill_page(request, ref, form, error),
    )


@router.post("/backfill")
def begin_backfill(
    request: Request,
    parts: Parts,
    ref: FormText,
    start: Annotated[str, Form(alias="from")] = "",
    end: Annotated[str, Form(alias="to")] = "",
) -> Response:
    """Start the runs of a backfill, and redirect to the list."""
    form = BackfillForm(start.strip(), end.strip())
    return submit(
        lambda: parts.schedules.backfill(ref, form.request(preview=False), OPERATOR),
        lambda _: redirect_to(PAGE, done="backfilled"),
        lambda error: _backfill_page(request, ref, form, error),
    )


def _backfill_page(
    request: Request,
    ref: str,
    form: BackfillForm,
    problem: MaestroError | None = None,
    backfill: BackfillView | None = None,
) -> HTMLResponse:
    try:
        schedule = parts_of(request).schedules.show(ref)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    return render(request, "schedule-backfill.html", schedule=schedule, form=form, backfill=backfill, problem=problem)
