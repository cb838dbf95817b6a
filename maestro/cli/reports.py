"""``maestro usage`` and ``audit``: the cost and latency of model calls, budgets, and the changes by operators."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands, Fields, InputOptions, QueryOptions, TextCursor, build_input
from maestro.cli.framework.operations import OperationCommands, open_context
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Columns, Result, align_rows, list_lines, page_hint, write_output
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_views import LIMIT, MOST, LatencyQuery, UsageFilter, UsagePage, UsageQuery
from maestro.domain.people.views import AuditQuery
from maestro.operations.reports import AuditOperations, UsageOperations

NO_BUDGETS = "No budget has a limit. Set one with: maestro settings set budgets.dayUsd 50"
NO_JOBS = "No job was completed in this period."


SUM_TITLES = (
    "calls failed=failures in=input_tokens out=output_tokens cached=cached_tokens cost=cost_usd:cost "
    "of_unknown_cost=unknown_cost cut_off=interrupted estimated=interrupted_cost_usd:cost"
)
STAGE_COLUMNS = Columns("stage times=count p50=p50_ms:duration p95=p95_ms:duration p99=p99_ms:duration")
BUDGET_COLUMNS = Columns(
    "of limit=limit_usd:cost used=used_usd:cost reserved=reserved_usd:cost share:.0% state",
    {"of": lambda budget: f"{budget.scope} {budget.name}" if budget.name else "all"},
)


def _read_day(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day, such as 2026-11-20") from None


FILTERS = InputOptions(UsageFilter, spelling={"since": "--since DAY", "until": "--until DAY"}, read_time=_read_day)

app = Commands()


@app.command("usage")
def show_usage(
    given: Given,
    filters: Annotated[Fields, FILTERS],
    by: Annotated[UsageBy, "The field by which usage is summed."] = UsageBy.DAY,
    latency: Annotated[bool, "Show instead how long each step took."] = False,
    budgets: Annotated[bool, "Show instead how much of each budget is used today."] = False,
    as_csv: Annotated[bool, "--csv: Write every line as CSV, for a spreadsheet."] = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many lines at most.")] = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """Show the usage and cost of model calls: by day, newest first, or by another field, highest cost first.

    Costs are in US dollars. Calls of unknown price are counted in a column beside the cost. Calls that were cut off
    have their own column with an estimated cost. The last lines are the total, and the total of as many days before.
    The command works whether Maestro runs or not.
    """
    _check_usage(filters, latency, budgets, as_csv, given.as_json)
    query = build_input(UsageQuery, by=by, limit=limit, cursor=cursor, **filters)
    with open_context(given) as at:
        usage = UsageOperations(at.store, lambda: at.live.current().budgets)
        if as_csv:
            lines = usage.export_latency(build_input(LatencyQuery, **filters)) if latency else usage.export(query)
            typer.echo("".join(lines), nl=False)
        elif budgets:
            used = usage.budgets()
            note = f"Budgets start again at {used.starts_anew_at:%Y-%m-%d %H:%M} UTC."
            write_output(used, list_lines(used, BUDGET_COLUMNS, NO_BUDGETS, note), given.as_json)
        elif latency:
            times = usage.latency(build_input(LatencyQuery, **filters))
            note = f"Of {times.jobs} completed jobs from {times.since} to {times.until}: the newest {times.per_day} of "
            write_output(times, list_lines(times, STAGE_COLUMNS, NO_JOBS, f"{note}each day."), given.as_json)
        else:
            page = usage.show(query)
            write_output(page, _usage_lines(page, by), given.as_json)


def _usage_lines(page: UsagePage, by: UsageBy) -> Iterator[str]:
    """Yield the lines of sums, and under them the totals of this period and of the period before."""
    if not page.items:
        yield "No model was called in this period."
        return
    days = (page.until - page.since).days + 1
    totals = [
        page.totals.model_copy(update={"key": "all"}),
        page.before.model_copy(update={"key": f"{days} days before"}),
    ]
    yield from align_rows(Columns(f"{by}=key {SUM_TITLES}").rows([*page.items, *totals]))
    yield from page_hint(page.next)


def _check_usage(filters: Fields, latency: bool, budgets: bool, as_csv: bool, as_json: bool) -> None:
    """Raise ``typer.BadParameter`` for options that exclude each other."""
    if latency and budgets:
        raise typer.BadParameter("--latency and --budgets exclude each other; leave one out")
    if as_csv and as_json:
        raise typer.BadParameter("--json and --csv exclude each other; leave one out")
    if budgets and as_csv:
        raise typer.BadParameter("budgets have no CSV form; leave out --budgets or --csv")
    of_calls = [f"--{name}" for name in ("account", "model", "purpose") if name in filters]
    if latency and of_calls:
        raise typer.BadParameter(f"{of_calls[0]} does not filter latency; filter by --agent, --client or --platform")


AUDIT_COLUMNS = Columns(
    "at who=actor did=action to=subject detail from=origin", {"at": lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}"}
)


def _read_utc(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20 or 2026-11-20T08:30") from None


AUDIT_QUERY = QueryOptions(AuditQuery, spelling={"q": "--search"}, read_time=_read_utc)

audit_app = OperationCommands(None, lambda at: AuditOperations(at.store))


@audit_app.operation("audit")
def show_audit(audit: AuditOperations, query: Annotated[AuditQuery, AUDIT_QUERY]) -> Result:
    """Show the audit log: the changes by operators, newest first.

    Write a time in UTC, as 2026-11-20 or 2026-11-20T08:30. The command works whether Maestro runs or not.
    """
    page = audit.list(query)
    return page, list_lines(page, AUDIT_COLUMNS, "No entry matches.")
