"""The pages of usage and cost, with plots drawn as SVG, and of the audit log."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard import words
from api.dashboard.forms import moment_with_zone, read_filters, read_query
from api.dashboard.pages import address, render
from api.guards import Parts, PasswordRoute, request_parts
from api.parts import ApiParts
from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.budgets import BudgetPage, BudgetScope, BudgetView
from maestro.domain.llm.usage import Period, UsageBy, UsagePart, UsageSum, add_sums, sum_by_day, sum_by_key
from maestro.domain.llm.usage_views import LatencyQuery, UsageFilter, usage_page
from maestro.domain.people.views import AuditPage, AuditQuery

WIDTH, HEIGHT = 520, 220
LEFT, RIGHT, TOP, BOTTOM = 72, 8, 10, 26
STEPS = 4
"""Approximate number of horizontal lines in a plot."""
COLOURS = 6
"""The number of colours that people can distinguish; the smallest series are added up in the last colour."""
OTHERS = "others"
DAY, YEAR = len("2026-11-20"), len("2026-")
"""The characters of a date, and of the year and hyphen at its start, which the labels of days leave out."""
EDGE = 22
"""The minimum distance from the middle of a label to the right edge of the plot, in SVG units."""
DETAILED_COLUMNS = 48
"""In plots with more columns, the text of a column gives only the sum of its series, for a small page."""
GAP = 0.25
"""The empty part of a column's width, from 0 to 1."""

FormatValue = Callable[[float], str]

PAGE = "/usage"
STACKS = (UsageBy.AGENT, UsageBy.MODEL, UsageBy.ACCOUNT, UsageBy.CLIENT, UsageBy.PLATFORM, UsageBy.PURPOSE)
"""The ways to group the plot of costs and the second table."""
PERIOD_FIELDS = ("since", "until")
FILTERS = (*PERIOD_FIELDS, *(name for name in UsageFilter.model_fields if name not in PERIOD_FIELDS))
JOB_FILTERS = ("since", "until", "agent", "client", "platform")
"""The filters of the page that also apply to the latency of jobs."""
ROWS = 31
"""The most rows of a table; the CSV file has all."""
MOST_DAYS = 120
"""In plots of periods up to this many days, a column is one day; in plots of longer periods, one month."""
MOST_MONTH_DAYS = 3_650
"""In plots of periods with more days than this, a column is one year."""
MONTH_CHARS, YEAR_CHARS = len("2026-11"), len("2026")
NO_NAME = "no name"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

AUDIT_FILTERS = ("actor", "action", "subject", "q", "since", "until")

audit_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix="/audit")


@dataclass(frozen=True)
class PlotSeries:
    """A data series of a plot, with one value per column."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class PlotColumn:
    """The area of a plot column, and the text that appears while the pointer is over the area."""

    x: float
    width: float
    words: str


@dataclass(frozen=True)
class PlotLabel:
    """A label of an axis, and its position."""

    at: float
    words: str


@dataclass(frozen=True)
class Plot:
    """A plot of stacked columns; ``shapes`` are the bars of each series as an SVG path, in the order of ``legend``."""

    shapes: tuple[str, ...]
    columns: tuple[PlotColumn, ...]
    across: tuple[PlotLabel, ...]
    below: tuple[PlotLabel, ...]
    legend: tuple[PlotSeries, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    floor: int = HEIGHT - BOTTOM


def largest_series(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> tuple[PlotSeries, ...]:
    """Return the series with the largest totals, and all other series added up as one.

    ``values`` are by column name and series label. A series without a value above zero is left out.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for (_, label), value in values.items():
        totals[label] += value
    ranked = sorted((label for label, total in totals.items() if total > 0), key=lambda label: (-totals[label], label))
    own = ranked if len(ranked) <= COLOURS else ranked[: COLOURS - 1]
    # Not a dict by label, because an agent may have the same name as the series of all others.
    groups = [(label, [label]) for label in own]
    if len(own) < len(ranked):
        groups.append((OTHERS, ranked[len(own) :]))
    return tuple(
        PlotSeries(label, tuple(sum(values.get((name, part), 0.0) for part in parts) for name in names))
        for label, parts in groups
    )


def stacked_plot(names: Sequence[str], series: Sequence[PlotSeries], format_value: FormatValue) -> Plot:
    """Return a plot of stacked columns, one column for each of ``names``."""
    scale = axis_values(
        max((sum(column) for column in zip(*(part.values for part in series), strict=True)), default=0.0)
    )
    step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    floors = [0.0] * len(names)
    shapes = []
    for part in series:
        shapes.append(_draw_bars(part.values, floors, scale[-1], step))
        floors = [floor + value for floor, value in zip(floors, part.values, strict=True)]
    return Plot(
        shapes=tuple(shapes),
        columns=tuple(
            PlotColumn(round(LEFT + index * step, 1), round(step, 1), _column_text(name, index, series, format_value))
            for index, name in enumerate(names)
        ),
        across=tuple(PlotLabel(round(_y_position(value, scale[-1]), 1), format_value(value)) for value in scale),
        below=_labels_below(names, step),
        legend=tuple(series),
    )


def axis_values(most: float) -> tuple[float, ...]:
    """Return round values from 0 up to ``most`` or just above, for the horizontal lines of a plot."""
    if most <= 0:
        return (0.0, 1.0)
    rough = most / STEPS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    count = math.ceil(most / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(count + 1))


def _draw_bars(values: Sequence[float], floors: Sequence[float], most: float, step: float) -> str:
    """Return the bars of one series as an SVG path; ``floors`` are the values at which the bars begin."""
    width, bars = round(step * (1 - GAP), 1), []
    for index, (value, floor) in enumerate(zip(values, floors, strict=True)):
        if value > 0:
            low, high = _y_position(floor, most), _y_position(floor + value, most)
            left = round(LEFT + index * step + step * GAP / 2, 1)
            bars.append(f"M{left:g} {round(low, 1):g}v{round(high - low, 1):g}h{width:g}v{round(low - high, 1):g}z")
    return "".join(bars)


def _y_position(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most


def _labels_below(names: Sequence[str], step: float) -> tuple[PlotLabel, ...]:
    interval = max(1, math.ceil(len(names) / 5))  # about five labels
    return tuple(
        PlotLabel(
            round(min(LEFT + (index + 0.5) * step, WIDTH - RIGHT - EDGE), 1), name[YEAR:] if len(name) == DAY else name
        )
        for index, name in enumerate(names)
        if (len(names) - 1 - index) % interval == 0
    )


def _column_text(name: str, index: int, series: Sequence[PlotSeries], format_value: FormatValue) -> str:
    if series and len(series[0].values) > DETAILED_COLUMNS:
        return f"{name}: {format_value(sum(part.values[index] for part in series))}"
    listed = [f"{part.label} {format_value(part.values[index])}" for part in series if part.values[index] > 0]
    return f"{name}: {', '.join(listed) or 'nothing'}"


@router.get("")
def show_usage(request: Request) -> Response:
    """Show usage and cost of a period; an error in the filter is shown above the form."""
    parts, filters = request_parts(request), read_filters(request, (*FILTERS, "by"))
    query, problem = read_query(UsageFilter, {name: filters[name] for name in FILTERS})
    by = filters["by"] or UsageBy.AGENT
    if by not in STACKS:
        problem = problem or InvalidEdit(f"by: expected one of {', '.join(STACKS)}")
    if problem:
        query, by = UsageFilter(), UsageBy.AGENT
    today = parts.clock().date()
    return render(
        request,
        "usage.html",
        filters=filters,
        by=UsageBy(by),
        stacks=STACKS,
        content=_read_usage(parts, UsageBy(by), query),
        problem=problem,
        periods=[(days, today - timedelta(days=days - 1)) for days in (7, 30, 90)],
        change=describe_change,
        filtered=any(filters[name] for name in FILTERS if name not in PERIOD_FIELDS),
        export=lambda path, **more: _export_address(query, path, more),
        fullest=most_used_budgets,
        no_name=NO_NAME,
        most=ROWS,
    )


def _read_usage(parts: ApiParts, by: UsageBy, query: UsageFilter) -> Mapping[str, object]:
    with parts.store.view() as tx:
        period = query.period(tx.llm.budgets.today)
        usage = tx.llm.usage.list_parts(by, period, query)
        days = sum_by_day(usage)
        totals = add_sums("", days), tx.llm.usage.read_total(period.preceding_period, query)
        jobs = LatencyQuery(**query.model_dump(include=set(JOB_FILTERS), exclude_none=True))
        return {
            "days": usage_page(days[: ROWS + 1], ROWS, period, totals),
            "others": sum_by_key(usage)[: ROWS + 1],
            "cost": _plot_costs(period, usage),
            "tokens": _plot_tokens(period, days),
            "latency": tx.system.latency.build_latency_page(jobs, period),
            "budgets": tx.llm.budgets.list_used(parts.budgets()),
        }


def most_used_budgets(budgets: BudgetPage) -> Sequence[BudgetView]:
    """Return the budget of the whole day first, then the other budgets, the most used (in per cent) first."""
    return sorted(budgets.items, key=lambda budget: (budget.scope is not BudgetScope.DAY, -budget.share))[:ROWS]


def describe_change(now: float, before: float) -> str:
    """Return in words how a value changed from the previous period, such as ``20% more``."""
    if not before:
        return "nothing before" if now else "unchanged"
    share = now / before - 1
    if abs(share) < 0.005:
        return "unchanged"
    return f"{abs(share):.0%} {'more' if share > 0 else 'less'}"


def plot_columns(period: Period) -> tuple[Sequence[str], int]:
    """Return the names of a plot's columns, and how many characters of a date name the date's column."""
    if period.days > MOST_MONTH_DAYS:
        return [str(year) for year in range(period.since.year, period.until.year + 1)], YEAR_CHARS
    days = [str(period.since + timedelta(days=number)) for number in range(period.days)]
    chars = len(days[0]) if len(days) <= MOST_DAYS else MONTH_CHARS
    return list(dict.fromkeys(day[:chars] for day in days)), chars


def _plot_costs(period: Period, usage: Sequence[UsagePart]) -> Plot:
    names, chars = plot_columns(period)
    values: defaultdict[tuple[str, str], float] = defaultdict(float)
    for part in usage:
        values[part.day[:chars], part.sum.key or NO_NAME] += part.sum.cost_usd or 0.0
    return stacked_plot(names, largest_series(names, values), words.money)


def _plot_tokens(period: Period, days: Sequence[UsageSum]) -> Plot:
    """Plot the input tokens that no cache served, the input tokens from caches, and the output tokens."""
    names, chars = plot_columns(period)
    values: defaultdict[tuple[str, str], float] = defaultdict(float)
    for day in days:
        column = day.key[:chars]
        values[column, "in"] += max(0, day.input_tokens - day.cached_tokens)
        values[column, "in, cached"] += max(0, day.cached_tokens)
        values[column, "out"] += max(0, day.output_tokens)
    return stacked_plot(names, largest_series(names, values), format_amount)


def format_amount(count: float) -> str:
    """Return an amount in few characters, such as 1.5k or 20M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.4g}"


def _export_address(query: UsageFilter, path: str, more: Mapping[str, object]) -> str:
    """Return the address that downloads a CSV file with the page's filters."""
    names = JOB_FILTERS if path.endswith("latency.csv") else FILTERS
    return address(path, {**query.model_dump(mode="json", include=set(names), exclude_none=True), **more})


@audit_router.get("")
def show_audit_log(request: Request, parts: Parts) -> HTMLResponse:
    """List the entries of the audit log, newest first; an error in the filter is shown above the form."""
    filters = read_filters(request, AUDIT_FILTERS)
    moments = {name: moment_with_zone(filters[name]) for name in ("since", "until") if filters[name]}
    query, problem = read_query(AuditQuery, {**filters, **moments, **read_filters(request, ["cursor"])})
    return render(
        request,
        "audit.html",
        filters=filters,
        page=AuditPage(items=(), next=None) if problem else parts.audit.list(query),
        problem=problem,
        first=query.cursor is None,
        csv=address("/api/audit.csv", query.model_dump(mode="json", include=set(AUDIT_FILTERS), exclude_none=True)),
    )
