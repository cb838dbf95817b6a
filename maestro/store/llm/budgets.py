"""Queries for usage rows of requests to models, and for budgets (reserved before a request, settled after it)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import bindparam, case, delete, func, select, update
from sqlmodel import col

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import (
    CONVERSATIONS,
    DUST,
    BudgetLimit,
    BudgetPage,
    BudgetScope,
    Client,
    ClientView,
    Payer,
    Reservation,
    Scope,
    Spender,
    Spending,
    SpendingLevel,
    budget_page,
    client_view,
    exceeded_limit,
    utc_day,
)
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallKey
from maestro.domain.llm.usage import (
    EVERY_SCOPE,
    NOTHING,
    Period,
    UsageBy,
    UsagePart,
    UsageRequest,
    UsageRow,
    UsageScope,
    UsageSum,
)
from maestro.domain.llm.usage_views import UsagePage, UsageQuery, usage_page
from maestro.domain.settings.llm import BudgetSettings
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import PreparedStatement, insert, row_insert
from maestro.store.jobs.related import ModelCallers
from maestro.store.llm.usage_sums import select_parts, select_sums, select_total

_OF_CALL = tuple(name for name in UsageRow.model_fields if name in LLMCall.model_fields and name != "id")
"""The columns that a usage row copies from the row of its model call."""
_OF_JOB = ("agent_id", "client_id", "conversation_id")
"""The columns that a usage row copies from its payer."""

Amounts: TypeAlias = Mapping[tuple[date, Scope], tuple[float, float]]
"""US dollars to add to the spent and to the reserved amount of a scope on a day."""


def _levels_by_scope(rows: Iterable[Sequence[Any]]) -> dict[Scope, SpendingLevel]:
    return {(scope, subject): SpendingLevel(spent, reserved) for scope, subject, spent, reserved in rows}


class CallCharge(NamedTuple):
    """The known cost of an attempt at a model call, and the payer of the call."""

    payer: Payer
    cost_usd: float = 0.0


class UsageLog(Repository):
    """Queries for usage rows; each row is for one attempt at a request to a model."""

    _OF_ATTEMPT = (
        col(UsageRow.job_id) == bindparam("of_job"),
        col(UsageRow.number) == bindparam("its_number"),
        col(UsageRow.attempt) == bindparam("its_attempt"),
        col(UsageRow.purpose) == bindparam("its_purpose"),
    )
    _FORGET = PreparedStatement(delete(UsageRow).where(*_OF_ATTEMPT).returning(col(UsageRow.cost_usd)))

    def add_attempt(self, call: LLMCall, payer: Payer) -> CallCharge:
        """Store the usage row of an attempt at a model call, charged to a payer; return the charge."""
        values = {name: getattr(call, name) for name in _OF_CALL} | {name: getattr(payer, name) for name in _OF_JOB}
        # The statistics of a day have a row for all calls with these values, which the database adds to.
        row = tuple(str(values[name]) for name in ("agent_id", "client_id", "provider", "model", "account", "purpose"))
        self._write_shared(row_insert(UsageRow), row, id=None, at=self._now, **values)
        return CallCharge(payer, call.cost_usd or 0.0)

    def list_usage_of_job(self, job_id: str) -> Sequence[UsageRow]:
        """Return the usage rows of a job, by number of the call and number of the attempt."""
        of_job = select(UsageRow).where(col(UsageRow.job_id) == job_id)
        return self._session.scalars(of_job.order_by(col(UsageRow.number), col(UsageRow.attempt))).all()

    def add_request(self, row: UsageRow) -> int:
        """Store the usage row of a request that is no model call, charged to the job's payer; return the row's id.

        The row gets the next attempt number for its purpose and call number.
        """
        before = select(func.count()).where(
            col(UsageRow.job_id) == row.job_id, col(UsageRow.purpose) == row.purpose, col(UsageRow.number) == row.number
        )
        row.attempt, row.at = self._session.execute(before).scalar_one() + 1, self._now
        job = self._session.get_one(Job, row.job_id)
        for name in _OF_JOB:
            setattr(row, name, getattr(job, name))
        self._save_objects(row)
        assert row.id is not None
        return row.id

    def complete_request(self, row_id: int, state: CallState, duration_ms: int, error: str) -> None:
        """Store the outcome and end time of a request in the row that was added before the request was sent."""
        ended = update(UsageRow).where(col(UsageRow.id) == row_id)
        self._session.execute(ended.values(at=self._now, state=state, duration_ms=duration_ms, error=error))

    def list_sums(self, request: UsageRequest, limit: int) -> Sequence[UsageSum]:
        """Return up to ``limit`` usage sums after a cursor: newest days first, other keys by cost, highest first."""
        return [UsageSum(*row) for row in self._session.execute(select_sums(request).limit(limit))]

    def read_total(self, period: Period, scope: UsageScope = EVERY_SCOPE) -> UsageSum:
        """Return one sum of the usage in a period, limited to a scope."""
        row = self._session.execute(select_total(period, scope)).first()
        return UsageSum(*row) if row is not None else NOTHING

    def list_parts(self, grouping: UsageBy, period: Period, scope: UsageScope = EVERY_SCOPE) -> Sequence[UsagePart]:
        """Return usage by day and key, oldest day first, without days that have no usage."""
        rows = self._session.execute(select_parts(grouping, period, scope))
        return [UsagePart(day, UsageSum(*columns)) for day, *columns in rows]

    def build_usage_page(self, query: UsageQuery, today: date) -> UsagePage:
        """Return a page of usage sums, with the totals of the period and of the period before it."""
        request = query.request(today)
        totals = (
            self.read_total(request.period, request.scope),
            self.read_total(request.period.preceding_period, request.scope),
        )
        return usage_page(self.list_sums(request, query.limit + 1), query.limit, request.period, totals)

    def delete_attempt(self, key: CallKey, attempt: int) -> float:
        """Delete the usage row of an attempt whose outcome is revised; return the cost in the row."""
        return sum(cost or 0.0 for (cost,) in self._run_returning(self._FORGET, **key_values(key), its_attempt=attempt))


class ReservedAmount(NamedTuple):
    """The amount in US dollars reserved for one model call, with its day and the scopes that it counts for."""

    day: date
    amount_usd: float
    scopes: tuple[Scope, ...]


class Budgets(Repository):
    """Queries for spending, reservations and clients."""

    LEVEL = (col(Spending.scope), col(Spending.subject), col(Spending.spent_usd), col(Spending.reserved_usd))
    """The columns that ``_levels_by_scope`` reads, in this order."""
    _TODAY = PreparedStatement(
        select(col(Spending.spent_usd), col(Spending.reserved_usd)).where(
            col(Spending.day) == bindparam("today"),
            col(Spending.scope) == bindparam("of_scope"),
            col(Spending.subject) == bindparam("its_subject"),
        )
    )
    _OF_KEY = (
        col(Reservation.job_id) == bindparam("of_job"),
        col(Reservation.purpose) == bindparam("its_purpose"),
        col(Reservation.number) == bindparam("its_number"),
    )
    _RESERVE = PreparedStatement(insert(Reservation).on_conflict_do_nothing())
    _OF_RESERVATION = (col(Reservation.day), col(Reservation.amount_usd), col(Reservation.scopes))
    _HELD = PreparedStatement(select(*_OF_RESERVATION).where(*_OF_KEY))
    _TAKE = PreparedStatement(delete(Reservation).where(*_OF_KEY).returning(*_OF_RESERVATION))
    _TAKE_ALL = PreparedStatement(
        delete(Reservation).where(col(Reservation.job_id) == bindparam("of_job")).returning(*_OF_RESERVATION)
    )

    @property
    def today(self) -> date:
        """The current day of budgets; days are in UTC."""
        return utc_day(self._now)

    @property
    def next_day(self) -> datetime:
        """The time at which the next day of budgets begins."""
        return datetime.combine(self.today + timedelta(days=1), time(), UTC)

    def read_level(self, scope: Scope) -> SpendingLevel:
        """Return the amounts that a scope has spent and reserved today."""
        of_scope, its_subject = scope
        row = self._read_row(self._TODAY, today=self.today, of_scope=of_scope, its_subject=its_subject)
        return SpendingLevel(*row) if row is not None else SpendingLevel()

    def reserve_cost(
        self, key: CallKey, payer: Payer, amount_usd: float, limits: Sequence[BudgetLimit] = ()
    ) -> BudgetLimit | None:
        """Reserve the estimated cost of a call, in place of any reservation that the call already has.

        Returns the first of the limits that was reached without this reservation, or None. If a limit is returned, the
        caller has to release the reservation. The transaction may change only reservations after this one.
        """
        reservation = Reservation(
            **key.model_dump(),
            day=self.today,
            amount_usd=amount_usd,
            scopes=" ".join(f"{scope}:{subject}" for scope, subject in payer.scopes),
        )
        if not self._run_change(self._RESERVE, **vars(reservation)):
            self.release_reservation(key)
            self._add_row(reservation)
        own = {(self.today, scope): (0.0, amount_usd) for scope in payer.scopes}
        levels = _levels_by_scope(self._write_amounts_now(own))
        return exceeded_limit(
            limits,
            {scope: replace(level, reserved_usd=level.reserved_usd - amount_usd) for scope, level in levels.items()},
        )

    def release_reservation(self, key: CallKey) -> None:
        """Release the reservation of a call, if the call has one."""
        self._subtract_reserved(self._run_returning(self._TAKE, **key_values(key)))

    def settle_cost(self, key: CallKey, cost_usd: float, payer: Payer | None = None) -> None:
        """Replace the reservation of a call by the call's cost, on the day of the reservation.

        ``payer`` is the call's payer, if the caller has read it in this transaction.
        """
        reservations = [_reserved_amount(row) for row in self._run_returning(self._TAKE, **key_values(key))]
        for held in reservations:
            self._add_amounts({(held.day, scope): (cost_usd, -held.amount_usd) for scope in held.scopes})
        if cost_usd and not reservations:
            scopes = (payer or self._read_payer(key)).scopes
            self._add_amounts({(self.today, scope): (cost_usd, 0.0) for scope in scopes})

    def add_cost(self, key: CallKey, cost_usd: float, payer: Payer | None = None) -> None:
        """Count the cost of a failed attempt; the call's reservation stays for further attempts.

        ``payer`` is the call's payer, if the caller has read it.
        """
        if not cost_usd:
            return
        row = self._read_row(self._HELD, **key_values(key))
        held = _reserved_amount(row) if row is not None else None
        day, scopes = (
            (held.day, held.scopes) if held is not None else (self.today, (payer or self._read_payer(key)).scopes)
        )
        self._add_amounts({(day, scope): (cost_usd, 0.0) for scope in scopes})

    def release_all_of_job(self, job_id: str) -> None:
        """Release all reservations of a job that ends, such as reservations left by a crash."""
        self._subtract_reserved(self._run_returning(self._TAKE_ALL, of_job=job_id))

    def list_clients(self) -> Sequence[Client]:
        """Return all clients, sorted by name."""
        return self._session.scalars(select(Client).order_by(col(Client.name))).all()

    def read_client_levels(self) -> Mapping[str, SpendingLevel]:
        """Return the amounts spent and reserved today for each client, by the client's name."""
        return {client.name: self.read_level((BudgetScope.CLIENT, str(client.id))) for client in self.list_clients()}

    def build_client_view(self, client: Client) -> ClientView:
        """Return a client as an API view, with the amounts spent and reserved for it today."""
        return client_view(client, self.read_level((BudgetScope.CLIENT, str(client.id))))

    def list_used(self, budgets: BudgetSettings) -> BudgetPage:
        """Return every budget that has a limit, with the amounts spent and reserved today."""
        today = select(*self.LEVEL).where(col(Spending.day) == self.today)
        levels = _levels_by_scope(self._session.execute(today))
        agents = (
            select(col(Agent.id), col(Agent.slug), col(Agent.daily_budget_usd))
            .where(col(Agent.status) != AgentStatus.ARCHIVED)
            .order_by(col(Agent.slug))
        )
        clients = select(col(Client.id), col(Client.name), col(Client.daily_budget_usd)).order_by(col(Client.name))
        conversations = [
            (level.spent_usd + level.reserved_usd, subject)
            for (scope, subject), level in levels.items()
            if scope is BudgetScope.CONVERSATION
        ]
        spenders = [
            *(Spender(BudgetScope.AGENT, str(number), *row) for number, *row in self._session.execute(agents)),
            *(Spender(BudgetScope.CLIENT, str(number), *row) for number, *row in self._session.execute(clients)),
            *(
                Spender(BudgetScope.CONVERSATION, subject, subject)
                for _, subject in sorted(conversations, reverse=True)[:CONVERSATIONS]
            ),
        ]
        return budget_page(budgets, spenders, levels, self.today)

    def _read_payer(self, key: CallKey) -> Payer:
        return ModelCallers(self._link, self._now).read_payer(key.job_id)

    def _subtract_reserved(self, reservations: Iterable[tuple[Any, ...]]) -> None:
        """Subtract the amounts of deleted reservations from the reserved amounts of their scopes."""
        for held in map(_reserved_amount, reservations):
            self._add_amounts({(held.day, scope): (0.0, -held.amount_usd) for scope in held.scopes})

    def _add_amounts(self, amounts: Amounts) -> None:
        """Add amounts to rows of spending; beside other writers, all such rows of a transaction are changed at once."""
        scoped = self._link.scoped
        if scoped is None:
            statement, values = _spending_change(amounts)
            self._run_returning(statement, **values)
        else:
            if not scoped.amounts:
                scoped.write_last(Spending.__tablename__, self._write_amounts, ())
            _add_up(scoped.amounts, amounts)

    def _write_amounts(self) -> None:
        scoped = self._link.scoped
        if scoped is not None and scoped.amounts:
            amounts, scoped.amounts = scoped.amounts, {}
            statement, values = _spending_change(amounts)
            self._write(statement, **values)

    def _write_amounts_now(self, amounts: Amounts) -> list[tuple[Any, ...]]:
        """Add amounts to rows of spending, with those of ``_add_amounts``; return the changed columns ``LEVEL``."""
        scoped = self._link.scoped
        if scoped is None:
            statement, values = _spending_change(amounts)
            return self._run_returning(statement, **values)
        _add_up(scoped.amounts, amounts)
        amounts, scoped.amounts = scoped.amounts, {}
        statement, values = _spending_change(amounts)
        return scoped.write_now(lambda: self._run_returning(statement, **values))


@cache
def _spending_statement(count: int) -> PreparedStatement:
    """Return the statement that adds amounts to ``count`` rows (parameters ``scope_0``, ``subject_0`` and so on)."""
    new = insert(Spending)
    reserved = col(Spending.reserved_usd) + new.excluded.reserved_usd
    names = [{name: f"{name}_{place}" for name in Spending.model_fields} for place in range(count)]
    # SQLAlchemy sets the parameter types of the first row only, so the types of all rows are set here.
    types = {name: getattr(Spending, name).type for name in Spending.model_fields}
    rows = [{name: bindparam(of_row, type_=types[name]) for name, of_row in row.items()} for row in names]
    return PreparedStatement(
        new.values(rows)
        .on_conflict_do_update(
            index_elements=["day", "scope", "subject"],
            set_={
                "spent_usd": col(Spending.spent_usd) + new.excluded.spent_usd,
                "reserved_usd": case((reserved > DUST, reserved), else_=0.0),
            },
        )
        .returning(*Budgets.LEVEL)
    )


def _spending_change(amounts: Amounts) -> tuple[PreparedStatement, dict[str, object]]:
    """Return the statement that adds amounts, and its parameters; rows are in one order, in which they are locked."""
    values: dict[str, object] = {}
    for place, ((day, (scope, subject)), (spent, reserved)) in enumerate(sorted(amounts.items())):
        row = {"day": day, "scope": scope, "subject": subject, "spent_usd": spent, "reserved_usd": reserved}
        values |= {f"{name}_{place}": value for name, value in row.items()}
    return _spending_statement(len(amounts)), values


def _add_up(sums: dict[tuple[Any, ...], tuple[float, float]], amounts: Amounts) -> None:
    for row, (spent, reserved) in amounts.items():
        before = sums.get(row, (0.0, 0.0))
        sums[row] = before[0] + spent, before[1] + reserved


def _reserved_amount(row: tuple[Any, ...]) -> ReservedAmount:
    day, amount_usd, scopes = row
    words = (word.partition(":") for word in scopes.split())
    return ReservedAmount(day, amount_usd, tuple((BudgetScope(scope), subject) for scope, _, subject in words))


def key_values(key: CallKey) -> dict[str, object]:
    """Return the parameters that identify a model call in statements."""
    return {"of_job": key.job_id, "its_purpose": key.purpose, "its_number": key.number}
