"""The usage and the latency of model calls as operators see them: API views and CSV."""

import base64
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from datetime import date, timedelta
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from maestro.domain.llm.usage import OptionalName, Period, UsageBy, UsageMark, UsageRequest, UsageScope, UsageSum
from maestro.domain.texts import csv_lines
from maestro.domain.values import Page, Value, View, readable_by

DAYS = 30
"""The number of days in a table of usage by default."""
LIMIT = 100
MOST = 1000
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""The first and the last allowed day, so that the preceding period stays within the limits of ``date``."""

Day = Annotated[date, Field(ge=EARLIEST, le=LATEST)]

SAMPLED_JOBS = 1_000
"""The most jobs in the sample of a latency query; each day gets the same number."""
SAMPLED_STEPS = 20_000
"""The most steps that are read of the sampled jobs; which further steps are left out is undefined."""
MOST_DAYS = 31
"""The most days of a latency query; of a longer period, only the last days are read."""

MOST_LINES = 100_000
"""The most lines of a CSV file; a longer table is of no use to a person."""


class PeriodFilter(Value):
    """A filter by days in UTC, first and last included; by default the last 30 days."""

    since: Day | None = Field(default=None, description="the first day, as 2026-11-20, UTC; else 30 days back")
    until: Day | None = Field(default=None, description="the last day, as 2026-11-20, UTC; else today")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError("since comes after until; exchange them")
        return self

    def period(self, today: date) -> Period:
        """Return the period of the filter; ``today`` is in UTC."""
        until = self.until or max(today, self.since or today)
        return Period(self.since or max(until - timedelta(days=DAYS - 1), EARLIEST), until)


class UsageFilter(UsageScope, PeriodFilter):
    """A filter of usage by names and by days."""


class UsageTable(UsageFilter):
    """A query for a complete table of usage: a filter, and the dimension ``by`` which usage is summed."""

    by: UsageBy = UsageBy.DAY


class UsageQuery(UsageTable):
    """A query for one page of a table of usage; ``cursor`` is the ``next`` of the preceding page."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(lambda text: decode_mark(text))] | None = None

    def request(self, today: date) -> UsageRequest:
        """Return the request for the sums of the page; ``today`` is in UTC."""
        after = decode_mark(self.cursor) if self.cursor is not None else None
        return UsageRequest(self.by, self.period(today), self, after)


class UsageItem(View):
    """The usage of all requests with one day, agent, client, account, model or other key.

    ``key`` is null for requests without one and for the total. Tokens and ``costUsd`` leave out interrupted requests,
    whose cost is estimated in ``interruptedCostUsd``. A cost is null if no cost is known. ``unknownCost`` counts the
    requests with an unknown price, which may have cost money.
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


class UsagePage(Page[UsageItem]):
    """A page of usage sums, and the totals.

    Sums by day come newest first, all other sums most expensive first. ``totals`` covers all matching requests from
    ``since`` to ``until``, on every page; ``before`` is the total of the preceding period of equal length.
    """

    since: date
    until: date
    totals: UsageItem
    before: UsageItem


def usage_page(sums: Sequence[UsageSum], limit: int, period: Period, totals: tuple[UsageSum, UsageSum]) -> UsagePage:
    """Return a page of up to ``limit`` sums; a further element in ``sums`` means that another page follows."""
    items = [UsageItem(**{**vars(row), "key": row.key or None}) for row in (*totals, *sums[:limit])]
    cursor = None
    if len(sums) > limit:
        last = sums[limit - 1]
        cursor = base64.urlsafe_b64encode(f"{last.cost_usd or 0.0!r} {last.key}".encode()).rstrip(b"=").decode()
    return UsagePage(
        items=tuple(items[2:]), next=cursor, since=period.since, until=period.until, totals=items[0], before=items[1]
    )


def decode_mark(text: str) -> UsageMark:
    """Return the page position that a cursor contains; raises ``ValueError`` for any other text."""
    try:
        cost, _, key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(" ")
        return UsageMark(key, float(cost))
    except ValueError:
        raise ValueError("this is not a cursor from an earlier answer") from None


class LatencyStage(StrEnum):
    """A stage in which a job spends time, in the order of the flow.

    ``answer`` is the time from receiving a message to sending the first text of the answer; other stages are part of it
    or follow it. ``lane`` is the wait for earlier messages of the channel, ``queued`` the wait from then to the first
    step.
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
    """A filter of jobs by names and by days; a field that is None does not restrict the result."""

    agent: OptionalName = None
    client: OptionalName = None
    platform: OptionalName = None


class StageTime(NamedTuple):
    """The time that a job spent in one stage, in milliseconds, and the day of the job."""

    day: str
    stage: LatencyStage
    ms: float


class LatencyView(View):
    """The latency of one stage in milliseconds; ``count`` is the number of measured times.

    Half of the measured times are at most ``p50Ms``, 95 percent at most ``p95Ms``, 99 percent at most ``p99Ms``.
    """

    stage: LatencyStage
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class LatencyDay(LatencyView):
    """The latency of one stage on one day."""

    day: date


class LatencyPage(View):
    """Latency percentiles of completed jobs: ``items`` for the whole period, ``days`` for each day, newest first.

    The sample has the newest ``perDay`` jobs of each day, ``jobs`` in all. ``next`` is always null.
    """

    since: date
    until: date
    jobs: int
    per_day: int
    items: tuple[LatencyView, ...]
    days: tuple[LatencyDay, ...]
    next: str | None = None


def sampled_period(period: Period) -> Period:
    """Return the part of a period for which latency is computed: its last ``MOST_DAYS`` days."""
    return Period(max(period.since, period.until - timedelta(days=MOST_DAYS - 1)), period.until)


def sampled_jobs_per_day(period: Period) -> int:
    """Return the number of sampled jobs for each day of a period."""
    return max(1, SAMPLED_JOBS // period.days)


def latency_page(period: Period, jobs: int, times: Sequence[StageTime]) -> LatencyPage:
    """Return the percentiles of a sample of stage times."""
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
        per_day=sampled_jobs_per_day(period),
        items=tuple(LatencyView(**percentile_fields(stage, every[stage])) for stage in LatencyStage if stage in every),
        days=tuple(
            LatencyDay(day=date.fromisoformat(day), **percentile_fields(stage, by_day[day, stage]))
            for day in days
            for stage in LatencyStage
            if (day, stage) in by_day
        ),
    )


def percentile_fields(stage: LatencyStage, values: list[float]) -> dict[str, Any]:
    """Return the fields of a ``LatencyView``, with percentiles by nearest rank."""
    ranked = sorted(values)
    p50, p95, p99 = (round(ranked[math.ceil(share * len(ranked)) - 1], 1) for share in (0.5, 0.95, 0.99))
    return {"stage": stage, "count": len(ranked), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def usage_csv(by: UsageBy, sums: Sequence[UsageSum]) -> Iterator[str]:
    """Yield the lines of a CSV table of usage sums; an unknown cost is empty and counted in ``unknown_cost``."""
    return _csv_table((by, *(field.name for field in fields(UsageSum)[1:])), map(astuple, sums))


def latency_csv(page: LatencyPage) -> Iterator[str]:
    """Yield the lines of a CSV table of latency percentiles.

    The lines of the whole period come first, with an empty day, then those of each day.
    """
    rows: list[tuple[date | None, LatencyView]] = [(None, view) for view in page.items]
    rows += [(view.day, view) for view in page.days]
    return _csv_table(
        ("day", "stage", "count", "p50_ms", "p95_ms", "p99_ms"),
        ((day, view.stage, view.count, view.p50_ms, view.p95_ms, view.p99_ms) for day, view in rows),
    )


def _csv_table(head: Sequence[str], rows: Iterable[Sequence[date | str | float | None]]) -> Iterator[str]:
    return csv_lines(chain([head], (["" if cell is None else str(cell) for cell in row] for row in rows)))
