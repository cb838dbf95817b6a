"""Usage: what model calls took and cost, added up."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.llm.usage_views import UsagePage, UsageQuery, usage_page

router = APIRouter(route_class=PasswordRoute, tags=["usage"], prefix="/api/usage")


@router.get("")
def show_usage(parts: Parts, query: Annotated[UsageQuery, Query()]) -> UsagePage:
    """Add up usage by day, agent, client, account, model, conversation or job; days are UTC, both ends included."""
    with parts.store.view() as tx:
        period = query.period(tx.budgets.today)
        return usage_page(tx.usage.sums(query.by, period, query.after, query.limit + 1), query.limit)
