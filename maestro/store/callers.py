"""The callers of models: a job with its agent, its prompt, its payer and what that has spent, in one statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, String, and_, bindparam, cast, inspect, literal
from sqlalchemy import select as columns
from sqlalchemy.orm import aliased
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import BudgetScope, Client, Level, Payer, Scope, Spending, day_of
from maestro.domain.llm.calls import Prompt
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.precedence import Precedence, precedence_of
from maestro.store.jobs import Jobs
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository, read_once


@dataclass(frozen=True, slots=True)
class Caller:
    """A job that calls a model, its agent, its prompt as stored, and how soon its work is done.

    ``edit_interval`` is after how many seconds at least its account writes an answer that grows anew; 0: none grows.
    """

    job: Job
    agent: Agent
    turns: str
    precedence: Precedence
    edit_interval: float


@dataclass(frozen=True, slots=True)
class _Found:
    """What the store has about a job: the columns of its client, its prompt and its connector are None without one."""

    job: Job
    agent: Agent | None
    client: str | None
    client_usd: float | None
    weight: float | None
    turns: str | None
    edit_interval: float | None
    spent: Mapping[BudgetScope, Level]


def _joined() -> Select[Any]:
    """Return the statement: a job, its agent, its client, prompt and connector, and what each scope has spent."""
    found = (
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
        found = found.add_columns(col(level.spent_usd), col(level.reserved_usd)).outerjoin(level, here)
    return found


class Callers(Repository):
    """Reads what the first step of a call, and the middleware around it, ask about its job."""

    _OF_JOB = Prepared(_joined())
    _JOB_END = len(inspect(Job).c)
    _AGENT_END = _JOB_END + len(inspect(Agent).c)

    def load(self, job_id: str) -> None:
        """Read at once what this transaction is going to ask about a job, the job's own row included."""
        self._of(job_id)

    def read(self, job_id: str) -> Caller:
        """Return the caller of a job that must exist, with an agent and a prompt; raises ``NotFound``."""
        found = self._of(job_id)
        if found is None:
            raise NotFound(f"job {job_id} does not exist")
        job = found.job
        if found.agent is None:
            raise NotFound(f"agent {job.agent_id} does not exist")
        if found.turns is None:
            raise NotFound(f"job {job_id} has no prompt yet")
        precedence = precedence_of(job.priority, job.client_id, found.weight, job.address)
        return Caller(job, found.agent, found.turns, precedence, found.edit_interval or 0.0)

    def payer(self, job_id: str) -> Payer:
        """Return whom the calls of a job are charged to; nobody when it does not exist."""
        found = self._of(job_id)
        if found is None:
            return Payer()
        job, agent = found.job, found.agent
        return Payer(
            agent_id=job.agent_id,
            agent=agent.slug if agent is not None else None,
            agent_usd=agent.daily_budget_usd if agent is not None else None,
            client_id=job.client_id,
            client=found.client,
            client_usd=found.client_usd,
            conversation_id=job.conversation_id,
        )

    def levels(self, job_id: str) -> Mapping[Scope, Level]:
        """Return what the scopes of the payer have spent and reserved today, before this transaction changes that."""
        found = self._of(job_id)
        if found is None:
            return {}
        return {(scope, subject): found.spent[scope] for scope, subject in self.payer(job_id).scopes}

    def _known(self) -> dict[object, Any]:
        """Forget callers whenever jobs are forgotten."""
        return self._link.known.setdefault(Jobs.__name__, {})

    @read_once
    def _of(self, job_id: str) -> _Found | None:
        self._link.write_noted(Jobs.__name__)
        row = self._row(self._OF_JOB, of_job=job_id, today=day_of(self._now))
        if row is None:
            return None
        job = self._OF_JOB.made(Job, row[: self._JOB_END])
        agent = self._OF_JOB.made(Agent, row[self._JOB_END : self._AGENT_END], first=self._JOB_END)
        Jobs(self._link, self._now).assume(job)
        client, client_usd, weight, turns, edit_interval, *spent = row[self._AGENT_END :]
        levels = map(Level, (usd or 0.0 for usd in spent[::2]), (usd or 0.0 for usd in spent[1::2]))
        return _Found(
            job=job,
            agent=agent if agent.id is not None else None,
            client=client,
            client_usd=client_usd,
            weight=weight,
            turns=turns,
            edit_interval=edit_interval,
            spent=dict(zip(BudgetScope, levels, strict=True)),
        )
