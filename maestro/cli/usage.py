"""``maestro usage``: what model calls took and cost, how long answers took, and how far budgets are used."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

import typer

from maestro.bootstrap.rules import daily_budgets
from maestro.cli import usage_texts
from maestro.cli.checked import made
from maestro.cli.commands import Commands
from maestro.cli.opened import opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import TextCursor
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_csv import MOST_LINES, latency_csv, usage_csv
from maestro.domain.llm.usage_latency import LatencyQuery
from maestro.domain.llm.usage_views import LIMIT, MOST, UsageQuery, UsageTable

DAY = ["%Y-%m-%d"]

app = Commands()

Name = Annotated[str | None, typer.Option(metavar="NAME", help="Only what it took.")]
When = Annotated[
    datetime | None, typer.Option(formats=DAY, metavar="DAY", help="The first, as 2026-11-20, UTC; else 30 days.")
]


@app.command("usage")
def show_usage(
    given: Given,
    by: Annotated[UsageBy, typer.Option(help="What to add up by.")] = UsageBy.DAY,
    since: When = None,
    until: Annotated[
        datetime | None, typer.Option(formats=DAY, metavar="DAY", help="The last, as 2026-11-20, UTC; else today.")
    ] = None,
    agent: Name = None,
    client: Name = None,
    account: Name = None,
    model: Name = None,
    purpose: Name = None,
    platform: Name = None,
    latency: Annotated[bool, typer.Option("--latency", help="Show instead how long each step took.")] = False,
    budgets: Annotated[bool, typer.Option("--budgets", help="Show instead how far budgets are used today.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write a table for a spreadsheet, with every line.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many lines at most.")] = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """Show what model calls took and cost: by day, the newest first, or by anything else, the dearest first.

    A cost in US dollars leaves out calls whose price is not known, which are counted beside it, and calls that were cut
    off, whose cost is estimated apart. The last lines are the sum of everything, and that of as many days before. It
    works whether Maestro runs or not.
    """
    _refuse_both(latency, budgets, as_csv and given.as_json)
    days = {"since": since.date() if since else None, "until": until.date() if until else None}
    jobs_of = {"agent": agent, "client": client, "platform": platform}
    calls_of = {"account": account, "model": model, "purpose": purpose}
    if budgets:
        _budgets(given, as_csv)
    elif latency:
        _refuse_calls(calls_of)
        _latency(given, made(LatencyQuery, **days, **jobs_of), as_csv)
    elif as_csv:
        _table(given, made(UsageTable, by=by, **days, **jobs_of, **calls_of))
    else:
        _page(given, made(UsageQuery, by=by, limit=limit, cursor=cursor, **days, **jobs_of, **calls_of))


def _page(given: Given, query: UsageQuery) -> None:
    with opened(given) as at, at.store.view() as tx:
        page = tx.llm.usage.page(query, tx.llm.budgets.today)
    write(page, usage_texts.usage(page, query.by), given.as_json)


def _table(given: Given, table: UsageTable) -> None:
    with opened(given) as at, at.store.view() as tx:
        sums = tx.llm.usage.sums(table.whole(tx.llm.budgets.today), MOST_LINES)
    _write_csv(usage_csv(table.by, sums))


def _latency(given: Given, query: LatencyQuery, as_csv: bool) -> None:
    with opened(given) as at, at.store.view() as tx:
        page = tx.system.latency.page(query, query.period(tx.llm.budgets.today))
    if as_csv:
        _write_csv(latency_csv(page))
    else:
        write(page, usage_texts.latency(page), given.as_json)


def _budgets(given: Given, as_csv: bool) -> None:
    if as_csv:
        raise typer.BadParameter("budgets are no table of days; leave one of --budgets and --csv out")
    with opened(given) as at, at.store.view() as tx:
        page = tx.llm.budgets.used(daily_budgets(at.live.current()))
    write(page, usage_texts.budgets(page), given.as_json)


def _write_csv(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line, nl=False)


def _refuse_both(latency: bool, budgets: bool, two_forms: bool) -> None:
    if latency and budgets:
        raise typer.BadParameter("ask for one of --latency and --budgets at a time")
    if two_forms:
        raise typer.BadParameter("--json and --csv are two forms of the same; leave one out")


def _refuse_calls(names: Mapping[str, str | None]) -> None:
    given = [f"--{name}" for name, value in names.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"{given[0]} says nothing of how long jobs take; choose by --agent, --client, --platform"
        )
