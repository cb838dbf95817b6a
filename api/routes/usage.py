"""Usage: what model calls took and cost, how long answers took, and how far budgets are used."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.llm.usage_budgets import BudgetPage
from maestro.domain.llm.usage_csv import MOST_LINES, latency_csv, usage_csv
from maestro.domain.llm.usage_latency import LatencyPage, LatencyQuery
from maestro.domain.llm.usage_views import UsagePage, UsageQuery, UsageTable

CSV = "text/csv; charset=utf-8; header=present"
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The table"}
}

router = APIRouter(route_class=PasswordRoute, tags=["usage"], prefix="/api")


@router.get("/usage")
def show_usage(parts: Parts, query: Annotated[UsageQuery, Query()]) -> UsagePage:
    """Add up usage by day, agent, client, account, model, purpose, platform, conversation or job; days are UTC."""
    with parts.store.view() as tx:
        return tx.usage.page(query, tx.budgets.today)


@router.get("/usage.csv", response_class=StreamingResponse, responses=FILE)
def export_usage(parts: Parts, table: Annotated[UsageTable, Query()]) -> StreamingResponse:
    """Export the sums, up to 100,000 of them; no text in it is a formula to a spreadsheet."""
    with parts.store.view() as tx:
        sums = tx.usage.sums(table.whole(tx.budgets.today), MOST_LINES)
    return _file(f"usage-by-{table.by}.csv", usage_csv(table.by, sums))


@router.get("/usage/latency")
def show_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> LatencyPage:
    """Return how long each step took, over a sample of completed jobs: the newest of each day, 1,000 in all."""
    with parts.store.view() as tx:
        return tx.latency.page(query, query.period(tx.budgets.today))


@router.get("/usage/latency.csv", response_class=StreamingResponse, responses=FILE)
def export_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> StreamingResponse:
    """Export the same figures: those of all days together, which have no day, and then those of each."""
    with parts.store.view() as tx:
        page = tx.latency.page(query, query.period(tx.budgets.today))
    return _file("latency.csv", latency_csv(page))


@router.get("/usage/budgets")
def show_budgets(parts: Parts) -> BudgetPage:
    """Return every budget that has a limit, with what is used and reserved of it today."""
    with parts.store.view() as tx:
        return tx.budgets.used(parts.budgets())


def _file(name: str, lines: Iterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})
