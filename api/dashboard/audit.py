"""The page of the audit log: actors, actions, subjects and origins, with filters in the address."""

from collections.abc import Mapping
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from api.dashboard.forms import moment_with_zone
from api.dashboard.pages import render
from api.guards import PasswordRoute
from api.routes.dependencies import parts_of
from maestro.domain.errors import InvalidEdit
from maestro.domain.fields import read
from maestro.domain.people.audit import AuditPage, AuditQuery

PAGE = "/audit"
TITLE = "Audit log – Maestro"
CSV = "/api/audit.csv"
FILTERS = ("actor", "action", "subject", "q", "since", "until")
MOMENTS = ("since", "until")
NOTHING = AuditPage(items=(), next=None)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@router.get("")
def show(request: Request) -> HTMLResponse:
    """List the entries, newest first; an error in the filter is shown above the form."""
    typed = {name: request.query_params.get(name, "") for name in FILTERS}
    try:
        wanted = _query_of(typed, request.query_params.get("cursor", ""))
    except InvalidEdit as error:
        return _page(request, typed, AuditQuery(), error)
    return _page(request, typed, wanted)


def _page(
    request: Request, typed: Mapping[str, str], wanted: AuditQuery, problem: InvalidEdit | None = None
) -> HTMLResponse:
    return render(
        request,
        "audit.html",
        title=TITLE,
        typed=typed,
        shown=parts_of(request).audit.list(wanted) if problem is None else NOTHING,
        problem=problem,
        first=wanted.cursor is None,
        csv=_csv(wanted),
    )


def _query_of(typed: Mapping[str, str], cursor: str) -> AuditQuery:
    """Return the filter of the form; empty fields do not filter."""
    given = {name: text.strip() for name, text in {**typed, "cursor": cursor}.items() if text.strip()}
    return read(AuditQuery, {name: moment_with_zone(text) if name in MOMENTS else text for name, text in given.items()})


def _csv(wanted: AuditQuery) -> str:
    given = wanted.model_dump(mode="json", include=set(FILTERS), exclude_none=True)
    return CSV + (f"?{urlencode(given)}" if given else "")
