"""The page of the audit log, with filters in its address."""

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from api.dashboard.forms import moment_with_zone, read_filters, read_query
from api.dashboard.pages import address, render
from api.guards import Parts, PasswordRoute
from maestro.domain.people.views import AuditPage, AuditQuery

PAGE = "/audit"
CSV = "/api/audit.csv"
FILTERS = ("actor", "action", "subject", "q", "since", "until")
MOMENTS = ("since", "until")
EMPTY_PAGE = AuditPage(items=(), next=None)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@router.get("")
def show_audit_log(request: Request, parts: Parts) -> HTMLResponse:
    """List the entries of the audit log, newest first; an error in the filter is shown above the form."""
    filters = read_filters(request, FILTERS)
    moments = {name: moment_with_zone(filters[name]) for name in MOMENTS if filters[name]}
    query, problem = read_query(AuditQuery, {**filters, **moments, **read_filters(request, ["cursor"])})
    return render(
        request,
        "audit.html",
        filters=filters,
        page=EMPTY_PAGE if problem else parts.audit.list(query),
        problem=problem,
        first=query.cursor is None,
        csv=address(CSV, query.model_dump(mode="json", include=set(FILTERS), exclude_none=True)),
    )
