"""Budgets: how much may be spent in a day by whom, reserved before a call and settled after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from sqlmodel import Field, SQLModel

from maestro.domain.columns import text_of
from maestro.domain.prompts import CallPurpose


class BudgetScope(StrEnum):
    """Whose spending is counted together; ``day`` is everything."""

    DAY = "day"
    AGENT = "agent"
    CLIENT = "client"
    CONVERSATION = "conversation"


class OnLimit(StrEnum):
    """What happens when a budget is used up."""

    REFUSE = "refuse"
    FALLBACK = "fallback"


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
    """Who pays for an agent's or a channel's calls; ``daily_budget_usd`` is None without a limit of its own."""

    __tablename__ = "clients"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    daily_budget_usd: float | None = None
    configured: bool = False


@dataclass(frozen=True)
class Limit:
    """How much one scope may spend in a day."""

    scope: BudgetScope
    subject: str
    usd: float


@dataclass(frozen=True)
class Level:
    """What one scope has spent and reserved on a day."""

    spent_usd: float = 0.0
    reserved_usd: float = 0.0


def exceeded(limits: Sequence[tuple[Limit, Level]]) -> Limit | None:
    """Return the first limit that is used up, counting what calls under way may still cost; None when none is.

    A call is let through while anything is left, so that a budget is overspent by at most one call's estimate.
    """
    return next((limit for limit, level in limits if level.spent_usd + level.reserved_usd >= limit.usd), None)
