"""Usage, latency and budgets as lines for people."""

from collections.abc import Iterator

from maestro.cli.pages import more
from maestro.cli.table import lines
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_budgets import BudgetPage, BudgetView
from maestro.domain.llm.usage_latency import LatencyPage, LatencyView
from maestro.domain.llm.usage_views import UsageItem, UsagePage

NOTHING = "No model was called in this time."
NO_JOBS = "No job was completed in this time."
NO_BUDGET = "No budget has a limit. Set one with: maestro settings set budgets.dayUsd 50"
NOBODY = "-"
LEAST = 0.0001
"""The smallest part of a US dollar that is shown."""
COLUMNS = ("calls", "failed", "in", "out", "cached", "cost", "of unknown cost", "cut off", "estimated")


def usage(page: UsagePage, by: UsageBy) -> Iterator[str]:
    """Yield the lines of sums, and under them what all of them come to."""
    if not page.items:
        yield NOTHING
        return
    days = (page.until - page.since).days + 1
    sums = (("all", page.totals), (f"{days} days before", page.before))
    yield from lines((by, *COLUMNS), [*map(_sum, page.items), *(_cells(name, one) for name, one in sums)])
    yield from more(page.next)


def latency(page: LatencyPage) -> Iterator[str]:
    """Yield a line for each stage, and how many jobs were looked at."""
    if not page.items:
        yield NO_JOBS
        return
    yield from lines(("stage", "times", "p50", "p95", "p99"), list(map(_times, page.items)))
    yield f"Of {page.jobs} completed jobs from {page.since} to {page.until}: the newest {page.per_day} of each day."


def budgets(page: BudgetPage) -> Iterator[str]:
    """Yield a line for each budget, and when it starts anew."""
    if not page.items:
        yield NO_BUDGET
        return
    yield from lines(("of", "limit", "used", "reserved", "share", "state"), list(map(_budget, page.items)))
    yield f"They start anew at {page.starts_anew_at:%Y-%m-%d %H:%M} UTC."


def _sum(item: UsageItem) -> tuple[str, ...]:
    return _cells(item.key or NOBODY, item)


def _cells(name: str, item: UsageItem) -> tuple[str, ...]:
    counts = (item.calls, item.failures, item.input_tokens, item.output_tokens, item.cached_tokens)
    cost, estimated = _cost(item.cost_usd), _cost(item.interrupted_cost_usd)
    return name, *map(str, counts), cost, str(item.unknown_cost), str(item.interrupted), estimated


def _times(view: LatencyView) -> tuple[str, ...]:
    return view.stage, str(view.count), *(_seconds(ms) for ms in (view.p50_ms, view.p95_ms, view.p99_ms))


def _budget(view: BudgetView) -> tuple[str, ...]:
    whose = f"{view.scope} {view.name}" if view.name else "everybody"
    dollars = (_cost(view.limit_usd), _cost(view.used_usd), _cost(view.reserved_usd))
    return whose, *dollars, f"{view.share:.0%}", view.state


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _cost(usd: float | None) -> str:
    """Write US dollars; what is next to nothing must not look like nothing."""
    if usd is None:
        return NOBODY
    return "<$0.0001" if 0 < usd < LEAST else f"${usd:.4f}"
