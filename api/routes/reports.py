"""REST routes of the audit log and of usage, as pages and as CSV files."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.csv_text import csv_lines
from maestro.domain.llm.usage_budgets import BudgetPage
from maestro.domain.llm.usage_csv import MOST_LINES, latency_csv, usage_csv
from maestro.domain.llm.usage_latency import LatencyPage, LatencyQuery
from maestro.domain.llm.usage_views import UsagePage, UsageQuery, UsageTable
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

audit = APIRouter(route_class=PasswordRoute, tags=["audit"], prefix="/api")

FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The table"}
}

usage = APIRouter(route_class=PasswordRoute, tags=["usage"], prefix="/api")


@audit.get("/audit")
def list_audit(parts: Parts, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """List what was done, newest first: by operators, viewers, agents and Maestro itself."""
    with parts.store.view() as tx:
        return audit_page(tx.system.audit.page(query, query.after, query.limit + 1), query.limit)


@audit.get(
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
            entries = tx.system.audit.page(wanted, mark, MOST)
        yield from audit_rows(entries)
        if len(entries) < MOST:
            return
        mark = mark_of(entries[-1])


@usage.get("/usage")
def show_usage(parts: Parts, query: Annotated[UsageQuery, Query()]) -> UsagePage:
    """Add up usage by day, agent, client, account, model, purpose, platform, conversation or job; days are UTC."""
    with parts.store.view() as tx:
        return tx.llm.usage.page(query, tx.llm.budgets.today)


@usage.get("/usage.csv", response_class=StreamingResponse, responses=FILE)
def export_usage(parts: Parts, table: Annotated[UsageTable, Query()]) -> StreamingResponse:
    """Export the sums, up to 100,000 of them; no text in it is a formula to a spreadsheet."""
    with parts.store.view() as tx:
        sums = tx.llm.usage.sums(table.whole(tx.llm.budgets.today), MOST_LINES)
    return _file(f"usage-by-{table.by}.csv", usage_csv(table.by, sums))


@usage.get("/usage/latency")
def show_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> LatencyPage:
    """Return how long each step took, over a sample of completed jobs: the newest of each day, 1,000 in all."""
    with parts.store.view() as tx:
        return tx.system.latency.page(query, query.period(tx.llm.budgets.today))


@usage.get("/usage/latency.csv", response_class=StreamingResponse, responses=FILE)
def export_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> StreamingResponse:
    """Export the same figures: those of all days together, which have no day, and then those of each."""
    with parts.store.view() as tx:
        page = tx.system.latency.page(query, query.period(tx.llm.budgets.today))
    return _file("latency.csv", latency_csv(page))


@usage.get("/usage/budgets")
def show_budgets(parts: Parts) -> BudgetPage:
    """Return every budget that has a limit, with what is used and reserved of it today."""
    with parts.store.view() as tx:
        return tx.llm.budgets.used(parts.budgets())


def _file(name: str, lines: Iterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})
