"""The pages of batches: preview an action on many jobs, start it after confirmation, and follow it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import parse_object, read_edits, read_query, submit, without_empty
from api.dashboard.jobs.pages import PAGE, describe_filter, job_list_address
from api.dashboard.pages import address, not_modified, redirect_to_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from maestro.domain.errors import InvalidEdit, MaestroError, NotFound
from maestro.domain.jobs.batches import BatchAction, BatchRequest, BatchView, ItemState
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.values import read
from maestro.operations.jobs import BatchQuery, ItemQuery

BATCHES = f"{PAGE}/batches"
PAGE_SIZE = 20
"""The most batches on one page."""
BUSY_REFRESH_MS = 1_000
IDLE_REFRESH_MS = 5_000
"""Milliseconds between two refreshes of the page: BUSY while a batch runs, else IDLE."""
WITH_EDITS = "edit"
"""The action of the button that opens the form for the edits of a restart."""
UNREADABLE = "the selection of jobs cannot be read; go back to the list and select the jobs again"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class JobSelectionForm(BaseModel):
    """The form that selects jobs, and the action on each of them.

    With ``all``, the jobs that match ``filter`` (a JSON object) are selected, else those with ``ids``; blanks may
    separate several ids. ``expected`` is the number of jobs that the page showed.
    """

    action: str = ""
    ids: tuple[str, ...] = ()
    all: str = ""
    filter: str = "{}"
    expected: str = ""
    agent: str = ""
    model: str = ""
    prompt: str = ""

    @property
    def selected_ids(self) -> tuple[str, ...]:
        """The ids of the selected jobs, without duplicates."""
        return tuple(dict.fromkeys(" ".join(self.ids).split()))

    @property
    def kind(self) -> str:
        """The action of the batch: resume, restart or cancel."""
        return BatchAction.RESTART if self.action == WITH_EDITS else self.action

    @property
    def edits(self) -> dict[str, str]:
        """The edits of a restart, without empty fields."""
        return read_edits(self.agent, self.model, self.prompt)

    def request(self) -> BatchRequest:
        """Return the request for a batch; raises ``InvalidEdit``."""
        if not self.all and not self.selected_ids:
            raise InvalidEdit("No job is selected. Go back and select some jobs, or all that match the filter.")
        fields: dict[str, Any] = {
            "action": self.kind,
            **({"filter": parse_object(self.filter, UNREADABLE)} if self.all else {"ids": self.selected_ids}),
        }
        if self.edits and self.kind == BatchAction.RESTART:
            fields["edits"] = self.edits
        if self.expected:
            fields["expected"] = self.expected
        return read(BatchRequest, fields)

    def origin(self) -> str:
        """Return the address of the job list in which the jobs were selected."""
        try:
            return job_list_address(read(JobFilter, parse_object(self.filter, UNREADABLE)))
        except InvalidEdit:
            return PAGE


SelectionForm = Annotated[JobSelectionForm, Form()]


@router.post("/replay/preview")
def preview_batch(request: Request, form: SelectionForm) -> HTMLResponse:
    """Show what a batch would do with the selected jobs, without changing anything."""
    return _confirmation_page(request, form)


@router.post("/replay")
def begin_batch(request: Request, parts: Parts, form: SelectionForm) -> Response:
    """Start a batch and redirect to its page; after an error, show the preview again with the error."""
    return submit(
        lambda: parts.batches.begin(form.request(), OPERATOR),
        lambda batch: redirect_to_page(f"{BATCHES}/{batch.id}"),
        lambda error: _confirmation_page(request, form, error),
    )


@router.get("/batches")
def show_batches(request: Request, parts: Parts, cursor: str = "") -> Response:
    """List the batches, newest first."""
    if same := not_modified(request):
        return same
    page = parts.batches.list(BatchQuery(limit=PAGE_SIZE, cursor=cursor or None))
    return render(
        request,
        "batches.html",
        batches=page.items,
        refresh_ms=_refresh_ms(*page.items),
        next=page.next,
        first=not cursor,
        page_of=job_list_address,
        words_of=describe_filter,
    )


@router.get("/batches/{batch_id}")
def show_batch(request: Request, batch_id: str, state: str = "", cursor: str = "") -> Response:
    """Show the progress of a batch and the result of each job."""
    return not_modified(request) or _batch_page(request, batch_id, {"state": state, "cursor": cursor})


@router.post("/batches/{batch_id}/stop")
def stop_batch(request: Request, parts: Parts, batch_id: str) -> Response:
    """Stop a batch, so that no further job begins, and redirect to the batch's page."""
    return submit(
        lambda: parts.batches.stop(batch_id, OPERATOR),
        lambda _: redirect_to_page(f"{BATCHES}/{batch_id}"),
        lambda error: _batch_page(request, batch_id, {"state": "", "cursor": ""}, error),
    )


def _refresh_ms(*batches: BatchView) -> int:
    return BUSY_REFRESH_MS if any(batch.ended_at is None or batch.open for batch in batches) else IDLE_REFRESH_MS


def _confirmation_page(request: Request, form: JobSelectionForm, problem: MaestroError | None = None) -> HTMLResponse:
    """Return the preview of a batch, with ``problem`` or the error that makes the batch impossible."""
    parts, forecast = request_parts(request), None
    try:
        forecast = parts.batches.forecast(form.request())
    except MaestroError as error:
        problem = problem or error
    with parts.store.view() as tx:
        agents = [agent.slug for agent in tx.agents.list_active_agents()]
    return render(
        request, "jobs-confirm.html", form=form, forecast=forecast, problem=problem, agents=agents, origin=form.origin()
    )


def _batch_page(
    request: Request, batch_id: str, filters: Mapping[str, str], problem: MaestroError | None = None
) -> HTMLResponse:
    """Return the page of a batch; ``filters`` hold the state of the listed jobs and the cursor, or empty texts."""
    states = [filters["state"]] if filters["state"] else []
    query, invalid = read_query(ItemQuery, {**filters, "state": states})
    query, problem = query.model_copy(update={"limit": 100}), problem or invalid
    try:
        operations = request_parts(request).batches
        batch, items = operations.show(batch_id), operations.items(batch_id, query)
    except NotFound as error:
        return render(request, "batch-gone.html", problem=error)
    return render(
        request,
        "batch.html",
        batch=batch,
        refresh_ms=_refresh_ms(batch),
        items=items,
        states=tuple(ItemState),
        state=filters["state"],
        first=not query.cursor,
        address=address(f"{BATCHES}/{batch_id}", without_empty(filters)),
        problem=problem,
        page_of=job_list_address,
        words_of=describe_filter,
    )
