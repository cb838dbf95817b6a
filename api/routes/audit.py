"""The audit log: who did what to what, and from where."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.csv_text import csv_lines
from maestro.domain.people.audit import (
    COLUMNS,
    MOST,
    AuditFilter,
    AuditPage,
    AuditQuery,
    audit_page,
    audit_rows,
    mark_of,
)
from maestro.store.store import Store

MOST_EXPORTED = 100_000
CSV = "text/csv; charset=utf-8; header=present"

router = APIRouter(route_class=PasswordRoute, tags=["audit"], prefix="/api")


@router.get("/audit")
def list_audit(parts: Parts, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """List what was done, newest first: by operators, viewers, agents and Maestro itself."""
    with parts.store.view() as tx:
        return audit_page(tx.audit.page(query, query.after, query.limit + 1), query.limit)


@router.get(
    "/audit.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The entries"}},
)
def export_audit(parts: Parts, wanted: Annotated[AuditFilter, Query()]) -> StreamingResponse:
    """Export the newest 100,000 entries that match, newest first; no text in it is a formula to a spreadsheet."""
    headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
    return StreamingResponse(csv_lines(_rows(parts.store, wanted)), media_type=CSV, headers=headers)


def _rows(store: Store, wanted: AuditFilter) -> Iterator[Sequence[str]]:
    """Yield the head and the rows, page by page: a slow reader must not keep a connection to the store."""
    yield COLUMNS
    mark = None
    for _ in range(MOST_EXPORTED // MOST):
        with store.view() as tx:
            entries = tx.audit.page(wanted, mark, MOST)
        yield from audit_rows(entries)
        if len(entries) < MOST:
            return
        mark = mark_of(entries[-1])
