"""What model calls took and cost: one row for each request to an account."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import bindparam, delete, func, select, update
from sqlmodel import col

from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import Payer
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallKey
from maestro.domain.llm.usage import (
    EVERYBODY,
    NOTHING,
    Period,
    UsageBy,
    UsageOf,
    UsagePart,
    UsageRow,
    UsageSum,
    UsageWish,
)
from maestro.domain.llm.usage_views import UsagePage, UsageQuery, usage_page
from maestro.store.prepared import Prepared, row_insert
from maestro.store.repository import Repository
from maestro.store.usage_sums import parts, sums, total

_OF_CALL = (
    "job_id",
    "purpose",
    "number",
    "attempt",
    "provider",
    "model",
    "account",
    "state",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cost_usd",
    "duration_ms",
    "error",
)
_OF_JOB = ("agent_id", "client_id", "conversation_id")


@dataclass(frozen=True, slots=True)
class Charge:
    """What an attempt cost, as far as it is known, and who pays."""

    payer: Payer
    cost_usd: float = 0.0


class UsageLog(Repository):
    """The rows of ``usage_log``."""

    _OF_ATTEMPT = (
        col(UsageRow.job_id) == bindparam("of_job"),
        col(UsageRow.number) == bindparam("its_number"),
        col(UsageRow.attempt) == bindparam("its_attempt"),
        col(UsageRow.purpose) == bindparam("its_purpose"),
    )
    _FORGET = Prepared(delete(UsageRow).where(*_OF_ATTEMPT).returning(col(UsageRow.cost_usd)))

    def note(self, call: LLMCall, payer: Payer) -> Charge:
        """Write what the row of an attempt says, and whom it is charged to; return that and what it cost."""
        of_call = {name: getattr(call, name) for name in _OF_CALL}
        of_job = {name: getattr(payer, name) for name in _OF_JOB}
        self._insert(row_insert(UsageRow), id=None, at=self._now, **of_job, **of_call)
        return Charge(payer, call.cost_usd or 0.0)

    def of_job(self, job_id: str) -> Sequence[UsageRow]:
        """Return the rows of a job in the order of its calls and their attempts."""
        found = select(UsageRow).where(col(UsageRow.job_id) == job_id)
        return self._session.scalars(found.order_by(col(UsageRow.number), col(UsageRow.attempt))).all()

    def add(self, row: UsageRow) -> int:
        """Write a row of a request that was no call for a text, charged to whom the job is charged to; return its id.

        Its attempt is counted here: it is the next of its purpose and number.
        """
        before = select(func.count()).where(
            col(UsageRow.job_id) == row.job_id,
            col(UsageRow.purpose) == row.purpose,
            col(UsageRow.number) == row.number,
        )
        row.attempt, row.at = self._session.execute(before).scalar_one() + 1, self._now
        job = self._session.get_one(Job, row.job_id)
        for name in _OF_JOB:
            setattr(row, name, getattr(job, name))
        self._session.add(row)
        self._session.flush()
        assert row.id is not None
        return row.id

    def end(self, row_id: int, state: CallState, duration_ms: int, error: str) -> None:
        """Write how a request ended that was added before it left; its time is that of its end, as with any other."""
        ended = update(UsageRow).where(col(UsageRow.id) == row_id)
        self._session.execute(ended.values(at=self._now, state=state, duration_ms=duration_ms, error=error))

    def sums(self, wish: UsageWish, limit: int) -> Sequence[UsageSum]:
        """Return up to ``limit`` sums after the mark: days newest first, anything else the dearest first."""
        return [UsageSum(*row) for row in self._session.execute(sums(wish).limit(limit))]

    def total(self, period: Period, whose: UsageOf = EVERYBODY) -> UsageSum:
        """Return everything that is meant as one sum without a key."""
        row = self._session.execute(total(period, whose)).first()
        return UsageSum(*row) if row is not None else NOTHING

    def parts(self, by: UsageBy, period: Period, whose: UsageOf = EVERYBODY) -> Sequence[UsagePart]:
        """Return what each took on each day on which anything was taken, oldest first."""
        rows = self._session.execute(parts(by, period, whose))
        return [UsagePart(day, UsageSum(*columns)) for day, *columns in rows]

    def page(self, query: UsageQuery, today: date) -> UsagePage:
        """Return what operators asked for, with the sum of everything meant, and that of as many days before."""
        wish = query.wish(today)
        found = self.sums(wish, query.limit + 1)
        totals = self.total(wish.period, wish.whose), self.total(wish.period.before, wish.whose)
        return usage_page(found, query.limit, wish.period, totals)

    def forget(self, key: CallKey, attempt: int) -> float:
        """Remove the row of an attempt that ended otherwise than it seemed; return what it said the attempt cost."""
        return sum(cost or 0.0 for (cost,) in self._returned(self._FORGET, **_values(key, attempt)))


def _values(key: CallKey, attempt: int) -> dict[str, object]:
    return {"of_job": key.job_id, "its_purpose": key.purpose, "its_number": key.number, "its_attempt": attempt}
