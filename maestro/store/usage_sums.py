"""Sums of usage, for people who look at a bill."""

from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, case, cast, func, or_, select, type_coerce
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.llm.budgets import Client
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.usage import Period, UsageBy, UsageMark, UsageRow

DATE_CHARS = len("2026-11-20")


def sums(by: UsageBy, period: Period, after: UsageMark | None, limit: int) -> Select[*tuple[Any, ...]]:
    """Return the query for up to ``limit`` sums after the mark, with the columns of ``UsageSum``.

    Days come newest first, anything else by what it cost, the dearest first.
    """
    key = _key(by)
    found = select(key, *_totals()).where(col(UsageRow.at) >= period.begins, col(UsageRow.at) < period.ends)
    if by is UsageBy.AGENT:
        found = found.outerjoin(Agent, col(Agent.id) == col(UsageRow.agent_id))
    if by is UsageBy.CLIENT:
        found = found.outerjoin(Client, col(Client.id) == col(UsageRow.client_id))
    found = found.group_by(key).limit(limit)
    if by is UsageBy.DAY:
        return (found.having(key < after.key) if after is not None else found).order_by(key.desc())
    cost = func.coalesce(_cost(), 0.0)
    if after is not None:
        found = found.having(or_(cost < after.cost_usd, and_(cost == after.cost_usd, key > after.key)))
    return found.order_by(cost.desc(), key)


def _key(by: UsageBy) -> Any:
    match by:
        case UsageBy.DAY:
            return func.substr(type_coerce(col(UsageRow.at), String), 1, DATE_CHARS)
        case UsageBy.AGENT:
            return func.coalesce(col(Agent.slug), "")
        case UsageBy.CLIENT:
            return func.coalesce(col(Client.name), "")
        case UsageBy.ACCOUNT:
            return col(UsageRow.account)
        case UsageBy.MODEL:
            return col(UsageRow.provider) + "/" + col(UsageRow.model)
        case UsageBy.CONVERSATION:
            return func.coalesce(cast(col(UsageRow.conversation_id), String), "")
        case UsageBy.JOB:
            return col(UsageRow.job_id)


def _totals() -> tuple[ColumnElement[Any], ...]:
    state, cost = col(UsageRow.state), col(UsageRow.cost_usd)
    took_tokens = col(UsageRow.input_tokens) + col(UsageRow.output_tokens) > 0
    return (
        func.count(),
        _count(state == CallState.FAILED),
        _count(state == CallState.INTERRUPTED),
        _tokens(UsageRow.input_tokens),
        _tokens(UsageRow.output_tokens),
        _tokens(UsageRow.cached_tokens),
        _cost(),
        _count(and_(cost.is_(None), or_(state == CallState.ANSWERED, took_tokens))),
        func.sum(case((state == CallState.INTERRUPTED, cost))),
    )


def _cost() -> ColumnElement[Any]:
    """Return what is known of the cost, None when nothing is."""
    return func.sum(case((col(UsageRow.state) != CallState.INTERRUPTED, col(UsageRow.cost_usd))))


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def _tokens(column: Any) -> ColumnElement[int]:
    return func.sum(case((col(UsageRow.state) != CallState.INTERRUPTED, col(column)), else_=0))
