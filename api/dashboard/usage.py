"""The page of usage and cost, with its plots."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard import words
from api.dashboard.pages import render
from api.guards import PasswordRoute
from api.parts import ApiParts
from api.routes.dependencies import parts_of
from maestro.domain.errors import InvalidEdit
from maestro.domain.fields import read
from maestro.domain.llm.budgets import BudgetPage, BudgetScope, BudgetView
from maestro.domain.llm.usage import Period, UsageBy, UsagePart, UsageSum, added, by_day, by_key
from maestro.domain.llm.usage_views import LatencyPage, LatencyQuery, UsageFilter, UsagePage, usage_page

WIDTH, HEIGHT = 520, 220
LEFT, RIGHT, TOP, BOTTOM = 72, 8, 10, 26
LABELS = 5
"""Days that are named under a plot, about."""
STEPS = 4
"""Lines that are drawn across a plot, about."""
COLOURS = 6
"""Colours that can be told apart; what is beyond is one part, the last."""
OTHERS = "others"
DAY, YEAR = len("2026-11-20"), len("2026-")
"""Characters of a day, and of its year, which is left out where there is little room."""
EDGE = 22
"""How far from the edge the middle of a label must stay, to be read whole."""
TOLD_APART = 48
"""Columns that say what is in them; of more, each says what all of it comes to, or the page would be too heavy."""
GAP = 0.25
"""The share of a column that is left free beside it."""

Say = Callable[[float], str]

PAGE = "/usage"
TITLE = "Usage and cost – Maestro"
STACKS = (
    UsageBy.AGENT,
    UsageBy.MODEL,
    UsageBy.ACCOUNT,
    UsageBy.CLIENT,
    UsageBy.PLATFORM,
    UsageBy.PURPOSE,
)
"""What the plot of costs tells apart, and the second table."""
FILTERS = ("since", "until", *(name for name in UsageFilter.model_fields if name not in ("since", "until")))
JOBS = ("since", "until", "agent", "client", "platform")
"""Filters that say something of jobs too."""
SHOWN = 31
"""Lines of a table; the file for spreadsheets has all of them."""
MOST_DAYS = 120
"""Columns of a plot; of more days a column is a month."""
MOST_MONTHS = 3_650
"""Days whose months are drawn; of more a column is a year."""
MONTH_CHARS, YEAR_CHARS = len("2026-11"), len("2026")
PERIODS = (7, 30, 90)
"""Days that are offered."""
NOBODY = "nobody"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@dataclass(frozen=True)
class PlotSeries:
    """What is stacked in one colour, from 1 on: its value in each column."""

    colour: int
    label: str
    values: tuple[float, ...]

    @property
    def total(self) -> float:
        """What all of it comes to."""
        return sum(self.values)


@dataclass(frozen=True)
class PlotShape:
    """A part as the path of its pieces."""

    colour: int
    path: str


@dataclass(frozen=True)
class PlotColumn:
    """Where a column is pointed at, and what it then says."""

    x: float
    width: float
    words: str


@dataclass(frozen=True)
class PlotLabel:
    """Words beside a plot, and where."""

    at: float
    words: str


@dataclass(frozen=True)
class Plot:
    """A drawing; ``legend`` are its parts."""

    shapes: tuple[PlotShape, ...]
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


def series_of(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> tuple[PlotSeries, ...]:
    """Return the largest parts in their colours, and the others as one; ``values`` are by name of column and of part.

    A part that is nothing everywhere is left out.
    """
    totals: dict[str, float] = {}
    for (_, label), value in values.items():
        totals[label] = totals.get(label, 0.0) + value
    ranked = sorted((label for label, total in totals.items() if total > 0), key=lambda one: (-totals[one], one))
    own = ranked if len(ranked) <= COLOURS else ranked[: COLOURS - 1]
    rest = ranked[len(own) :]
    found = [PlotSeries(colour, one, _values(names, values, (one,))) for colour, one in enumerate(own, 1)]
    return tuple(found) if not rest else (*found, PlotSeries(COLOURS, OTHERS, _values(names, values, rest)))


def stacked(names: Sequence[str], parts: Sequence[PlotSeries], say: Say) -> Plot:
    """Draw parts as stacked columns, one for each name; ``say`` writes a value for people."""
    scale = ticks(max((sum(column) for column in zip(*(part.values for part in parts), strict=True)), default=0.0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    floors = [0.0] * len(names)
    shapes = []
    for part in parts:
        shapes.append(PlotShape(part.colour, _path(part.values, floors, scale[-1], step)))
        floors = [floor + value for floor, value in zip(floors, part.values, strict=True)]
    columns = (
        PlotColumn(_round(LEFT + place * step), _round(step), _words(name, place, parts, say))
        for place, name in enumerate(names)
    )
    return Plot(
        shapes=tuple(shapes),
        columns=tuple(columns),
        across=tuple(PlotLabel(_round(_height(value, scale[-1])), say(value)) for value in scale),
        below=tuple(_below(names, step)),
        legend=tuple(parts),
    )


def ticks(most: float) -> tuple[float, ...]:
    """Return round values from 0 up to one that is not below ``most``, for the lines across."""
    if most <= 0:
        return (0.0, 1.0)
    rough = most / STEPS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * round_one for round_one in (1, 2, 2.5, 5, 10) if unit * round_one >= rough * (1 - 1e-9))
    count = math.ceil(most / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(count + 1))


def _values(names: Sequence[str], values: Mapping[tuple[str, str], float], labels: Sequence[str]) -> tuple[float, ...]:
    return tuple(sum(values.get((name, label), 0.0) for label in labels) for name in names)


def _path(values: Sequence[float], floors: Sequence[float], most: float, step: float) -> str:
    """Return the pieces of one part as a path, each on top of what is below it."""
    width, pieces = _round(step * (1 - GAP)), []
    for place, (value, floor) in enumerate(zip(values, floors, strict=True)):
        if value > 0:
            low, high = _height(floor, most), _height(floor + value, most)
            left = _round(LEFT + place * step + step * GAP / 2)
            pieces.append(f"M{left:g} {_round(low):g}v{_round(high - low):g}h{width:g}v{_round(low - high):g}z")
    return "".join(pieces)


def _height(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most


def _below(names: Sequence[str], step: float) -> list[PlotLabel]:
    every = max(1, math.ceil(len(names) / LABELS))
    return [
        PlotLabel(
            _round(min(LEFT + (place + 0.5) * step, WIDTH - RIGHT - EDGE)), name[YEAR:] if len(name) == DAY else name
        )
        for place, name in enumerate(names)
        if (len(names) - 1 - place) % every == 0
    ]


def _words(name: str, place: int, parts: Sequence[PlotSeries], say: Say) -> str:
    if parts and len(parts[0].values) > TOLD_APART:
        return f"{name}: {say(sum(part.values[place] for part in parts))}"
    taken = [f"{part.label} {say(part.values[place])}" for part in parts if part.values[place] > 0]
    return f"{name}: {', '.join(taken) or 'nothing'}"


def _round(number: float) -> float:
    return round(number, 1)


@dataclass(frozen=True)
class UsagePageContent:
    """What the page tells of a period."""

    days: UsagePage
    others: Sequence[UsageSum]
    cost: Plot
    tokens: Plot
    latency: LatencyPage
    budgets: BudgetPage


@router.get("")
def show(request: Request) -> Response:
    """Show what was used; a filter that cannot be is said above the form."""
    given = {name: text.strip() for name, text in request.query_params.items() if text.strip()}
    typed = {name: given.get(name, "") for name in (*FILTERS, "by")}
    try:
        wanted = read(UsageFilter, {name: text for name, text in given.items() if name in FILTERS})
        by = _stack(given.get("by", UsageBy.AGENT))
    except InvalidEdit as error:
        return _page(request, typed, UsageBy.AGENT, UsageFilter(), error)
    return _page(request, typed, by, wanted)


def _page(
    request: Request, typed: Mapping[str, str], by: UsageBy, wanted: UsageFilter, problem: InvalidEdit | None = None
) -> HTMLResponse:
    parts = parts_of(request)
    return render(
        request,
        "usage.html",
        title=TITLE,
        typed=typed,
        by=by,
        stacks=STACKS,
        shown=_content(parts, by, wanted),
        problem=problem,
        periods=_periods(parts),
        change=change,
        filtered=any(typed[name] for name in FILTERS if name not in ("since", "until")),
        export=partial(_export, wanted),
        fullest=fullest,
        nobody=NOBODY,
        most=SHOWN,
    )


def _content(parts: ApiParts, by: UsageBy, wanted: UsageFilter) -> UsagePageContent:
    given = wanted.model_dump(exclude_none=True)
    with parts.store.view() as tx:
        period = wanted.period(tx.llm.budgets.today)
        every = tx.llm.usage.parts(by, period, wanted.scope)
        days = by_day(every)
        totals = added("", days), tx.llm.usage.total(period.before, wanted.scope)
        jobs_of = LatencyQuery(**{name: value for name, value in given.items() if name in JOBS})
        return UsagePageContent(
            days=usage_page(days[: SHOWN + 1], SHOWN, period, totals),
            others=by_key(every)[: SHOWN + 1],
            cost=_costs(period, every),
            tokens=_tokens(period, days),
            latency=tx.system.latency.page(jobs_of, period),
            budgets=tx.llm.budgets.used(parts.budgets()),
        )


def fullest(budgets: BudgetPage) -> Sequence[BudgetView]:
    """Return the budget of the whole day, and of the others the most used ones."""
    return sorted(budgets.items, key=lambda one: (one.scope is not BudgetScope.DAY, -one.share))[:SHOWN]


def change(now: float, before: float) -> str:
    """Say how much more or less something is than in the days before."""
    if not before:
        return "nothing before" if now else "as before"
    share = now / before - 1
    if abs(share) < 0.005:
        return "as before"
    return f"{abs(share):.0%} {'more' if share > 0 else 'less'}"


def columns_of(period: Period) -> tuple[Sequence[str], int]:
    """Return the names of the columns of a plot, and how many characters of a day are the name of its column."""
    if period.days > MOST_MONTHS:
        return [str(year) for year in range(period.since.year, period.until.year + 1)], YEAR_CHARS
    days = [str(period.since + timedelta(days=number)) for number in range(period.days)]
    chars = len(days[0]) if len(days) <= MOST_DAYS else MONTH_CHARS
    return list(dict.fromkeys(day[:chars] for day in days)), chars


def _costs(period: Period, every: Sequence[UsagePart]) -> Plot:
    names, chars = columns_of(period)
    values: dict[tuple[str, str], float] = {}
    for one in every:
        place = one.day[:chars], one.sum.key or NOBODY
        values[place] = values.get(place, 0.0) + (one.sum.cost_usd or 0.0)
    return stacked(names, series_of(names, values), words.money)


def _tokens(period: Period, days: Sequence[UsageSum]) -> Plot:
    """Draw what was sent anew, what was found in a cache, and what was answered."""
    names, chars = columns_of(period)
    values: dict[tuple[str, str], float] = {}
    for one in days:
        taken = {"in": one.input_tokens - one.cached_tokens, "in, cached": one.cached_tokens, "out": one.output_tokens}
        for label, tokens in taken.items():
            place = one.key[:chars], label
            values[place] = values.get(place, 0.0) + max(0, tokens)
    return stacked(names, series_of(names, values), amount)


def amount(count: float) -> str:
    """Say an amount in few characters: 1.5k, 20M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.4g}"


def _stack(text: str) -> UsageBy:
    if text not in STACKS:
        raise InvalidEdit(f"by: expected one of {', '.join(STACKS)}")
    return UsageBy(text)


def _periods(parts: ApiParts) -> Sequence[tuple[int, date]]:
    today = parts.clock().date()
    return [(days, today - timedelta(days=days - 1)) for days in PERIODS]


def _export(wanted: UsageFilter, path: str, **more: object) -> str:
    """Return the address of a file with the filters of the page."""
    names = JOBS if path.endswith("latency.csv") else FILTERS
    given = wanted.model_dump(mode="json", include=set(names), exclude_none=True)
    query = {**given, **{name: str(value) for name, value in more.items()}}
    return path + (f"?{urlencode(query)}" if query else "")
