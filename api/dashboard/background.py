"""The pages of schedules, of the backfill of missed runs, and of webhooks."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated

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
from api.dashboard.pages import redirect_to_page, refusal_page, render
from api.guards import FOR_VIEWERS, OPERATOR, Parts, PasswordRoute, request_parts
from api.parts import ApiParts
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.schedules.edits import (
    BackfillRequest,
    NewScheduleOfKind,
    ScheduleChange,
    ScheduleKind,
    SchedulePreviewRequest,
)
from maestro.domain.schedules.views import BackfillView, SchedulePage, SchedulePreview, ScheduleState
from maestro.domain.values import read
from maestro.domain.webhooks.webhook import NewWebhook, WebhookChange, WebhookWithSecret
from maestro.operations.background import ScheduleOperations, ScheduleQuery, WebhookOperations

SCHEDULES_PAGE = "/schedules"
WEBHOOKS_PAGE = "/webhooks"
PAGE_SIZE = 25
FILTERS = ("kind", "agent", "state")
NOTICES = {"backfilled": "The missed runs start now, one after the other."}
"""Notices after a completed form; the page's address holds only their keys, so that it cannot inject a text."""

schedules = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=SCHEDULES_PAGE)
schedules.routes.extend(
    form_routes(
        SCHEDULES_PAGE,
        lambda request, error, **_: _schedules_page(request, problem=error),
        FormAction("/run", "schedules", ScheduleOperations.run_now),
        FormAction("/pause", "schedules", ScheduleOperations.change, change=ScheduleChange(enabled=False)),
        FormAction("/resume", "schedules", ScheduleOperations.change, change=ScheduleChange(enabled=True)),
        FormAction("/remove", "schedules", ScheduleOperations.remove),
    )
)


class ScheduleForm(TextForm):
    """The form of a schedule, as entered; the operation validates the texts."""

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
        try:
            script = json.loads(self.script) if self.script.strip() else None
        except (ValueError, RecursionError):
            raise InvalidEdit("script: expected JSON, an object with url, template and condition") from None
        return {**super().fields("ref", *left_out), "script": script}


@schedules.get("")
def show_schedules(request: Request, parts: Parts, edit: str = "", done: str = "") -> HTMLResponse:
    """List the schedules, with a form: empty, or filled with the schedule whose ref is ``edit``."""
    if not edit:
        return _schedules_page(request, notice=NOTICES.get(done, ""))
    try:
        schedule = parts.schedules.show(edit)
    except MaestroError as error:
        return refusal_page(request, "schedules", error)
    script = "" if schedule.script is None else schedule.script.model_dump_json(indent=2)
    return _schedules_page(request, ScheduleForm.from_view(schedule, script=script))


@schedules.post("")
def add_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Add a schedule, and redirect to the list; an error is shown on the page."""
    return _submit_schedule(
        request, lambda: parts.schedules.add(read(NewScheduleOfKind, form.fields()), OPERATOR), form
    )


@schedules.post("/change")
def change_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Change a schedule, and redirect to the list."""
    return _submit_schedule(
        request, lambda: parts.schedules.change(form.ref, read(ScheduleChange, form.fields("kind")), OPERATOR), form
    )


@schedules.post("/preview", openapi_extra=FOR_VIEWERS)
def preview_schedule(request: Request, parts: Parts, form: Annotated[ScheduleForm, Form()]) -> HTMLResponse:
    """Show the next run times of the entered schedule without storing it, for browsers without scripts."""
    return _schedules_page(request, form, times=_next_times(parts, form))


@schedules.get("/times")
def show_next_times(request: Request, parts: Parts, form: Annotated[ScheduleForm, Query()]) -> HTMLResponse:
    """Return only the next run times, for a script; an incomplete schedule gets status 200, not an error."""
    return render(request, "schedule-times.html", times=_next_times(parts, form))


def _next_times(parts: ApiParts, form: ScheduleForm) -> SchedulePreview | str:
    fields = {"schedule": form.schedule, "timezone": form.timezone, "jitter_seconds": form.jitter_seconds}
    try:
        stripped = {name: text.strip() for name, text in fields.items()}
        return parts.schedules.preview(read(SchedulePreviewRequest, stripped))
    except MaestroError as error:
        return str(error)


def _submit_schedule(request: Request, operation: Callable[[], object], form: ScheduleForm) -> Response:
    return submit(
        operation, lambda _: redirect_to_page(SCHEDULES_PAGE), lambda error: _schedules_page(request, form, error)
    )


def _schedules_page(
    request: Request,
    form: ScheduleForm | None = None,
    problem: MaestroError | None = None,
    notice: str = "",
    times: SchedulePreview | str = "",
) -> HTMLResponse:
    parts, reading = request_parts(request), request.method == "GET"
    filters = read_filters(request, FILTERS) if reading else dict.fromkeys(FILTERS, "")
    cursor = request.query_params.get("cursor") or None if reading else None
    with parts.store.view() as tx:
        agents = [agent for agent in tx.agents.list_agents() if agent.status is not AgentStatus.ARCHIVED]
    try:
        query = {**without_empty(filters), "limit": PAGE_SIZE, "cursor": cursor}
        page = parts.schedules.list(read(ScheduleQuery, query))
    except InvalidEdit as error:
        page, form, problem, notice = SchedulePage(items=(), next=None), None, error, ""
    return render(
        request,
        "schedules.html",
        at=SCHEDULES_PAGE,
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


@dataclass(frozen=True)
class BackfillForm:
    """The form of a backfill, which starts missed runs: the start and end of the period, as entered."""

    start: str = ""
    end: str = ""

    def request(self, *, preview: bool) -> BackfillRequest:
        """Return the request for a backfill; raises ``InvalidEdit``."""
        start, end = moment_with_zone(self.start), moment_with_zone(self.end)
        return read(BackfillRequest, {"from": start, "to": end, "preview": preview})


@schedules.get("/backfill")
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


@schedules.post("/backfill")
def begin_backfill(
    request: Request,
    parts: Parts,
    ref: FormText,
    start: Annotated[str, Form(alias="from")] = "",
    end: Annotated[str, Form(alias="to")] = "",
) -> Response:
    """Start a run for each missed time in the entered period, and redirect to the list."""
    form = BackfillForm(start.strip(), end.strip())
    return submit(
        lambda: parts.schedules.backfill(ref, form.request(preview=False), OPERATOR),
        lambda _: redirect_to_page(SCHEDULES_PAGE, done="backfilled"),
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
        schedule = request_parts(request).schedules.show(ref)
    except MaestroError as error:
        return refusal_page(request, "schedules", error)
    return render(request, "schedule-backfill.html", schedule=schedule, form=form, backfill=backfill, problem=problem)


webhooks = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=WEBHOOKS_PAGE)
webhooks.routes.extend(
    form_routes(
        WEBHOOKS_PAGE,
        lambda request, error, **_: _webhooks_page(request, _WebhookPageState(problem=error)),
        FormAction("/enable", "webhooks", WebhookOperations.change, change=WebhookChange(enabled=True)),
        FormAction("/disable", "webhooks", WebhookOperations.change, change=WebhookChange(enabled=False)),
        FormAction("/remove", "webhooks", WebhookOperations.remove),
    )
)


class WebhookForm(TextForm):
    """The form of a webhook, as entered; the operation validates the texts."""

    path: str = ""
    name: str = ""
    agent: str = ""
    prompt_template: str = ""
    platform: str = "web"
    account: str = DEFAULT_ACCOUNT
    channel: str = ""
    thread: str = ""
    scheme: str = "standard"
    secret: str = ""
    per_minute: str = "60"


@dataclass(frozen=True)
class _WebhookPageState:
    """The state of the webhooks page: the entered form, the path of the webhook to change, and the result."""

    form: WebhookForm = field(default_factory=WebhookForm)
    editing: str = ""
    problem: MaestroError | None = None
    made: WebhookWithSecret | None = None
    open: bool = False


@webhooks.get("")
def show_webhooks(request: Request, parts: Parts, edit: str = "") -> HTMLResponse:
    """List the webhooks, with a form: empty, or filled with the webhook whose path is ``edit``."""
    if not edit:
        return _webhooks_page(request, _WebhookPageState())
    try:
        webhook = parts.webhooks.show(edit)
    except MaestroError as error:
        return refusal_page(request, "webhooks", error)
    form = WebhookForm.from_view(webhook, secret="")
    return _webhooks_page(request, _WebhookPageState(form, editing=webhook.path, open=True))


@webhooks.post("")
def add_webhook(request: Request, parts: Parts, form: Annotated[WebhookForm, Form()]) -> Response:
    """Create a webhook and show its new secret once; an error is shown on the page."""
    return submit(
        lambda: parts.webhooks.add(read(NewWebhook, form.fields()), OPERATOR),
        lambda made: _webhooks_page(request, _WebhookPageState(made=made), HTTPStatus.CREATED),
        lambda error: _webhooks_page(request, _WebhookPageState(form, problem=error, open=True)),
    )


@webhooks.post("/change")
def change_webhook(request: Request, parts: Parts, form: Annotated[WebhookForm, Form()]) -> Response:
    """Change a webhook, and redirect to the list."""
    return submit(
        lambda: parts.webhooks.change(
            form.path, read(WebhookChange, form.fields("path", "scheme", "secret")), OPERATOR
        ),
        lambda _: redirect_to_page(WEBHOOKS_PAGE),
        lambda error: _webhooks_page(request, _WebhookPageState(form, form.path, error, open=True)),
    )


@webhooks.post("/rotate")
def rotate_secret(request: Request, parts: Parts, path: FormText) -> Response:
    """Replace the secret of a webhook by a generated one, and show the new secret once."""
    return submit(
        lambda: parts.webhooks.rotate(path, OPERATOR),
        lambda made: _webhooks_page(request, _WebhookPageState(made=made)),
        lambda error: _webhooks_page(request, _WebhookPageState(problem=error)),
    )


def _webhooks_page(request: Request, state: _WebhookPageState, status: HTTPStatus | None = None) -> HTMLResponse:
    cursor = request.query_params.get("cursor") or None
    parts = request_parts(request)
    with parts.store.view() as tx:
        agents = [agent for agent in tx.agents.list_agents() if agent.status is not AgentStatus.ARCHIVED]
    return render(
        request,
        "webhooks.html",
        status,
        at=WEBHOOKS_PAGE,
        agents=agents,
        page=parts.webhooks.list(PAGE_SIZE, cursor),
        first=cursor is None,
        state=state,
        problem=state.problem,
        origin=f"{request.url.scheme}://{request.headers['host']}",
    )
