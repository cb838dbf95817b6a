"""Budgets: daily limits, reservations before calls and settlement after them; clients that pay; views for operators."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field as ValueField
from sqlmodel import Field, SQLModel

from maestro.domain.columns import enum_column_type
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.settings.llm import BudgetSettings
from maestro.domain.values import Dollars, Name, OptionalSlug, Page, View, Weight, Word

DUST = 1e-9
"""The amount in US dollars below which a difference counts as a rounding error."""

NEAR = 0.8
"""The used part of a budget, from 0 to 1, from which the budget counts as nearly used up."""

CONVERSATIONS = 20
"""The most conversations in a list of budgets: those with the highest spending today."""


class BudgetScope(StrEnum):
    """The calls that a budget limits: those of one agent, client or conversation; ``day`` means all calls of a day."""

    DAY = "day"
    AGENT = "agent"
    CLIENT = "client"
    CONVERSATION = "conversation"


class Spending(SQLModel, table=True):
    """The spending and the reservations of one scope on one day (UTC), in US dollars.

    ``subject`` is the id of the agent, client or conversation as text, empty for the scope ``day``.
    """

    __tablename__ = "spending"

    day: date = Field(primary_key=True)
    scope: BudgetScope = Field(primary_key=True, sa_type=enum_column_type(BudgetScope))
    subject: str = Field(primary_key=True)
    spent_usd: float = 0.0
    reserved_usd: float = 0.0


class Reservation(SQLModel, table=True):
    """The estimated cost of a call in progress, in US dollars; ``day`` is the day on which the call began.

    A call has one reservation for all of its attempts.
    """

    __tablename__ = "reservations"

    job_id: str = Field(primary_key=True)
    purpose: CallPurpose = Field(primary_key=True, sa_type=enum_column_type(CallPurpose))
    number: int = Field(primary_key=True)
    day: date
    amount_usd: float
    scopes: str


class Client(SQLModel, table=True):
    """The customer who pays for an agent's or a channel's calls; ``daily_budget_usd`` is None for the general limit.

    ``plan`` says how the client is billed, for the operator's accounting only. ``slug`` is empty if none was given.
    ``weight`` is the weight in the fair queue: a client with 2 gets twice as much as one with 1.
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
"""A budget scope and its subject, such as an agent's id as text; see ``Spending``."""


@dataclass(frozen=True)
class Payer:
    """The agent, client and conversation charged for a job's calls, and the daily limits of agent and client in USD."""

    agent_id: int | None = None
    agent: str | None = None
    agent_usd: float | None = None
    client_id: int | None = None
    client: str | None = None
    client_usd: float | None = None
    conversation_id: int | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return every budget scope and subject to which the payer's calls are charged."""
        named = (
            (BudgetScope.AGENT, self.agent_id),
            (BudgetScope.CLIENT, self.client_id),
            (BudgetScope.CONVERSATION, self.conversation_id),
        )
        return ((BudgetScope.DAY, ""), *((scope, str(subject)) for scope, subject in named if subject is not None))


@dataclass(frozen=True)
class BudgetLimit:
    """The daily limit of one scope in US dollars; ``name`` is the name of the agent or client for operators."""

    scope: BudgetScope
    subject: str
    usd: float
    name: str = ""

    def __str__(self) -> str:
        """Return the limit as a text for operators, with the setting that changes it."""
        setting, own = _SETTINGS[self.scope]
        of_scope = f"of {self.scope} {self.name or self.subject}" if self.subject else "of all calls"
        return f"the daily budget {of_scope}, {self.usd:g} US dollars (budgets.{setting}{own})"


@dataclass(frozen=True)
class SpendingLevel:
    """The amounts in US dollars that one scope has spent and reserved on one day."""

    spent_usd: float = 0.0
    reserved_usd: float = 0.0


_SETTINGS: Mapping[BudgetScope, tuple[str, str]] = {
    BudgetScope.DAY: ("dayUsd", ""),
    BudgetScope.AGENT: ("agentDayUsd", " or the agent's dailyBudgetUsd"),
    BudgetScope.CLIENT: ("clientDayUsd", " or the client's dailyBudgetUsd"),
    BudgetScope.CONVERSATION: ("conversationDayUsd", ""),
}


def applicable_limits(payer: Payer, budgets: BudgetSettings) -> tuple[BudgetLimit, ...]:
    """Return the limits that apply to the calls of a payer; the limit for all calls is first.

    A limit of the agent or client itself replaces the general one; a limit of 0 means no limit.
    """
    agent = budgets.agent_day_usd if payer.agent_usd is None else payer.agent_usd
    client = budgets.client_day_usd if payer.client_usd is None else payer.client_usd
    usd = {
        BudgetScope.DAY: (budgets.day_usd, ""),
        BudgetScope.AGENT: (agent, payer.agent or ""),
        BudgetScope.CLIENT: (client, payer.client or ""),
        BudgetScope.CONVERSATION: (budgets.conversation_day_usd, ""),
    }
    limits = (BudgetLimit(scope, subject, *usd[scope]) for scope, subject in payer.scopes)
    return tuple(limit for limit in limits if limit.usd > 0)


def exceeded_limit(limits: Sequence[BudgetLimit], levels: Mapping[Scope, SpendingLevel]) -> BudgetLimit | None:
    """Return the first limit that spending and reservations have reached, None if no limit is reached.

    A call may start while anything remains of the budget, so a budget is exceeded by at most the estimate of one call.
    A scope that is missing in ``levels`` has spent nothing.
    """
    for limit in limits:
        level = levels.get((limit.scope, limit.subject), SpendingLevel())
        if level.spent_usd + level.reserved_usd >= limit.usd - DUST:
            return limit
    return None


def utc_day(moment: datetime) -> date:
    """Return the day (UTC) to whose budgets a time belongs."""
    return moment.astimezone(UTC).date()


class BudgetState(StrEnum):
    """The state of a budget.

    When a budget is used up, Maestro refuses further calls of the day or makes them with the cheaper fallback model.
    """

    FINE = "fine"
    NEAR = "near"
    USED_UP = "used up"


class Spender(NamedTuple):
    """An agent, client or conversation; ``usd`` is its own daily budget in USD, None if not set, 0 for no limit."""

    scope: BudgetScope
    subject: str
    name: str
    usd: float | None = None


class BudgetView(View):
    """One budget today, in US dollars; ``name`` is the agent, client or conversation, null for the budget of all calls.

    ``reservedUsd`` is the estimated cost of calls in progress, and counts as used until the calls end. ``share`` is the
    used and reserved part of the limit, from 0; 1 is the whole limit, which one call may exceed.
    """

    scope: BudgetScope
    name: str | None
    limit_usd: float
    used_usd: float
    reserved_usd: float
    share: float
    state: BudgetState


class BudgetPage(View):
    """Every budget with a limit, the budget of all calls first; ``next`` is always null.

    ``day`` is today in UTC; at ``startsAnewAt`` the used amounts return to 0. ``fallbackModel`` answers when a budget
    is used up; null means that no model answers then.
    """

    items: tuple[BudgetView, ...]
    next: str | None = None
    day: date
    starts_anew_at: datetime
    fallback_model: str | None


def budget_page(
    budgets: BudgetSettings, spenders: Iterable[Spender], levels: Mapping[Scope, SpendingLevel], today: date
) -> BudgetPage:
    """Return the view of every limit in force, with the used amounts; ``applicable_limits`` has the same rules."""
    general = {
        BudgetScope.AGENT: budgets.agent_day_usd,
        BudgetScope.CLIENT: budgets.client_day_usd,
        BudgetScope.CONVERSATION: budgets.conversation_day_usd,
    }
    limits = (
        BudgetLimit(BudgetScope.DAY, "", budgets.day_usd),
        *(
            BudgetLimit(scope, subject, general[scope] if usd is None else usd, name)
            for scope, subject, name, usd in spenders
        ),
    )
    return BudgetPage(
        items=tuple(
            _budget_view(limit, levels.get((limit.scope, limit.subject), SpendingLevel()))
            for limit in limits
            if limit.usd > 0
        ),
        day=today,
        starts_anew_at=datetime.combine(today + timedelta(days=1), time(), UTC),
        fallback_model=budgets.cheaper_model or None,
    )


def _budget_view(limit: BudgetLimit, level: SpendingLevel) -> BudgetView:
    """Return the view of a budget; reservations count as used, as in ``exceeded_limit``."""
    used = level.spent_usd + level.reserved_usd
    state = BudgetState.NEAR if used >= limit.usd * NEAR - DUST else BudgetState.FINE
    return BudgetView(
        scope=limit.scope,
        name=limit.name or None,
        limit_usd=limit.usd,
        used_usd=level.spent_usd,
        reserved_usd=level.reserved_usd,
        share=round(used / limit.usd, 4),
        state=BudgetState.USED_UP if used >= limit.usd - DUST else state,
    )


class ClientFields(View):
    """The fields of a client that operators can edit.

    ``daily_budget_usd`` is in US dollars, 0 for no limit and None for ``budgets.clientDayUsd``. ``plan`` is a word for
    the operator's accounting. ``slug`` is a second, shorter name, unique or empty. ``weight`` is the weight in the fair
    queue: a client with 2 gets twice as much as one with 1 (``jobs.fairness``).
    """

    slug: OptionalSlug = ValueField(default="", description="a second, shorter name, unique; '' for none")
    plan: Word = ValueField(default="per_task", description="how the client is billed, a word for your accounting")
    daily_budget_usd: Dollars | None = ValueField(default=None, description="US dollars per day; 0: no limit")
    weight: Weight = ValueField(default=1.0, description="the client's weight in the fair queue; the default is 1")


class NewClient(ClientFields):
    """A client to create."""

    name: Name


class ClientChange(ClientFields):
    """The changes of a client; a field that is not given stays as it is."""


class ClientView(View):
    """A client; ``dailyBudgetUsd`` is null if ``budgets.clientDayUsd`` applies.

    ``spentUsd`` and ``reservedUsd`` are those of today. ``weight`` is the client's weight in the fair queue.
    """

    name: str
    slug: str
    plan: str
    configured: bool
    daily_budget_usd: float | None
    weight: float
    spent_usd: float
    reserved_usd: float


class ClientPage(Page[ClientView]):
    """A page of clients, sorted by name."""


def client_view(client: Client, level: SpendingLevel) -> ClientView:
    """Return the view of a client, with the spending and reservations of today."""
    return ClientView(**client.model_dump(exclude={"id"}), spent_usd=level.spent_usd, reserved_usd=level.reserved_usd)
