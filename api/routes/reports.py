"""REST routes of the audit log and of usage, as pages and as CSV files; no text in a file is a formula."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import StreamingResponse

from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.domain.llm.usage_views import LatencyQuery, UsageTable
from maestro.domain.people.audit import AuditFilter
from maestro.operations.reports import AuditOperations, UsageOperations

CSV = "text/csv; charset=utf-8; header=present"
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The table"}
}

audit = OperationAPIRouter("audit", prefix="/api")
audit.serve("GET", "/audit", AuditOperations.list, "list_audit")


@audit.get("/audit.csv", response_class=StreamingResponse, responses=FILE)
def export_audit(parts: Parts, wanted: Annotated[AuditFilter, Query()]) -> StreamingResponse:
    """Export the newest 100,000 entries that match, newest first; no text in it is a formula to a spreadsheet."""
    return _file("audit.csv", parts.audit.export(wanted))


usage = OperationAPIRouter("usage", prefix="/api")
usage.serve("GET", "/usage", UsageOperations.show, "show_usage")


@usage.get("/usage.csv", response_class=StreamingResponse, responses=FILE)
def export_usage(parts: Parts, table: Annotated[UsageTable, Query()]) -> StreamingResponse:
    """Export the sums, up to 100,000 of them; no text in it is a formula to a spreadsheet."""
    return _file(f"usage-by-{table.by}.csv", parts.usage.export(table))


usage.serve("GET", "/usage/latency", UsageOperations.latency, "show_latency")


@usage.get("/usage/latency.csv", response_class=StreamingResponse, responses=FILE)
def export_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> StreamingResponse:
    """Export the same figures: those of all days together, which have no day, and then those of each."""
    return _file("latency.csv", parts.usage.export_latency(query))


usage.serve("GET", "/usage/budgets", UsageOperations.budgets, "show_budgets")


def _file(name: str, lines: Iterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})
