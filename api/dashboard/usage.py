"""The page of usage and cost: what calls took, how long answers took, and how far budgets are used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard import words
from api.dashboard.pages import render
from api.dashboard.plots import Plot, parts_of, stacked
from api.errors import status_of
from api.guards import PasswordRoute
from api.parts import ApiParts
from api.routes.surroundings import parts_of as surroundings
from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.budgets import BudgetScope
from maestro.domain.llm.usage import Period, UsageBy, UsagePart, UsageSum, added, by_day, by_key
from maestro.domain.llm.usage_budgets import BudgetPage, BudgetView
from maestro.domain.llm.usage_latency import LatencyPage, LatencyQuery
from maestro.domain.llm.usage_views import UsageFilter, UsagePage, usage_page
from maestro.domain.reading import read

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
class Shown:
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
        return _page(request, typed, UsageBy.AGENT, UsageFilter(), str(error))
    return _page(request, typed, by, wanted)


def _page(
    request: Request, typed: Mapping[str, str], by: UsageBy, wanted: UsageFilter, problem: str = ""
) -> HTMLResponse:
    parts = surroundings(request)
    return render(
        request,
        "usage.html",
        status_of(InvalidEdit("")) if problem else HTTPStatus.OK,
        title=TITLE,
        typed=typed,
        by=by,
        stacks=STACKS,
        shown=_shown(parts, by, wanted),
        problem=problem,
        periods=_periods(parts),
        change=change,
        filtered=any(typed[name] for name in FILTERS if name not in ("since", "until")),
        export=partial(_export, wanted),
        fullest=fullest,
        nobody=NOBODY,
        most=SHOWN,
    )


def _shown(parts: ApiParts, by: UsageBy, wanted: UsageFilter) -> Shown:
    given = wanted.model_dump(exclude_none=True)
    with parts.store.view() as tx:
        period = wanted.period(tx.budgets.today)
        every = tx.usage.parts(by, period, wanted.whose)
        days = by_day(every)
        totals = added("", days), tx.usage.total(period.before, wanted.whose)
        jobs_of = LatencyQuery(**{name: value for name, value in given.items() if name in JOBS})
        return Shown(
            days=usage_page(days[: SHOWN + 1], SHOWN, period, totals),
            others=by_key(every)[: SHOWN + 1],
            cost=_costs(period, every),
            tokens=_tokens(period, days),
            latency=tx.latency.page(jobs_of, period),
            budgets=tx.budgets.used(parts.budgets()),
        )


def fullest(budgets: BudgetPage) -> Sequence[BudgetView]:
    """Return the budget of everybody, and of the others those of which the most is used."""
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
    return stacked(names, parts_of(names, values), words.money)


def _tokens(period: Period, days: Sequence[UsageSum]) -> Plot:
    """Draw what was sent anew, what was found in a cache, and what was answered."""
    names, chars = columns_of(period)
    values: dict[tuple[str, str], float] = {}
    for one in days:
        taken = {"in": one.input_tokens - one.cached_tokens, "in, cached": one.cached_tokens, "out": one.output_tokens}
        for label, tokens in taken.items():
            place = one.key[:chars], label
            values[place] = values.get(place, 0.0) + max(0, tokens)
    return stacked(names, parts_of(names, values), amount)


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
