"""The usage and cost of model calls, stored for billing even after a conversation is deleted."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator
from pydantic import Field as ValueField
from sqlmodel import Field, Index, SQLModel

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.llm.calls import CallState
from maestro.domain.values import SearchText, Value

VOICE = "voice"
"""The purpose of usage for a transcription of speech; ``CallPurpose`` has the purposes of model calls."""

OptionalName = Annotated[SearchText | None, AfterValidator(lambda text: text or None)]
"""A name to filter by; an empty form field means no filter."""


class UsageRow(SQLModel, table=True):
    """A row of ``usage_log``: one request to one account, whether it succeeded or failed.

    ``purpose`` is the purpose of the model call, or ``VOICE``. ``cost_usd`` is None if the price is unknown, and 0 if
    the call was free. For an interrupted call, the cost is an estimate. Tokens are 0 if the provider did not report
    them. Names are those at the time of the call.
    """

    __tablename__ = "usage_log"
    __table_args__ = (
        Index("ix_usage_log_at", "at"),
        Index("ix_usage_log_job_id", "job_id", "number", "attempt"),
        # A covering index, because the list of conversations shows the sum of the costs of each conversation.
        Index("ix_usage_log_conversation", "conversation_id", "state", "cost_usd"),
    )

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    job_id: str
    purpose: str
    number: int
    attempt: int
    agent_id: int | None = None
    client_id: int | None = None
    conversation_id: int | None = None
    provider: str
    model: str
    account: str
    state: CallState = Field(sa_type=enum_column_type(CallState))
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    duration_ms: int | None = None
    error: str = ""


class UsageDay(SQLModel, table=True):
    """A row of ``usage_days``: the sums of one day's ``usage_log`` rows with equal keys; id 0: no agent or client.

    The database updates the sums with each row of ``usage_log``. ``known`` counts the rows with a cost in ``cost_usd``,
    ``estimated`` those with a cost in ``interrupted_cost_usd``: with a count of 0, the cost is unknown and not 0.
    """

    __tablename__ = "usage_days"

    day: str = Field(primary_key=True)
    agent_id: int = Field(primary_key=True)
    client_id: int = Field(primary_key=True)
    platform: str = Field(primary_key=True)
    provider: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    purpose: str = Field(primary_key=True)
    calls: int
    failures: int
    interrupted: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float
    known: int
    unknown_cost: int
    interrupted_cost_usd: float
    estimated: int


class UsageBy(StrEnum):
    """The dimension by which usage is summed; ``purpose`` is why a call was made, such as answer or summary."""

    DAY = "day"
    AGENT = "agent"
    CLIENT = "client"
    ACCOUNT = "account"
    MODEL = "model"
    PURPOSE = "purpose"
    PLATFORM = "platform"
    CONVERSATION = "conversation"
    JOB = "job"


@dataclass(frozen=True)
class Period:
    """A period of whole days in UTC, the first and the last included."""

    since: date
    until: date

    @property
    def start_time(self) -> datetime:
        """The first moment of the period."""
        return datetime.combine(self.since, time(), UTC)

    @property
    def end_time(self) -> datetime:
        """The first moment after the period."""
        return datetime.combine(self.until + timedelta(days=1), time(), UTC)

    @property
    def days(self) -> int:
        return (self.until - self.since).days + 1

    @property
    def preceding_period(self) -> "Period":
        return Period(self.since - timedelta(days=self.days), self.since - timedelta(days=1))


class UsageScope(Value):
    """A filter of usage by names; a field that is None does not restrict the result.

    ``model`` is a name with or without its provider; ``client`` is a name or a slug.
    """

    agent: OptionalName = ValueField(default=None, description="only the calls of this agent")
    client: OptionalName = ValueField(default=None, description="only what this client pays for")
    account: OptionalName = ValueField(default=None, description="only the calls of this account")
    model: OptionalName = ValueField(default=None, description="only the calls of this model")
    purpose: OptionalName = ValueField(default=None, description="only the calls for this purpose")
    platform: OptionalName = ValueField(default=None, description="only the calls of jobs on this platform")


EVERY_SCOPE = UsageScope()


@dataclass(frozen=True)
class UsageMark:
    """A page's end in a list of sums: the last sum's key and cost; sums are sorted by cost, except sums by day."""

    key: str
    cost_usd: float = 0.0


@dataclass(frozen=True)
class UsageRequest:
    """A request for sums of usage: the dimension, the period, the filter, and the position after which to begin."""

    by: UsageBy
    period: Period
    scope: UsageScope = EVERY_SCOPE
    after: UsageMark | None = None


@dataclass(frozen=True)
class UsageSum:
    """The sum of all requests with one day, agent or other key; ``key`` is empty for requests without one.

    Tokens and ``cost_usd`` leave out interrupted requests, whose cost is estimated separately. A cost is None if the
    cost of no request is known. ``unknown_cost`` counts the requests with an unknown price, which ``cost_usd`` leaves
    out.
    """

    key: str
    calls: int
    failures: int
    interrupted: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    unknown_cost: int
    interrupted_cost_usd: float | None


NOTHING = UsageSum("", 0, 0, 0, 0, 0, 0, None, 0, None)
"""The sum of no requests."""


@dataclass(frozen=True)
class UsagePart:
    """The usage of one agent, model or other key on one day, or a part of it that has to be added to other parts."""

    day: str
    sum: UsageSum


def add_sums(key: str, sums: Iterable[UsageSum]) -> UsageSum:
    """Return the total of several sums, with ``key`` as its key."""
    rows = list(sums)
    counts = ("calls", "failures", "interrupted", "input_tokens", "output_tokens", "cached_tokens", "unknown_cost")
    return UsageSum(
        key,
        **{name: sum(getattr(row, name) for row in rows) for name in counts},
        cost_usd=_sum_known(row.cost_usd for row in rows),
        interrupted_cost_usd=_sum_known(row.interrupted_cost_usd for row in rows),
    )


def sum_by_day(parts: Iterable[UsagePart]) -> list[UsageSum]:
    """Return the total of each day, the newest day first."""
    return sorted(_sums_by_key((part.day, part.sum) for part in parts), key=lambda day: day.key, reverse=True)


def sum_by_key(parts: Iterable[UsagePart]) -> list[UsageSum]:
    """Return the total of each key (agent, model and so on), the most expensive first."""
    sums = _sums_by_key((part.sum.key, part.sum) for part in parts)
    return sorted(sums, key=lambda total: (-(total.cost_usd or 0.0), total.key))


def _sums_by_key(keyed: Iterable[tuple[str, UsageSum]]) -> list[UsageSum]:
    groups: dict[str, list[UsageSum]] = defaultdict(list)
    for key, part in keyed:
        groups[key].append(part)
    return [add_sums(key, sums) for key, sums in groups.items()]


def _sum_known(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
