"""``maestro usage``: what model calls took and cost, added up."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from maestro.cli.checked import made
from maestro.cli.commands import Commands
from maestro.cli.opened import opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import TextCursor, more
from maestro.cli.table import lines
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_views import LIMIT, MOST, UsageItem, UsagePage, UsageQuery, usage_page

NOTHING = "No model was called in this time."
NOBODY = "-"
LEAST = 0.0001
"""The smallest part of a US dollar that is shown."""
COLUMNS = ("calls", "failed", "in", "out", "cached", "cost", "of unknown cost", "cut off", "estimated")

DAY = ["%Y-%m-%d"]

app = Commands()


@app.command("usage")
def show_usage(
    given: Given,
    by: Annotated[UsageBy, typer.Option(help="What to add up by.")] = UsageBy.DAY,
    since: Annotated[
        datetime | None, typer.Option(formats=DAY, metavar="DAY", help="The first, as 2026-11-20, UTC; else 30 days.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=DAY, metavar="DAY", help="The last, as 2026-11-20, UTC; else today.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many lines at most.")] = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """Show what model calls took and cost: by day, the newest first, or by anything else, the dearest first.

    A cost in US dollars leaves out calls whose price is not known, which are counted beside it, and calls that were cut
    off, whose cost is estimated apart. It works whether Maestro runs or not.
    """
    days = {"since": since.date() if since else None, "until": until.date() if until else None}
    query = made(UsageQuery, by=by, limit=limit, cursor=cursor, **days)
    with opened(given) as at, at.store.view() as tx:
        period = query.period(tx.budgets.today)
        page = usage_page(tx.usage.sums(query.by, period, query.after, query.limit + 1), query.limit)
    write(page, _listing(page, by), given.as_json)


def _listing(page: UsagePage, by: UsageBy) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    yield from lines((by, *COLUMNS), list(map(_line, page.items)))
    yield from more(page.next)


def _line(item: UsageItem) -> tuple[str, ...]:
    counts = (item.calls, item.failures, item.input_tokens, item.output_tokens, item.cached_tokens)
    cost, estimated = _cost(item.cost_usd), _cost(item.interrupted_cost_usd)
    return item.key or NOBODY, *map(str, counts), cost, str(item.unknown_cost), str(item.interrupted), estimated


def _cost(usd: float | None) -> str:
    """Write US dollars; what is next to nothing must not look like nothing."""
    if usd is None:
        return NOBODY
    return "<$0.0001" if 0 < usd < LEAST else f"${usd:.4f}"
