"""Usage as CSV, for spreadsheets, on the API and on the command line alike."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple

from maestro.domain.csv_text import csv_lines
from maestro.domain.llm.usage import UsageBy, UsageSum
from maestro.domain.llm.usage_latency import LatencyPage

MOST_LINES = 100_000
"""Lines of a file; more are no table that a person looks at."""

USAGE = (
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
LATENCY = ("day", "stage", "count", "p50_ms", "p95_ms", "p99_ms")


def usage_csv(by: UsageBy, sums: Sequence[UsageSum]) -> Iterator[str]:
    """Yield the lines of a table of sums: an empty cost is one that nobody knows, counted in ``unknown_cost``."""
    return _table((by, *USAGE), map(astuple, sums))


def latency_csv(page: LatencyPage) -> Iterator[str]:
    """Yield the lines of a table of percentiles: those of all days, which have no day, then those of each."""
    every = (("", one.stage, one.count, one.p50_ms, one.p95_ms, one.p99_ms) for one in page.items)
    days = ((str(one.day), one.stage, one.count, one.p50_ms, one.p95_ms, one.p99_ms) for one in page.days)
    return _table(LATENCY, (*every, *days))


def _table(head: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> Iterator[str]:
    yield from csv_lines([head])
    yield from csv_lines(["" if cell is None else str(cell) for cell in row] for row in rows)
