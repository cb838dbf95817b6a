"""What came of the tags in answers."""

from collections.abc import Sequence

from sqlmodel import col, func, select

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.conductor import Performed
from maestro.domain.jobs.job import Job
from maestro.domain.tags.actions import Action
from maestro.domain.tags.grammar import Tag
from maestro.store.repository import Repository

LATELY = 20_000
"""Of how many actions, the newest of all agents, those of one are looked for."""


class Actions(Repository):
    """All actions."""

    def add(self, job_id: str, performed: Sequence[tuple[Tag, Performed]]) -> None:
        """Keep what came of each tag of a job's answer, in the order of the answer."""
        self._session.add_all(
            Action(
                job_id=job_id,
                seq=seq,
                tag=tag.name,
                subject=outcome.subject,
                state=outcome.state,
                detail=outcome.detail,
                at=self._now,
            )
            for seq, (tag, outcome) in enumerate(performed)
        )
        self._session.flush()

    def of(self, job_id: str) -> Sequence[Action]:
        """Return what came of the tags of a job's answer, in their order."""
        return self._session.exec(select(Action).where(Action.job_id == job_id).order_by(col(Action.seq))).all()

    def lately(self, agent: Agent, limit: int) -> Sequence[Action]:
        """Return what came of the tags in an agent's latest answers, newest first; what is long past is left out."""
        oldest = select(func.coalesce(func.max(Action.id), 0) - LATELY).scalar_subquery()
        of_agent = select(Action).join(Job, col(Job.id) == Action.job_id).where(Job.agent_id == agent.id)
        return self._session.exec(
            of_agent.where(col(Action.id) > oldest).order_by(col(Action.id).desc()).limit(limit)
        ).all()
