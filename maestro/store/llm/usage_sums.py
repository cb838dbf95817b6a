"""Statements for sums of usage.

Most statements read the daily sums, which triggers of the database maintain. Sums by conversation or job read the usage
rows, because daily sums of so many conversations and jobs would be too large.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, case, cast, func, literal_column, or_, select, type_coerce
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import Client
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.usage import Period, UsageBy, UsageDay, UsageRequest, UsageRow, UsageScope

DATE_CHARS = len("2026-11-20")
FINE = frozenset({UsageBy.CONVERSATION, UsageBy.JOB})
"""The keys for which the database has no daily sums."""
_COLUMNS = {UsageBy.AGENT: ("agent_id",), UsageBy.CLIENT: ("client_id",), UsageBy.MODEL: ("provider", "model")}
"""The columns of each key whose name is not that of a single column."""

Query = Select[*tuple[Any, ...]]


def select_sums(request: UsageRequest) -> Query:
    """Return the query for usage sums after a cursor, with the columns of ``UsageSum``.

    Days are sorted newest first, other keys by cost, highest first.
    """
    by, after = request.by, request.after
    key, totals, cost = (
        (sum_key(by), usage_row_total_columns(), usage_row_cost_column())
        if by in FINE
        else (sum_key(by), total_columns(), cost_column())
    )
    query = filter_usage(select(key, *totals), by, request.period, request.scope).group_by(key)
    if by is UsageBy.DAY:
        return (query.having(key < after.key) if after is not None else query).order_by(key.desc())
    known = func.coalesce(cost, 0.0)
    if after is not None:
        query = query.having(or_(known < after.cost_usd, and_(known == after.cost_usd, key > after.key)))
    return query.order_by(known.desc(), key)


def select_total(period: Period, scope: UsageScope) -> Query:
    """Return the query for the sum of all matching usage, with the columns of ``UsageSum``; no row without usage."""
    return filter_usage(select(type_coerce("", String), *total_columns()), UsageBy.DAY, period, scope).having(
        func.count() > 0
    )


def select_parts(by: UsageBy, period: Period, scope: UsageScope) -> Query:
    """Return the query for usage by day and key: the day, then the columns of ``UsageSum``.

    A day may have several rows with an empty key: each deleted agent has its own row, and none has a name.
    """
    # SQLite can use the index of days when it sorts by columns of the table instead of by the computed key.
    columns = [getattr(UsageDay, name) for name in ("day", *_COLUMNS.get(by, (by,)))]
    query = filter_usage(select(col(UsageDay.day), func.max(sum_key(by)), *total_columns()), by, period, scope)
    return query.group_by(*columns).order_by(*columns)


def filter_usage(found: Query, by: UsageBy, period: Period, scope: UsageScope) -> Query:
    table: Any = UsageRow if by in FINE else UsageDay
    if by is UsageBy.AGENT:
        found = found.outerjoin(Agent, col(Agent.id) == table.agent_id)
    if by is UsageBy.CLIENT:
        found = found.outerjoin(Client, col(Client.id) == table.client_id)
    if table is UsageRow:
        when = (col(UsageRow.at) >= period.start_time, col(UsageRow.at) < period.end_time)
    else:
        when = (col(UsageDay.day) >= str(period.since), col(UsageDay.day) <= str(period.until))
    return found.where(*when, *_scope_conditions(table, scope))


def _scope_conditions(table: Any, scope: UsageScope) -> Iterator[ColumnElement[bool]]:
    if scope.agent is not None:
        yield table.agent_id == select(col(Agent.id)).where(col(Agent.slug) == scope.agent).scalar_subquery()
    if scope.client is not None:
        named = or_(col(Client.name) == scope.client, col(Client.slug) == scope.client)
        yield table.client_id.in_(select(col(Client.id)).where(named))
    if scope.model is not None:
        yield or_(table.provider + "/" + table.model == scope.model, table.model == scope.model)
    if scope.platform is not None and table is UsageRow:
        of_job = select(col(Job.platform)).where(col(Job.id) == table.job_id).scalar_subquery()
        yield of_job == scope.platform
    same = {"account": scope.account, "purpose": scope.purpose}
    if table is UsageDay:
        same["platform"] = scope.platform
    yield from (getattr(table, name) == value for name, value in same.items() if value is not None)


def sum_key(by: UsageBy) -> Any:
    match by:
        case UsageBy.AGENT:
            return func.coalesce(col(Agent.slug), empty_text())
        case UsageBy.CLIENT:
            return func.coalesce(col(Client.name), empty_text())
        case UsageBy.MODEL:
            return col(UsageDay.provider) + "/" + col(UsageDay.model)
        case UsageBy.JOB:
            return col(UsageRow.job_id)
        case UsageBy.CONVERSATION:
            return func.coalesce(cast(col(UsageRow.conversation_id), String), empty_text())
        case _:
            return getattr(UsageDay, by)


def empty_text() -> ColumnElement[str]:
    """Return the empty text as a constant: PostgreSQL takes two parameters with the same value for different keys."""
    return literal_column("''", String)


def total_columns() -> tuple[ColumnElement[Any], ...]:
    counted = ("calls", "failures", "interrupted", "input_tokens", "output_tokens", "cached_tokens")
    return (
        *(func.sum(getattr(UsageDay, name)) for name in counted),
        cost_column(),
        func.sum(UsageDay.unknown_cost),
        case((func.sum(UsageDay.estimated) > 0, func.sum(UsageDay.interrupted_cost_usd))),
    )


def cost_column() -> ColumnElement[Any]:
    """Return the SQL expression for the sum of known costs; null if no cost is known."""
    return case((func.sum(UsageDay.known) > 0, func.sum(UsageDay.cost_usd)))


def usage_row_total_columns() -> tuple[ColumnElement[Any], ...]:
    state, cost = col(UsageRow.state), col(UsageRow.cost_usd)
    token_columns = (col(UsageRow.input_tokens), col(UsageRow.output_tokens), col(UsageRow.cached_tokens))
    took_tokens = col(UsageRow.input_tokens) + col(UsageRow.output_tokens) > 0
    return (
        func.count(),
        _count_where(state == CallState.FAILED),
        _count_where(state == CallState.INTERRUPTED),
        *(func.sum(case((state != CallState.INTERRUPTED, tokens), else_=0)) for tokens in token_columns),
        usage_row_cost_column(),
        _count_where(and_(cost.is_(None), or_(state == CallState.ANSWERED, took_tokens))),
        func.sum(case((state == CallState.INTERRUPTED, cost))),
    )


def usage_row_cost_column() -> ColumnElement[Any]:
    return func.sum(case((col(UsageRow.state) != CallState.INTERRUPTED, col(UsageRow.cost_usd))))


def _count_where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))
