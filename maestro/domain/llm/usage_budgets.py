"""Budgets as operators see them: how much of each is used today, and when it starts anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from maestro.domain.llm.budgets import DUST, BudgetScope, DailyBudgets, Level, Limit, Scope
from maestro.domain.values import View

NEAR = 0.8
"""The share of a budget from which on it is said to be nearly used up."""
CONVERSATIONS = 20
"""Conversations that are listed: those that have used the most today."""


class BudgetState(StrEnum):
    """How a budget stands; when it is used up, no further call is made in it today, or by a cheaper model."""

    FINE = "fine"
    NEAR = "near"
    USED_UP = "used up"


@dataclass(frozen=True)
class Spender:
    """An agent or a client, and the budget of its own: None without one, 0 for no limit."""

    id: int
    name: str
    usd: float | None


@dataclass(frozen=True)
class Spenders:
    """Who may have a budget; ``conversations`` are the ids of those in which something was spent today."""

    agents: Sequence[Spender] = ()
    clients: Sequence[Spender] = ()
    conversations: Sequence[str] = ()


class BudgetView(View):
    """One budget today, in US dollars; ``name`` is whose it is, null for everybody together.

    ``reservedUsd`` is what calls under way may still cost, and counts as used until they end. ``share`` is how much of
    the limit is used and reserved, 1 for all of it; one call may overspend it.
    """

    scope: BudgetScope
    name: str | None
    limit_usd: float
    used_usd: float
    reserved_usd: float
    share: float
    state: BudgetState


class BudgetPage(View):
    """Every budget that has a limit, that of everybody first; ``next`` is always null.

    A period is a day in UTC: ``day`` is today, and at ``startsAnewAt`` nothing is used any more. ``fallbackModel`` is
    asked where one is used up, null when nobody is asked then.
    """

    items: tuple[BudgetView, ...]
    next: str | None = None
    day: date
    starts_anew_at: datetime
    fallback_model: str | None


def limits(budgets: DailyBudgets, spenders: Spenders) -> Sequence[Limit]:
    """Return every limit that holds; one of its own takes the place of the general one, and 0 is none."""
    of_agents = (_limit(BudgetScope.AGENT, one, budgets.agent_usd) for one in spenders.agents)
    of_clients = (_limit(BudgetScope.CLIENT, one, budgets.client_usd) for one in spenders.clients)
    talk = (Limit(BudgetScope.CONVERSATION, one, budgets.conversation_usd, one) for one in spenders.conversations)
    everybody = Limit(BudgetScope.DAY, "", budgets.day_usd)
    return [limit for limit in (everybody, *of_agents, *of_clients, *talk) if limit.usd > 0]


def budget_page(budgets: DailyBudgets, spenders: Spenders, levels: Mapping[Scope, Level], today: date) -> BudgetPage:
    """Show every limit that holds, with what is used of it."""
    shown = (_view(limit, levels.get((limit.scope, limit.subject), Level())) for limit in limits(budgets, spenders))
    return BudgetPage(
        items=tuple(shown),
        day=today,
        starts_anew_at=datetime.combine(today + timedelta(days=1), time(), UTC),
        fallback_model=budgets.fallback_model or None,
    )


def state_of(limit: Limit, level: Level) -> BudgetState:
    """Say how a budget stands, as the chain sees it: what calls under way may cost is gone."""
    used = level.spent_usd + level.reserved_usd
    if used >= limit.usd - DUST:
        return BudgetState.USED_UP
    return BudgetState.NEAR if used >= limit.usd * NEAR - DUST else BudgetState.FINE


def _limit(scope: BudgetScope, spender: Spender, general: float) -> Limit:
    return Limit(scope, str(spender.id), general if spender.usd is None else spender.usd, spender.name)


def _view(limit: Limit, level: Level) -> BudgetView:
    return BudgetView(
        scope=limit.scope,
        name=limit.name or None,
        limit_usd=limit.usd,
        used_usd=level.spent_usd,
        reserved_usd=level.reserved_usd,
        share=round((level.spent_usd + level.reserved_usd) / limit.usd, 4),
        state=state_of(limit, level),
    )
