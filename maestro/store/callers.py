"""The callers of models: a job with its agent, its prompt and its payer, read in one statement."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, inspect
from sqlalchemy import select as columns
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import Client, Payer
from maestro.domain.llm.calls import Prompt
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.precedence import Precedence, precedence_of
from maestro.store.jobs import Jobs
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository, read_once


@dataclass(frozen=True, slots=True)
class Caller:
    """A job that calls a model, its agent, its prompt as stored, who pays for it, and how soon its work is done.

    ``edit_interval`` is after how many seconds at least its account writes an answer that grows anew; 0: none grows.
    """

    job: Job
    agent: Agent
    turns: str
    payer: Payer
    precedence: Precedence
    edit_interval: float


class Callers(Repository):
    """Reads what the first step of a call, and the middleware around it, ask about its job."""

    _JOB, _AGENT = tuple(inspect(Job).c), tuple(inspect(Agent).c)
    _OF_JOB = Prepared(
        columns(
            *_JOB,
            *_AGENT,
            *(col(Client.name), col(Client.daily_budget_usd), col(Client.weight)),
            col(Prompt.turns),
            col(ConnectorStatus.edit_interval),
        )
        .select_from(Job)
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .outerjoin(Client, col(Client.id) == Job.client_id)
        .outerjoin(Prompt, col(Prompt.job_id) == Job.id)
        .outerjoin(
            ConnectorStatus,
            (col(ConnectorStatus.platform) == Job.platform) & (col(ConnectorStatus.account) == Job.account),
        )
        .where(col(Job.id) == bindparam("of_job"))
    )

    def load(self, job_id: str) -> None:
        """Read at once what this transaction is going to ask about a job, the job's own row included."""
        self._of(job_id)

    def read(self, job_id: str) -> Caller:
        """Return the caller of a job that must exist, with an agent and a prompt; raises ``NotFound``."""
        row = self._of(job_id)
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        job, agent, (_, _, weight, turns, edit_interval) = row
        if agent is None:
            raise NotFound(f"agent {job.agent_id} does not exist")
        if turns is None:
            raise NotFound(f"job {job_id} has no prompt yet")
        precedence = precedence_of(job.priority, job.client_id, weight, job.address)
        return Caller(job, agent, turns, self.payer(job_id), precedence, edit_interval or 0.0)

    def payer(self, job_id: str) -> Payer:
        """Return whom the calls of a job are charged to; nobody when it does not exist."""
        row = self._of(job_id)
        if row is None:
            return Payer()
        job, agent, (client, client_usd, *_) = row
        return Payer(
            agent_id=job.agent_id,
            agent=agent.slug if agent is not None else None,
            agent_usd=agent.daily_budget_usd if agent is not None else None,
            client_id=job.client_id,
            client=client,
            client_usd=client_usd,
            conversation_id=job.conversation_id,
        )

    def _known(self) -> dict[object, Any]:
        """Forget callers whenever jobs are forgotten."""
        return self._link.known.setdefault(Jobs.__name__, {})

    @read_once
    def _of(self, job_id: str) -> tuple[Job, Agent | None, tuple[str, float, float, str, float]] | None:
        self._link.write_noted(Jobs.__name__)
        row = self._row(self._OF_JOB, of_job=job_id)
        if row is None:
            return None
        job_end = len(self._JOB)
        agent_end = job_end + len(self._AGENT)
        job = self._OF_JOB.made(Job, row[:job_end])
        agent = self._OF_JOB.made(Agent, row[job_end:agent_end], first=job_end)
        Jobs(self._link, self._now).assume(job)
        return job, agent if agent.id is not None else None, row[agent_end:]
