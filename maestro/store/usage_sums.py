"""Sums of usage, for people who look at a bill."""

from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, case, cast, func, or_, select, type_coerce
from sqlmodel import col

from maestro.domain.agents import Agent
from maestro.domain.budgets import Client
from maestro.domain.calls import CallState
from maestro.domain.usage import Period, UsageBy, UsageMark, UsageRow

DATE_CHARS = len("2026-11-20")

_OVER = col(UsageRow.state) == CallState.INTERRUPTED
_TOOK_TOKENS = col(UsageRow.input_tokens) + col(UsageRow.output_tokens) > 0
_UNKNOWN = and_(col(UsageRow.cost_usd).is_(None), or_(col(UsageRow.state) == CallState.ANSWERED, _TOOK_TOKENS))

_KEYS: dict[UsageBy, Any] = {
    UsageBy.DAY: func.substr(type_coerce(col(UsageRow.at), String), 1, DATE_CHARS),
    UsageBy.AGENT: func.coalesce(col(Agent.slug), ""),
    UsageBy.CLIENT: func.coalesce(col(Client.name), ""),
    UsageBy.ACCOUNT: col(UsageRow.account),
    UsageBy.MODEL: col(UsageRow.provider) + "/" + col(UsageRow.model),
    UsageBy.CONVERSATION: func.coalesce(cast(col(UsageRow.conversation_id), String), ""),
    UsageBy.JOB: col(UsageRow.job_id),
}


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def _tokens(column: Any) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((~_OVER, col(column)), else_=0)), 0)


_COST: ColumnElement[float] = func.sum(case((~_OVER, col(UsageRow.cost_usd))))
_SUMS = (
    func.count(),
    _count(col(UsageRow.state) == CallState.FAILED),
    _count(_OVER),
    _tokens(UsageRow.input_tokens),
    _tokens(UsageRow.output_tokens),
    _tokens(UsageRow.cached_tokens),
    _COST,
    _count(_UNKNOWN),
    func.sum(case((_OVER, col(UsageRow.cost_usd)))),
)


def sums(by: UsageBy, period: Period, after: UsageMark | None, limit: int) -> Select[*tuple[Any, ...]]:
    """Return the query for up to ``limit`` sums after the mark, as ``UsageSum`` has them.

    Days come newest first, anything else by what it cost, the dearest first.
    """
    key = _KEYS[by]
    found = select(key, *_SUMS).where(col(UsageRow.at) >= period.begins, col(UsageRow.at) < period.ends)
    if by is UsageBy.AGENT:
        found = found.outerjoin(Agent, col(Agent.id) == col(UsageRow.agent_id))
    if by is UsageBy.CLIENT:
        found = found.outerjoin(Client, col(Client.id) == col(UsageRow.client_id))
    found = found.group_by(key).limit(limit)
    if by is UsageBy.DAY:
        return (found.having(key < after.key) if after is not None else found).order_by(key.desc())
    cost = func.coalesce(_COST, 0.0)
    if after is not None:
        found = found.having(or_(cost < after.cost_usd, and_(cost == after.cost_usd, key > after.key)))
    return found.order_by(cost.desc(), key)
