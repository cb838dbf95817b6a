"""Usage and latency as operators see them, as views and as CSV."""

import base64
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields, replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from maestro.domain.fields import SearchText
from maestro.domain.llm.usage import Period, UsageBy, UsageMark, UsageRequest, UsageScope, UsageSum
from maestro.domain.texts import csv_lines
from maestro.domain.values import Value, View, readable_by

DAYS = 30
"""Days that are shown when nobody says which."""
LIMIT = 100
MOST = 1000
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""Days that somebody may mean; further ones have no room for the days beside them."""

Day = Annotated[date, Field(ge=EARLIEST, le=LATEST)]
OptionalName = Annotated[SearchText | None, AfterValidator(lambda text: text or None)]
"""A name to look for; a form that leaves it empty means every one."""

SAMPLED_JOBS = 1_000
"""Jobs whose steps are read, at most, the same number of each day."""
SAMPLED_STEPS = 20_000
"""Steps of these jobs that are read, at most; of more, nobody says which are left out."""
MOST_DAYS = 31
"""Days that are looked at, the last ones of what is asked for."""

MOST_LINES = 100_000
"""Lines of a file; more are no table that a person looks at."""

USAGE_COLUMNS = (
    "calls",
    "failures",
    "interrupted",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cost_usd",
    "unknown_cost",
    "interrupted_cost_usd",
)
LATENCY_COLUMNS = ("day", "stage", "count", "p50_ms", "p95_ms", "p99_ms")


class PeriodFilter(Value):
    """Days in UTC, both included; the last 30 without any."""

    since: Day | None = Field(default=None, description="the first day, as 2026-11-20, UTC; else 30 days back")
    until: Day | None = Field(default=None, description="the last day, as 2026-11-20, UTC; else today")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError("since comes after until; exchange them")
        return self

    def period(self, today: date) -> Period:
        """Return the days that are meant."""
        until = self.until or max(today, self.since or today)
        return Period(self.since or max(until - timedelta(days=DAYS - 1), EARLIEST), until)


class UsageFilter(PeriodFilter):
    """Whose usage, and when; what is None does not matter.

    ``model`` is a name with its provider, as the sums show it, or without; ``client`` a name or a slug.
    """

    agent: OptionalName = Field(default=None, description="only the calls of this agent")
    client: OptionalName = Field(default=None, description="only what this client pays for")
    account: OptionalName = Field(default=None, description="only the calls of this account")
    model: OptionalName = Field(default=None, description="only the calls of this model")
    purpose: OptionalName = Field(default=None, description="only the calls for this purpose")
    platform: OptionalName = Field(default=None, description="only the calls for this platform")

    @property
    def whose(self) -> UsageScope:
        """Return whose usage is meant."""
        return UsageScope(**{one.name: getattr(self, one.name) for one in fields(UsageScope)})


class UsageTable(UsageFilter):
    """Which usage to show, and by what it is added up: all of it."""

    by: UsageBy = UsageBy.DAY

    def whole(self, today: date) -> UsageRequest:
        """Return what is to be added up."""
        return UsageRequest(self.by, self.period(today), self.whose)


class UsageQuery(UsageTable):
    """A table and a page of it; ``cursor`` is a page's ``next``."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(lambda text: decode_mark(text))] | None = None

    def wish(self, today: date) -> UsageRequest:
        """Return what is to be added up, and where the page begins."""
        after = decode_mark(self.cursor) if self.cursor is not None else None
        return replace(self.whole(today), after=after)


class UsageItem(View):
    """What the requests of one day, agent, client, account, model, ... took.

    ``key`` is its name, null for requests that belong to none, and for the sum of all. Tokens and ``costUsd`` leave out
    interrupted requests; ``interruptedCostUsd`` is estimated. A cost is null when none is known; ``unknownCost`` counts
    the requests whose price nobody knows, which may have cost money as well.
    """

    key: str | None
    calls: int
    failures: int
    interrupted: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    unknown_cost: int
    interrupted_cost_usd: float | None


class UsagePage(View):
    """Days, newest first, or anything else, the dearest first; ``next`` is the following page's cursor or null.

    ``totals`` is the sum of everything that is meant, on this page or not, from ``since`` to ``until``, and ``before``
    that of as many days right before.
    """

    items: tuple[UsageItem, ...]
    next: str | None
    since: date
    until: date
    totals: UsageItem
    before: UsageItem


def usage_page(sums: Sequence[UsageSum], limit: int, period: Period, totals: tuple[UsageSum, UsageSum]) -> UsagePage:
    """Show up to ``limit`` sums; one more than that says that there is another page."""
    total, before = map(_item, totals)
    return UsagePage(
        items=tuple(map(_item, sums[:limit])),
        next=encode_mark(sums[limit - 1].mark) if len(sums) > limit else None,
        since=period.since,
        until=period.until,
        totals=total,
        before=before,
    )


def _item(one: UsageSum) -> UsageItem:
    return UsageItem(**{**vars(one), "key": one.key or None})


def encode_mark(mark: UsageMark) -> str:
    """Return a mark as the text that clients hand back."""
    return base64.urlsafe_b64encode(f"{mark.cost_usd!r} {mark.key}".encode()).rstrip(b"=").decode()


def decode_mark(text: str) -> UsageMark:
    """Read a text of ours; raises ``ValueError`` for any other."""
    try:
        cost, _, key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(" ")
        return UsageMark(key, float(cost))
    except ValueError:
        raise ValueError("this is not a cursor from an earlier answer") from None


class LatencyStage(StrEnum):
    """Where a job spends its time, in the order of its flow.

    ``answer`` is from the arrival of a message to the first text that was sent, and everything else is part of it or
    comes after it; ``lane`` the wait for earlier messages of the channel; ``queued`` from there to the first step.
    """

    ANSWER = "answer"
    LANE = "lane"
    QUEUED = "queued"
    ROUTE = "route"
    MEDIA = "media"
    COMPACTION = "compaction"
    CONTEXT = "context"
    MODEL = "model"
    TOOLS = "tools"
    TAGS = "tags"
    DELIVER = "deliver"


class LatencyQuery(PeriodFilter):
    """Whose jobs, and when; what is None does not matter."""

    agent: OptionalName = None
    client: OptionalName = None
    platform: OptionalName = None


class StageTime(NamedTuple):
    """How long a job spent in one stage, on the day it began."""

    day: str
    stage: LatencyStage
    ms: float


class LatencyView(View):
    """How long one stage took, in milliseconds, and how many times of it were looked at.

    Percentiles are times that were measured: as many per cent of them were no longer.
    """

    stage: LatencyStage
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class LatencyDay(LatencyView):
    """How long one stage took on one day."""

    day: date


class LatencyPage(View):
    """Percentiles of each stage from ``since`` to ``until``, of completed jobs, and of each day, newest first.

    They are those of a sample: the newest ``perDay`` jobs of each day, ``jobs`` in all. ``next`` is always null.
    """

    since: date
    until: date
    jobs: int
    per_day: int
    items: tuple[LatencyView, ...]
    days: tuple[LatencyDay, ...]
    next: str | None = None


def looked_at(period: Period) -> Period:
    """Return the days of a period that are looked at."""
    return Period(max(period.since, period.until - timedelta(days=MOST_DAYS - 1)), period.until)


def per_day(period: Period) -> int:
    """Return how many jobs of each day are looked at."""
    return max(1, SAMPLED_JOBS // period.days)


def latency_page(period: Period, jobs: int, times: Sequence[StageTime]) -> LatencyPage:
    """Show the percentiles of a sample."""
    every: dict[LatencyStage, list[float]] = defaultdict(list)
    by_day: dict[tuple[str, LatencyStage], list[float]] = defaultdict(list)
    for day, stage, ms in times:
        by_day[day, stage].append(ms)
    for (_, stage), measured in by_day.items():
        every[stage] += measured
    days = sorted({day for day, _ in by_day}, reverse=True)
    return LatencyPage(
        since=period.since,
        until=period.until,
        jobs=jobs,
        per_day=per_day(period),
        items=tuple(LatencyView(**_spread(stage, every[stage])) for stage in LatencyStage if stage in every),
        days=tuple(
            LatencyDay(day=date.fromisoformat(day), **_spread(stage, by_day[day, stage]))
            for day in days
            for stage in LatencyStage
            if (day, stage) in by_day
        ),
    )


def percentile(ranked: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that at least this share of all do not exceed; there must be one."""
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _spread(stage: LatencyStage, values: list[float]) -> dict[str, Any]:
    ranked = sorted(values)
    p50, p95, p99 = (round(percentile(ranked, share), 1) for share in (0.5, 0.95, 0.99))
    return {"stage": stage, "count": len(ranked), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def usage_csv(by: UsageBy, sums: Sequence[UsageSum]) -> Iterator[str]:
    """Yield the lines of a table of sums: an empty cost is one that nobody knows, counted in ``unknown_cost``."""
    return _table((by, *USAGE_COLUMNS), map(astuple, sums))


def latency_csv(page: LatencyPage) -> Iterator[str]:
    """Yield the lines of a table of percentiles: those of all days, which have no day, then those of each."""
    every = (("", one.stage, one.count, one.p50_ms, one.p95_ms, one.p99_ms) for one in page.items)
    days = ((str(one.day), one.stage, one.count, one.p50_ms, one.p95_ms, one.p99_ms) for one in page.days)
    return _table(LATENCY_COLUMNS, (*every, *days))


def _table(head: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> Iterator[str]:
    yield from csv_lines([head])
    yield from csv_lines(["" if cell is None else str(cell) for cell in row] for row in rows)
