"""How long answers take, and where the time goes: percentiles of steps over a sample of jobs."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from maestro.domain.llm.usage import Period
from maestro.domain.llm.usage_views import PeriodFilter, Wanted
from maestro.domain.values import View

SAMPLED_JOBS = 1_000
"""Jobs whose steps are read, at most, the same number of each day."""
SAMPLED_STEPS = 20_000
"""Steps of these jobs that are read, at most; of more, nobody says which are left out."""
MOST_DAYS = 31
"""Days that are looked at, the last ones of what is asked for."""


class Stage(StrEnum):
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

    agent: Wanted = None
    client: Wanted = None
    platform: Wanted = None


class Took(NamedTuple):
    """How long a job spent in one stage, on the day it began."""

    day: str
    stage: Stage
    ms: float


class LatencyView(View):
    """How long one stage took, in milliseconds, and how many times of it were looked at.

    Percentiles are times that were measured: as many per cent of them were no longer.
    """

    stage: Stage
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


def latency_page(period: Period, jobs: int, times: Sequence[Took]) -> LatencyPage:
    """Show the percentiles of a sample."""
    every: dict[Stage, list[float]] = defaultdict(list)
    by_day: dict[tuple[str, Stage], list[float]] = defaultdict(list)
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
        items=tuple(LatencyView(**_spread(stage, every[stage])) for stage in Stage if stage in every),
        days=tuple(
            LatencyDay(day=date.fromisoformat(day), **_spread(stage, by_day[day, stage]))
            for day in days
            for stage in Stage
            if (day, stage) in by_day
        ),
    )


def percentile(ranked: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that at least this share of all do not exceed; there must be one."""
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _spread(stage: Stage, values: list[float]) -> dict[str, Any]:
    ranked = sorted(values)
    p50, p95, p99 = (round(percentile(ranked, share), 1) for share in (0.5, 0.95, 0.99))
    return {"stage": stage, "count": len(ranked), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
