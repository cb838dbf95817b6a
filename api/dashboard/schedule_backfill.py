"""The page that makes up for times of a schedule that passed without a run: told first, begun after a question."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.moments import whole
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.dashboard.schedules import PAGE
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.errors import MaestroError
from maestro.domain.reading import read
from maestro.domain.schedules.edits import BackfillWish
from maestro.domain.schedules.views import BackfillView

HERE = "schedules"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{PAGE}/backfill")


@dataclass(frozen=True)
class Typed:
    """The stretch that was typed."""

    start: str = ""
    end: str = ""

    def wish(self, *, preview: bool) -> BackfillWish:
        """Return what is asked for; raises ``InvalidEdit``."""
        return read(BackfillWish, {"from": whole(self.start), "to": whole(self.end), "preview": preview})


@router.get("")
def show(request: Request, parts: Parts, ref: str = "") -> HTMLResponse:
    """Ask for a stretch, and tell which of its times would get a run."""
    given = request.query_params
    typed = Typed(given.get("from", "").strip(), given.get("to", "").strip())
    if not (typed.start or typed.end):
        return _page(request, ref, typed)
    try:
        return _page(request, ref, typed, found=parts.schedules.backfill(ref, typed.wish(preview=True), OPERATOR))
    except MaestroError as error:
        return _page(request, ref, typed, error)


@router.post("")
def begin(
    request: Request,
    parts: Parts,
    ref: Annotated[str, Form()],
    start: Annotated[str, Form(alias="from")] = "",
    end: Annotated[str, Form(alias="to")] = "",
) -> Response:
    """Begin the runs, and lead back to the list."""
    typed = Typed(start.strip(), end.strip())
    return submit(
        lambda: parts.schedules.backfill(ref, typed.wish(preview=False), OPERATOR),
        lambda _: lead_back(PAGE, done="backfilled"),
        lambda error: _page(request, ref, typed, error),
    )


def _page(
    request: Request, ref: str, typed: Typed, problem: MaestroError | None = None, found: BackfillView | None = None
) -> HTMLResponse:
    try:
        one = parts_of(request).schedules.show(ref)
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "schedule-backfill.html",
        status_of(problem) if problem is not None else HTTPStatus.OK,
        title=f"Make up for {ref} – Maestro",
        one=one,
        typed=typed,
        found=found,
        problem=str(problem or ""),
    )
