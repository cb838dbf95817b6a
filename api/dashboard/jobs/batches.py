"""The pages of batches: preview an action on many jobs, start it after confirmation, and follow it."""

import json
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.jobs.pages import PAGE, page_of, words_of
from api.dashboard.pages import lead_back, render
from api.guards import OPERATOR, PasswordRoute
from api.live import unchanged
from api.parts import ApiParts
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import InvalidEdit, MaestroError, NotFound
from maestro.domain.fields import read
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import BatchAction, BatchRequest, BatchView, ItemState
from maestro.domain.jobs.filters import JobFilter
from maestro.operations.batches import ItemQuery

TITLE = "Batches – Maestro"
BATCHES = f"{PAGE}/batches"
SHOWN = 20
"""Batches on one page."""
ITEMS = 100
"""Jobs of a batch on one page."""
LOOK_MS = 1_000
REST_MS = 5_000
"""Milliseconds between two looks, while a batch goes on, and while none does."""
WITH_EDITS = "edit"
"""The button that begins with the form of a restart's edits open."""
NOTHING_CHOSEN = "No job is selected. Go back and tick some, or all that match the filter."
BROKEN = "what was selected cannot be read; go back to the list and select it again"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class JobSelectionForm(BaseModel):
    """The form that selects jobs and an action.

    With ``all`` the jobs that ``filter``, a JSON object, finds; else those with the ``ids``, which may be separated by
    blanks. ``expected`` is the number of jobs that the page showed.
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
    def picked(self) -> tuple[str, ...]:
        """The ids without duplicates."""
        return tuple(dict.fromkeys(" ".join(self.ids).split()))

    @property
    def kind(self) -> str:
        """The action on each job."""
        return BatchAction.RESTART if self.action == WITH_EDITS else self.action

    @property
    def edits(self) -> dict[str, str]:
        """The changes of a restart, without empty fields."""
        typed = {"agent": self.agent.strip(), "model": self.model.strip(), "prompt": self.prompt.replace("\r\n", "\n")}
        return {name: text for name, text in typed.items() if text.strip()}

    def wish(self) -> BatchRequest:
        """Return the requested batch; raises ``InvalidEdit``."""
        if not self.all and not self.picked:
            raise InvalidEdit(NOTHING_CHOSEN)
        fields: dict[str, Any] = {
            "action": self.kind,
            **({"filter": self._fields()} if self.all else {"ids": self.picked}),
        }
        if self.edits and self.kind == BatchAction.RESTART:
            fields["edits"] = self.edits
        if self.expected:
            fields["expected"] = self.expected
        return read(BatchRequest, fields)

    def origin(self) -> str:
        """Return the address of the list that the jobs were selected in."""
        try:
            return page_of(read(JobFilter, self._fields()))
        except InvalidEdit:
            return PAGE

    def _fields(self) -> dict[str, Any]:
        try:
            found = json.loads(self.filter)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InvalidEdit(BROKEN)
        return found


Form_ = Annotated[JobSelectionForm, Form()]


@dataclass(frozen=True)
class _BatchPlan:
    """The preview of a batch, or the reason why it is impossible."""

    forecast: BatchPreview | None = None
    problem: MaestroError | None = None


@router.post("/replay/preview")
def preview(request: Request, parts: Parts, chosen: Form_) -> HTMLResponse:
    """Show what a batch would do with the chosen jobs; nothing is changed."""
    return _confirm(request, chosen, _plan(parts, chosen))


@router.post("/replay")
def begin(request: Request, parts: Parts, chosen: Form_) -> Response:
    """Start a batch and redirect to it; an error is shown beside a new preview."""
    try:
        batch = parts.batches.begin(chosen.wish(), OPERATOR)
    except MaestroError as error:
        return _confirm(request, chosen, _BatchPlan(_plan(parts, chosen).forecast, error))
    return lead_back(f"{BATCHES}/{batch.id}")


@router.get("/batches")
def show_all(request: Request, parts: Parts, cursor: str = "") -> Response:
    """List batches, newest first."""
    same = unchanged(request)
    if same is not None:
        return same
    page = parts.batches.page(SHOWN, cursor or None)
    return render(
        request,
        "batches.html",
        title=TITLE,
        batches=page.items,
        pause=_pause(*page.items),
        next=page.next,
        first=not cursor,
        page_of=page_of,
        words_of=words_of,
    )


@router.get("/batches/{batch_id}")
def show(request: Request, batch_id: str, state: str = "", cursor: str = "") -> Response:
    """Show the progress of a batch and the result of each job."""
    same = unchanged(request)
    return same if same is not None else _batch(request, batch_id, (state, cursor))


@router.post("/batches/{batch_id}/stop")
def stop(request: Request, parts: Parts, batch_id: str) -> Response:
    """Stop starting further jobs of a batch, and redirect to it."""
    try:
        parts.batches.stop(batch_id, OPERATOR)
    except MaestroError as error:
        return _batch(request, batch_id, ("", ""), error)
    return lead_back(f"{BATCHES}/{batch_id}")


def _pause(*batches: BatchView) -> int:
    return LOOK_MS if any(batch.ended_at is None or batch.open for batch in batches) else REST_MS


def _plan(parts: ApiParts, chosen: JobSelectionForm) -> _BatchPlan:
    try:
        return _BatchPlan(parts.batches.forecast(chosen.wish()))
    except MaestroError as error:
        return _BatchPlan(problem=error)


def _confirm(request: Request, chosen: JobSelectionForm, told: _BatchPlan) -> HTMLResponse:
    with parts_of(request).store.view() as tx:
        agents = [agent.slug for agent in tx.agents.active()]
    return render(
        request,
        "jobs-confirm.html",
        title=TITLE,
        chosen=chosen,
        forecast=told.forecast,
        problem=told.problem,
        agents=agents,
        origin=chosen.origin(),
    )


def _batch(
    request: Request, batch_id: str, asked: tuple[str, str], problem: MaestroError | None = None
) -> HTMLResponse:
    """Return the page of a batch; ``asked`` are the state and the place after which it begins."""
    try:
        query = read(ItemQuery, {"state": tuple(filter(None, asked[:1])), "cursor": asked[1] or 0, "limit": ITEMS})
    except InvalidEdit as error:
        query, problem = ItemQuery(limit=ITEMS), problem or error
    try:
        operations = parts_of(request).batches
        batch, items = operations.show(batch_id), operations.items(batch_id, query)
    except NotFound as error:
        return render(request, "batch-gone.html", title=TITLE, problem=error)
    return render(
        request,
        "batch.html",
        title=TITLE,
        batch=batch,
        pause=_pause(batch),
        items=items,
        states=tuple(ItemState),
        state=asked[0],
        first=not query.cursor,
        query=urlencode({name: text for name, text in zip(("state", "cursor"), asked, strict=True) if text}),
        problem=problem,
        page_of=page_of,
        words_of=words_of,
    )
