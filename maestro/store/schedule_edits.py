"""What people make of heartbeats and crons."""

from datetime import timedelta

from sqlmodel import select

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.schedules.changes import changes
from maestro.domain.schedules.edits import NewSchedule, ScheduleChange, check_work
from maestro.domain.schedules.schedule import Planned, free_name
from maestro.domain.schedules.texts import SHORTEST, check_jitter, read_schedule
from maestro.store.audit import Audit
from maestro.store.schedules import Schedules


class ScheduleEdits(Schedules):
    """Schedules that are made, changed and removed; ``actor`` is who the audit log says it was.

    Nothing here tells Temporal, which follows the rows (ADR 17). ``shortest`` is the shortest interval that may be
    written now.
    """

    def add(self, kind: type[Planned], new: NewSchedule, actor: str, shortest: timedelta = SHORTEST) -> Planned:
        """Plan something.

        Raises ``InvalidEdit`` for a schedule that is none (docs/decisions.md: schedules) and for what has nothing to
        do, ``NotFound`` for an unknown agent, and ``Conflict`` for an archived one, for a name that it has something
        planned under already, and for what it has planned already when there is no name to tell the two apart: an
        answer that is given again plans nothing twice.
        """
        columns = new.columns()
        check_jitter(read_schedule(new.schedule, new.timezone, self._now, shortest), new.jitter_seconds)
        check_work(kind.kind, new.prompt, str(columns.get("script", "")))
        agent = self._agent(new.agent)
        planned = kind(
            agent_id=agent.id or 0,
            anchored_at=self._now,
            created_by=actor,
            created_at=self._now,
            updated_at=self._now,
            **columns,
        )
        self._refuse_twin(planned, agent)
        planned.name = self._name(planned, agent)
        self._session.add(planned)
        self._session.flush()
        self._audit(actor, "create", planned, f"{agent.slug}/{planned.name}: {planned.schedule} ({planned.zone})")
        return planned

    def change(self, planned: Planned, change: ScheduleChange, actor: str, shortest: timedelta = SHORTEST) -> Planned:
        """Change what is planned, as ``changes`` says; raises as ``add`` does."""
        found = changes(planned, change, self._now, shortest)
        agent = self._agent(change.agent) if change.agent is not None else None
        if agent is not None and agent.id != planned.agent_id:
            found["agent_id"] = agent.id
        for name, value in found.items():
            setattr(planned, name, value)
        if found.keys() & {"name", "agent_id"}:
            owner = self._session.get(Agent, planned.agent_id)
            assert owner is not None  # the foreign key sees to it
            planned.name = self._name(planned, owner)
        if found:
            planned.updated_at = self._now
            self._session.flush()
            self._audit(actor, "change", planned, ", ".join(sorted(found)))
        return planned

    def remove(self, planned: Planned, actor: str) -> None:
        """Remove a schedule; its jobs stay, and one that runs goes on."""
        self._session.delete(planned)
        self._session.flush()
        self._audit(actor, "remove", planned, planned.name)

    def _audit(self, actor: str, action: str, planned: Planned, detail: str) -> None:
        Audit(self._link, self._now).add(actor, f"{planned.kind}.{action}", planned.ref, detail)

    def _refuse_twin(self, new: Planned, agent: Agent) -> None:
        twin = next((one.name for one in self.of(agent) if one.is_like(new)), None)
        if not new.name and twin is not None:
            raise Conflict(f"the agent {agent.slug} has just that planned already, as {twin!r}; give this one a name")

    def _name(self, planned: Planned, agent: Agent) -> str:
        """Return what it is to be called, which nothing else of the agent is."""
        present = {one.name for one in self.of(agent) if one.ref != planned.ref}
        if planned.name in present:
            raise Conflict(f"the agent {agent.slug} has a schedule {planned.name!r} already; choose another name")
        return planned.name or free_name(planned.unnamed, present)

    def _agent(self, slug: str) -> Agent:
        agent = self._session.exec(select(Agent).where(Agent.slug == slug)).first()
        if agent is None:
            raise NotFound(f"there is no agent {slug!r}")
        if agent.status is AgentStatus.ARCHIVED:
            raise Conflict(f"agent {slug} is archived; restore it first")
        return agent
