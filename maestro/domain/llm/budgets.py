"""Budgets: daily limits, reservations before a call and settlement after it, and the view of operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from sqlmodel import Field, SQLModel

from maestro.domain.columns import text_of
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.values import View

DUST = 1e-9
"""US dollars that are nothing: what adding and taking away leaves behind."""

NEAR = 0.8
"""The share of a budget from which on it is said to be nearly used up."""
CONVERSATIONS = 20
"""Conversations that are listed: those that have used the most today."""


class BudgetScope(StrEnum):
    """Whose spending is counted together; ``day`` is everything."""

    DAY = "day"
    AGENT = "agent"
    CLIENT = "client"
    CONVERSATION = "conversation"


class Spending(SQLModel, table=True):
    """What one scope has spent on one day (UTC), and what calls under way have reserved; US dollars.

    ``subject`` is the id of the agent, client or conversation as text, empty for everything.
    """

    __tablename__ = "spending"

    day: date = Field(primary_key=True)
    scope: BudgetScope = Field(primary_key=True, sa_type=text_of(BudgetScope))
    subject: str = Field(primary_key=True)
    spent_usd: float = 0.0
    reserved_usd: float = 0.0


class Reservation(SQLModel, table=True):
    """The estimated cost of a call under way, in the day it began; one per call, whatever its attempts."""

    __tablename__ = "reservations"

    job_id: str = Field(primary_key=True)
    purpose: CallPurpose = Field(primary_key=True, sa_type=text_of(CallPurpose))
    number: int = Field(primary_key=True)
    day: date
    amount_usd: float
    scopes: str


class Client(SQLModel, table=True):
    """Who pays for an agent's or a channel's calls; ``daily_budget_usd`` is None without a limit of its own.

    ``plan`` is how the client is billed, a word for the operator's books; the slug is empty where nobody gave one.
    ``weight`` is the client's share of what waits: with 2 twice as much of it is done as of a client with 1.
    """

    __tablename__ = "clients"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    slug: str = ""
    plan: str = "per_task"
    daily_budget_usd: float | None = None
    weight: float = 1.0
    configured: bool = False


Scope = tuple[BudgetScope, str]
"""A scope and its subject, as in ``Spending``."""


@dataclass(frozen=True)
class Payer:
    """Whom the calls of a job are charged to, by ids and names, with the daily limits they have of their own."""

    agent_id: int | None = None
    agent: str | None = None
    agent_usd: float | None = None
    client_id: int | None = None
    client: str | None = None
    client_usd: float | None = None
    conversation_id: int | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return every scope in which its spending counts."""
        named = (
            (BudgetScope.AGENT, self.agent_id),
            (BudgetScope.CLIENT, self.client_id),
            (BudgetScope.CONVERSATION, self.conversation_id),
        )
        return ((BudgetScope.DAY, ""), *((scope, str(subject)) for scope, subject in named if subject is not None))


@dataclass(frozen=True)
class DailyBudgets:
    """What may be spent in a day (UTC) in each scope, US dollars; 0 for no limit.

    ``fallback_model`` is asked instead when an agent, a client or a conversation has spent its budget; empty: nobody.
    """

    day_usd: float = 0.0
    agent_usd: float = 0.0
    client_usd: float = 0.0
    conversation_usd: float = 0.0
    fallback_model: str = ""


@dataclass(frozen=True)
class BudgetLimit:
    """How much one scope may spend in a day; ``name`` is what people call its subject."""

    scope: BudgetScope
    subject: str
    usd: float
    name: str = ""

    def __str__(self) -> str:
        """Say it to an operator, with the setting that changes it."""
        setting, own = _SETTINGS[self.scope]
        whose = f"of {self.scope} {self.name or self.subject}" if self.subject else "of everybody together"
        return f"the daily budget {whose}, {self.usd:g} US dollars (budgets.{setting}{own})"


@dataclass(frozen=True)
class SpendingLevel:
    """What one scope has spent and reserved on a day."""

    spent_usd: float = 0.0
    reserved_usd: float = 0.0

    def uses_up(self, limit: BudgetLimit) -> bool:
        """Say whether what was spent alone, without reservations, leaves nothing of a limit."""
        return self.spent_usd >= limit.usd - DUST


_SETTINGS: Mapping[BudgetScope, tuple[str, str]] = {
    BudgetScope.DAY: ("dayUsd", ""),
    BudgetScope.AGENT: ("agentDayUsd", " or the agent's dailyBudgetUsd"),
    BudgetScope.CLIENT: ("clientDayUsd", " or the client's dailyBudgetUsd"),
    BudgetScope.CONVERSATION: ("conversationDayUsd", ""),
}


def limits_of(payer: Payer, budgets: DailyBudgets) -> tuple[BudgetLimit, ...]:
    """Return the limits that the calls of a payer must keep, that of everybody together first.

    A limit of an agent's or a client's own takes the place of the general one; 0 is none in either place.
    """
    agent = budgets.agent_usd if payer.agent_usd is None else payer.agent_usd
    client = budgets.client_usd if payer.client_usd is None else payer.client_usd
    usd = {
        BudgetScope.DAY: (budgets.day_usd, ""),
        BudgetScope.AGENT: (agent, payer.agent or ""),
        BudgetScope.CLIENT: (client, payer.client or ""),
        BudgetScope.CONVERSATION: (budgets.conversation_usd, ""),
    }
    every = (BudgetLimit(scope, subject, *usd[scope]) for scope, subject in payer.scopes)
    return tuple(limit for limit in every if limit.usd > 0)


def exceeded_limit(limits: Sequence[BudgetLimit], levels: Mapping[Scope, SpendingLevel]) -> BudgetLimit | None:
    """Return the first limit that is used up, counting what calls under way may still cost; None when none is.

    A call is let through while anything is left, so that a budget is overspent by at most one call's estimate. A scope
    without a level has spent nothing.
    """
    spent = ((limit, levels.get((limit.scope, limit.subject), SpendingLevel())) for limit in limits)
    return next((limit for limit, level in spent if level.spent_usd + level.reserved_usd >= limit.usd - DUST), None)


def day_of(moment: datetime) -> date:
    """Return the day in whose budgets a moment counts, UTC."""
    return moment.astimezone(UTC).date()


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


def all_limits(budgets: DailyBudgets, spenders: Spenders) -> Sequence[BudgetLimit]:
    """Return every limit that holds; one of its own takes the place of the general one, and 0 is none."""
    of_agents = (_limit(BudgetScope.AGENT, one, budgets.agent_usd) for one in spenders.agents)
    of_clients = (_limit(BudgetScope.CLIENT, one, budgets.client_usd) for one in spenders.clients)
    talk = (BudgetLimit(BudgetScope.CONVERSATION, one, budgets.conversation_usd, one) for one in spenders.conversations)
    everybody = BudgetLimit(BudgetScope.DAY, "", budgets.day_usd)
    return [limit for limit in (everybody, *of_agents, *of_clients, *talk) if limit.usd > 0]


def budget_page(
    budgets: DailyBudgets, spenders: Spenders, levels: Mapping[Scope, SpendingLevel], today: date
) -> BudgetPage:
    """Show every limit that holds, with what is used of it."""
    shown = (
        _view(limit, levels.get((limit.scope, limit.subject), SpendingLevel()))
        for limit in all_limits(budgets, spenders)
    )
    return BudgetPage(
        items=tuple(shown),
        day=today,
        starts_anew_at=datetime.combine(today + timedelta(days=1), time(), UTC),
        fallback_model=budgets.fallback_model or None,
    )


def state_of(limit: BudgetLimit, level: SpendingLevel) -> BudgetState:
    """Say how a budget stands, as the chain sees it: what calls under way may cost is gone."""
    used = level.spent_usd + level.reserved_usd
    if used >= limit.usd - DUST:
        return BudgetState.USED_UP
    return BudgetState.NEAR if used >= limit.usd * NEAR - DUST else BudgetState.FINE


def _limit(scope: BudgetScope, spender: Spender, general: float) -> BudgetLimit:
    return BudgetLimit(scope, str(spender.id), general if spender.usd is None else spender.usd, spender.name)


def _view(limit: BudgetLimit, level: SpendingLevel) -> BudgetView:
    return BudgetView(
        scope=limit.scope,
        name=limit.name or None,
        limit_usd=limit.usd,
        used_usd=level.spent_usd,
        reserved_usd=level.reserved_usd,
        share=round((level.spent_usd + level.reserved_usd) / limit.usd, 4),
        state=state_of(limit, level),
    )
