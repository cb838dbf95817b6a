"""What was spent and is reserved, by day and scope; reserving and settling are one transaction each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import bindparam, case, delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.clients.views import ClientView, client_view
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import (
    DUST,
    BudgetScope,
    Client,
    Level,
    Limit,
    Payer,
    Reservation,
    Scope,
    Spending,
    exceeded,
)
from maestro.domain.llm.prompts import CallKey
from maestro.store.repository import Repository


@dataclass(frozen=True, slots=True)
class Held:
    """What one call has reserved, in which day and scopes."""

    day: date
    amount_usd: float
    scopes: tuple[Scope, ...]


class Budgets(Repository):
    """Spending, reservations and clients."""

    _PAYER = (
        select(
            col(Job.agent_id),
            col(Agent.slug),
            col(Agent.daily_budget_usd),
            col(Job.client_id),
            col(Client.name),
            col(Client.daily_budget_usd),
            col(Job.conversation_id),
        )
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .outerjoin(Client, col(Client.id) == Job.client_id)
        .where(col(Job.id) == bindparam("of_job"))
    )
    _LEVEL = select(col(Spending.spent_usd), col(Spending.reserved_usd)).where(
        col(Spending.day) == bindparam("its_day"),
        col(Spending.scope) == bindparam("its_scope"),
        col(Spending.subject) == bindparam("its_subject"),
    )
    _NEW = insert(Spending)
    _RESERVED = col(Spending.reserved_usd) + _NEW.excluded.reserved_usd
    _ADD = _NEW.on_conflict_do_update(
        index_elements=["day", "scope", "subject"],
        set_={
            "spent_usd": col(Spending.spent_usd) + _NEW.excluded.spent_usd,
            "reserved_usd": case((_RESERVED > DUST, _RESERVED), else_=0.0),
        },
    )
    _OF_KEY = (
        col(Reservation.job_id) == bindparam("of_job"),
        col(Reservation.purpose) == bindparam("its_purpose"),
        col(Reservation.number) == bindparam("its_number"),
    )
    _RESERVE = insert(Reservation)
    _HELD = select(col(Reservation.day), col(Reservation.amount_usd), col(Reservation.scopes)).where(*_OF_KEY)
    _FREE = delete(Reservation).where(*_OF_KEY)
    _KEPT = select(col(Reservation.purpose), col(Reservation.number)).where(
        col(Reservation.job_id) == bindparam("of_job")
    )

    @property
    def today(self) -> date:
        """The day that spending counts in, UTC."""
        return self._now.astimezone(UTC).date()

    @property
    def tomorrow(self) -> datetime:
        """When the next day of budgets begins."""
        return datetime.combine(self.today + timedelta(days=1), time(), UTC)

    def payer(self, job_id: str) -> Payer:
        """Return whom the calls of a job are charged to; nobody when it does not exist."""
        row = self._run(self._PAYER, of_job=job_id).first()
        return Payer(*row) if row is not None else Payer()

    def level(self, scope: Scope) -> Level:
        """Return what a scope has spent and reserved today."""
        row = self._run(self._LEVEL, its_day=self.today, its_scope=scope[0], its_subject=scope[1]).first()
        return Level(*row) if row is not None else Level()

    def exceeded(self, limits: Sequence[Limit]) -> Limit | None:
        """Return the first limit that is used up today, None when none is."""
        return exceeded([(limit, self.level((limit.scope, limit.subject))) for limit in limits])

    def reserve(self, key: CallKey, payer: Payer, amount_usd: float) -> None:
        """Set aside what a call may cost until it is settled or released; it must have nothing set aside yet."""
        which = {"job_id": key.job_id, "purpose": key.purpose, "number": key.number}
        self._run(self._RESERVE, day=self.today, amount_usd=amount_usd, scopes=_text(payer.scopes), **which)
        self._add(self.today, payer.scopes, reserved_usd=amount_usd)

    def release(self, key: CallKey) -> None:
        """Give back what a call has reserved, if anything."""
        held = self._take(key)
        if held is not None:
            self._add(held.day, held.scopes, reserved_usd=-held.amount_usd)

    def settle(self, key: CallKey, cost_usd: float) -> None:
        """Put what a call cost in the place of what it had reserved, in the day in which it was reserved."""
        held = self._take(key)
        if held is not None:
            self._add(held.day, held.scopes, spent_usd=cost_usd, reserved_usd=-held.amount_usd)
        elif cost_usd:
            self._add(self.today, self.payer(key.job_id).scopes, spent_usd=cost_usd)

    def spend(self, key: CallKey, cost_usd: float) -> None:
        """Count what an attempt cost that was not the last of its call; what is reserved for the others stays."""
        if not cost_usd:
            return
        held = self._held(key)
        day, scopes = (held.day, held.scopes) if held is not None else (self.today, self.payer(key.job_id).scopes)
        self._add(day, scopes, spent_usd=cost_usd)

    def close(self, job_id: str) -> None:
        """Give back whatever a job that ends has reserved: nobody else would, after a crash."""
        for purpose, number in self._run(self._KEPT, of_job=job_id).all():
            self.release(CallKey(job_id=job_id, purpose=purpose, number=number))

    def clients(self) -> Sequence[Client]:
        """Return every client by name."""
        return self._session.scalars(select(Client).order_by(col(Client.name))).all()

    def client_levels(self) -> Mapping[str, Level]:
        """Return what was spent and is reserved for each client today, by name."""
        return {client.name: self.level((BudgetScope.CLIENT, str(client.id))) for client in self.clients()}

    def client_view(self, client: Client) -> ClientView:
        """Show a client, with what was spent and is reserved for it today."""
        return client_view(client, self.level((BudgetScope.CLIENT, str(client.id))))

    def _held(self, key: CallKey) -> Held | None:
        row = self._run(self._HELD, **_values(key)).first()
        return Held(row[0], row[1], _scopes(row[2])) if row is not None else None

    def _take(self, key: CallKey) -> Held | None:
        """Remove a reservation and return it."""
        held = self._held(key)
        if held is not None:
            self._run(self._FREE, **_values(key))
        return held

    def _add(self, day: date, scopes: Iterable[Scope], spent_usd: float = 0.0, reserved_usd: float = 0.0) -> None:
        rows = [
            {"day": day, "scope": scope, "subject": subject, "spent_usd": spent_usd, "reserved_usd": reserved_usd}
            for scope, subject in scopes
        ]
        self._session.connection().execute(self._ADD, rows)


def _text(scopes: Iterable[Scope]) -> str:
    return " ".join(f"{scope}:{subject}" for scope, subject in scopes)


def _scopes(text: str) -> tuple[Scope, ...]:
    words = (word.partition(":") for word in text.split())
    return tuple((BudgetScope(scope), subject) for scope, _, subject in words)


def _values(key: CallKey) -> dict[str, object]:
    return {"of_job": key.job_id, "its_purpose": key.purpose, "its_number": key.number}
