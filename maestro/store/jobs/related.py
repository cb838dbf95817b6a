"""Queries that read a job and related rows in one statement, for the job's end or for its model calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, String, and_, bindparam, cast, func, inspect, literal, or_, select
from sqlalchemy import select as columns
from sqlalchemy.orm import Mapped, aliased
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.deliveries import UNSENT, Delivery, DeliveryPurpose, DeliveryState, OutboundLane
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job, JobStatus, JobStep, StepState
from maestro.domain.llm.budgets import BudgetScope, Client, Payer, Reservation, Scope, Spending, SpendingLevel, utc_day
from maestro.domain.llm.calls import CallState, LLMCall, Prompt
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.precedence import Precedence, build_precedence
from maestro.domain.questions.question import Question, QuestionStatus
from maestro.store.engine.repository import Repository, read_once
from maestro.store.engine.statements import PreparedStatement, is_one_of
from maestro.store.jobs.jobs import Jobs
from maestro.store.jobs.steps import current_recorded_attempt

AT_THE_END = {DeliveryState.PENDING: DeliveryState.ABANDONED, DeliveryState.SENDING: DeliveryState.UNCONFIRMED}
"""The state that a chunk without a receipt gets when its job ends, by the chunk's state before."""


@dataclass(frozen=True, slots=True)
class DependentRows:
    """The kinds of rows that must be settled when a job ends.

    ``calls``: a model call runs or has money reserved. ``chunks``: a chunk has no receipt. ``lanes``: the job holds an
    outbound lane. ``tasks``: a delegated task has not begun. ``delegated``: the job is a delegated task or continues a
    job.
    """

    questions: bool = False
    calls: bool = False
    chunks: bool = False
    lanes: bool = False
    tasks: bool = False
    delegated: bool = False
    scheduled: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """The state of a delivery and its job after one chunk (part) of the message was sent.

    ``overtaken``: a newer attempt at the step has begun. ``unsent``: a later chunk of the delivery has no receipt yet.
    ``failed``: a chunk was not delivered. ``waiting``: another job waits in the job's lane. ``chunks`` is the number of
    chunks; ``dependents`` are the rows that the job's end has to settle.
    """

    dependents: DependentRows
    status: JobStatus
    stop_requested: bool
    overtaken: bool
    chunks: int
    unsent: bool
    failed: bool
    waiting: bool


def _has_row(column: Mapped[Any], *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(column).where(column == Job.id, *conditions).exists()


class JobDependents(Repository):
    """Queries for rows that must be settled when a job ends."""

    _TASK = aliased(Job)
    _ROWS: tuple[ColumnElement[bool], ...] = (
        _has_row(col(Question.job_id), col(Question.status) == QuestionStatus.OPEN),
        or_(_has_row(col(LLMCall.job_id), col(LLMCall.state) == CallState.SENT), _has_row(col(Reservation.job_id))),
        _has_row(col(Delivery.job_id), is_one_of(col(Delivery.state), AT_THE_END)),
        _has_row(col(OutboundLane.job_id)),
        _has_row(col(_TASK.parent_id), col(_TASK.status) == JobStatus.PENDING),
        col(Job.parent_id).is_not(None),
        col(Job.schedule).is_not(None),
    )
    _OF_JOB = PreparedStatement(select(*_ROWS).where(col(Job.id) == bindparam("job_id")))
    _OWN_STATE = (
        select(col(JobStep.state))
        .where(
            col(JobStep.job_id) == Job.id,
            col(JobStep.step) == bindparam("own_step"),
            col(JobStep.attempt) == bindparam("own_attempt"),
        )
        .scalar_subquery()
    )
    _DONE, _BEHIND = aliased(Delivery), aliased(Job)
    _OF_PURPOSE = col(Delivery.purpose) == bindparam("its_purpose")
    _AFTER = col(Delivery.seq) > select(col(_DONE.seq)).where(col(_DONE.id) == bindparam("chunk")).scalar_subquery()
    _PROGRESS = PreparedStatement(
        select(
            *_ROWS,
            col(Job.status),
            col(Job.stop_requested),
            _OWN_STATE,
            select(func.count(col(Delivery.id))).where(col(Delivery.job_id) == Job.id, _OF_PURPOSE).scalar_subquery(),
            _has_row(col(Delivery.job_id), _OF_PURPOSE, is_one_of(col(Delivery.state), UNSENT), _AFTER),
            _has_row(col(Delivery.job_id), _OF_PURPOSE, col(Delivery.state) == DeliveryState.FAILED),
            select(col(_BEHIND.id))
            .where(col(_BEHIND.lane) == col(Job.lane), col(_BEHIND.status) == JobStatus.PENDING)
            .exists(),
        ).where(col(Job.id) == bindparam("job_id"))
    )

    def find_kinds(self, job_id: str) -> DependentRows:
        """Return the kinds of rows that a job's end must settle; none for a missing job."""
        row = self._read_row(self._OF_JOB, job_id=job_id)
        return DependentRows(*row) if row is not None else DependentRows()

    def read_delivery_progress(self, job_id: str, purpose: DeliveryPurpose, chunk_id: int) -> DeliveryProgress:
        """Return the state of a delivery after one of its chunks; raises ``NotFound`` for a missing job."""
        own = current_recorded_attempt()
        attempt = {"own_step": own and own.ref.step, "own_attempt": own and own.number}
        row = self._read_row(self._PROGRESS, job_id=job_id, its_purpose=purpose, chunk=chunk_id, **attempt)
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        rows = DependentRows(*row[: len(self._ROWS)])
        status, stop_requested, own_state, *rest = row[len(self._ROWS) :]
        overtaken = own is not None and own_state is not StepState.RUNNING
        return DeliveryProgress(rows, status, stop_requested, overtaken, *rest)


class ModelCaller(NamedTuple):
    """A job that calls a model, with its agent, stored prompt and precedence (rank in the fair queue).

    ``edit_interval`` is the least number of seconds between two edits of a streamed answer; 0 without streaming.
    """

    job: Job
    agent: Agent
    turns: str
    precedence: Precedence
    edit_interval: float


class _CallerRow(NamedTuple):
    """A joined row; the columns of the job's client, prompt or connector are None if the job has none."""

    job: Job
    agent: Agent | None
    spent: Mapping[BudgetScope, SpendingLevel]
    client: str | None
    client_usd: float | None
    weight: float | None
    turns: str | None
    edit_interval: float | None


def _caller_query() -> Select[Any]:
    """Return the statement that joins a job with its agent, client, prompt, connector and today's spending."""
    query = (
        columns(
            *inspect(Job).c,
            *inspect(Agent).c,
            *(col(Client.name), col(Client.daily_budget_usd), col(Client.weight)),
            *(col(Prompt.turns), col(ConnectorStatus.edit_interval)),
        )
        .select_from(Job)
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .outerjoin(Client, col(Client.id) == Job.client_id)
        .outerjoin(Prompt, col(Prompt.job_id) == Job.id)
        .outerjoin(
            ConnectorStatus,
            and_(col(ConnectorStatus.platform) == Job.platform, col(ConnectorStatus.account) == Job.account),
        )
        .where(col(Job.id) == bindparam("of_job"))
    )
    subjects = {
        BudgetScope.DAY: literal(""),
        BudgetScope.AGENT: cast(Job.agent_id, String),
        BudgetScope.CLIENT: cast(Job.client_id, String),
        BudgetScope.CONVERSATION: cast(Job.conversation_id, String),
    }
    for scope in BudgetScope:
        level = aliased(Spending)
        here = and_(
            col(level.day) == bindparam("today"), col(level.scope) == scope, col(level.subject) == subjects[scope]
        )
        query = query.add_columns(col(level.spent_usd), col(level.reserved_usd)).outerjoin(level, here)
    return query


class ModelCallers(Repository):
    """Queries for a job that calls a model, used by the job's first step and by the steps of model calls."""

    _OF_JOB = PreparedStatement(_caller_query())
    _JOB_END = len(inspect(Job).c)
    _AGENT_END = _JOB_END + len(inspect(Agent).c)
    _PROMPT_END = -2 * len(BudgetScope)

    def load_columns(self, job_id: str) -> None:
        """Read all columns that a job's model calls need, and the job's row, in one statement, and cache them."""
        self._read_caller_row(job_id)

    def read_caller(self, job_id: str) -> ModelCaller:
        """Return a job that calls a model, with its agent and prompt; raises ``NotFound``."""
        row = self._read_caller_row(job_id)
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        job = row.job
        if row.agent is None:
            raise NotFound(f"agent {job.agent_id} does not exist")
        if row.turns is None:
            raise NotFound(f"job {job_id} has no prompt yet")
        precedence = build_precedence(job.priority, job.client_id, row.weight, job.address)
        return ModelCaller(job, row.agent, row.turns, precedence, row.edit_interval or 0.0)

    def read_payer(self, job_id: str) -> Payer:
        """Return the client, agent and conversation that pay for a job's calls; an empty payer for a missing job."""
        row = self._read_caller_row(job_id)
        if row is None:
            return Payer()
        job, agent = row.job, row.agent
        return Payer(
            agent_id=job.agent_id,
            agent=agent.slug if agent is not None else None,
            agent_usd=agent.daily_budget_usd if agent is not None else None,
            client_id=job.client_id,
            client=row.client,
            client_usd=row.client_usd,
            conversation_id=job.conversation_id,
        )

    def read_spending_levels(self, job_id: str) -> Mapping[Scope, SpendingLevel]:
        """Return what each scope of a job's payer has spent and reserved today, as first read in this transaction."""
        row = self._read_caller_row(job_id)
        if row is None:
            return {}
        return {(scope, subject): row.spent[scope] for scope, subject in self.read_payer(job_id).scopes}

    def _cached_values(self) -> dict[object, Any]:
        """Return the cache of jobs, so that a change of a job also drops what was read with it."""
        return self._link.known.setdefault(Jobs.__name__, {})

    @read_once
    def _read_caller_row(self, job_id: str) -> _CallerRow | None:
        self._link.write_collected(Jobs.__name__)
        row = self._read_row(self._OF_JOB, of_job=job_id, today=utc_day(self._now))
        if row is None:
            return None
        job = self._OF_JOB.convert_row(Job, row[: self._JOB_END])
        agent = self._OF_JOB.convert_row(Agent, row[self._JOB_END : self._AGENT_END], first=self._JOB_END)
        Jobs(self._link, self._now).cache_value(job)
        spent = row[self._PROMPT_END :]
        levels = map(SpendingLevel, (usd or 0.0 for usd in spent[::2]), (usd or 0.0 for usd in spent[1::2]))
        return _CallerRow(
            job,
            agent if agent.id is not None else None,
            dict(zip(BudgetScope, levels, strict=True)),
            *row[self._AGENT_END : self._PROMPT_END],
        )
