"""Heartbeats and crons."""

from collections.abc import Sequence

from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned, free_name
from maestro.domain.schedules.texts import read_schedule
from maestro.store.audit import Audit
from maestro.store.repository import Repository

KINDS: tuple[type[Planned], ...] = (Heartbeat, Cron)


class Schedules(Repository):
    """What is to run when; ``actor`` is who the audit log says it was."""

    def add(self, kind: type[Planned], new: NewSchedule, actor: str) -> Planned:
        """Plan something.

        Raises ``InvalidEdit`` for a schedule that is none (decision 14), ``NotFound`` for an unknown agent, and
        ``Conflict`` for an archived one, for a name that it has something planned under already, and for what it has
        planned already when there is no name to tell the two apart: an answer that is given again plans nothing twice.
        """
        read_schedule(new.schedule, new.timezone, self._now)
        agent = self._agent(new.agent)
        planned = kind(
            agent_id=agent.id or 0,
            zone=new.timezone,
            created_by=actor,
            created_at=self._now,
            updated_at=self._now,
            **new.model_dump(by_alias=False, exclude={"agent", "timezone"}),
        )
        planned.name = self._name(planned, agent)
        self._session.add(planned)
        self._session.flush()
        Audit(self._link, self._now).add(actor, f"{kind.__name__.lower()}.create", f"{agent.slug}/{planned.name}")
        return planned

    def all(self) -> Sequence[Planned]:
        """Return everything that is planned, heartbeats first, the oldest first."""
        return [planned for kind in KINDS for planned in self._session.exec(select(kind).order_by(col(kind.id)))]

    def of(self, agent: Agent) -> Sequence[Planned]:
        """Return everything that is planned for an agent, heartbeats first, the oldest first."""
        wanted = (select(kind).where(kind.agent_id == agent.id).order_by(col(kind.id)) for kind in KINDS)
        return [planned for one in wanted for planned in self._session.exec(one)]

    def _name(self, new: Planned, agent: Agent) -> str:
        """Return what it is to be called, which nothing else of the agent is."""
        present = {planned.name: planned for planned in self.of(agent)}
        if new.name in present:
            raise Conflict(f"the agent {agent.slug} has a schedule {new.name!r} already; choose another name")
        twin = next((planned.name for planned in present.values() if planned.is_like(new)), None)
        if not new.name and twin is not None:
            raise Conflict(f"the agent {agent.slug} has just that planned already, as {twin!r}; give this one a name")
        return new.name or free_name(new.unnamed, present)

    def _agent(self, slug: str) -> Agent:
        agent = self._session.exec(select(Agent).where(Agent.slug == slug)).first()
        if agent is None:
            raise NotFound(f"there is no agent {slug!r}")
        if agent.status is AgentStatus.ARCHIVED:
            raise Conflict(f"agent {slug} is archived; restore it first")
        return agent
