"""Queries for schedules (heartbeats and crons), and edits of schedules by operators."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain, count
from typing import Any

from sqlalchemy import ColumnElement, and_, not_, or_
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import Job
from maestro.domain.schedules.edits import NewSchedule, ScheduleChange, changed_columns, check_has_work
from maestro.domain.schedules.expressions import SHORTEST, check_jitter, read_schedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.schedules.views import ScheduleFilter, ScheduleState, ScheduleView, schedule_view
from maestro.store.agents.agents import Agents
from maestro.store.engine.repository import Repository, required
from maestro.store.users.audit import Audit

KINDS: tuple[type[ScheduleColumns], ...] = (Heartbeat, Cron)


class Schedules(Repository):
    """Queries for schedules by ``ref``, such as cron-3, and edits of schedules by operators.

    Nothing here calls Temporal, which is updated from the rows (ADR 17). ``actor`` is recorded in the audit log as the
    author; ``shortest`` is the shortest interval that operators may set.
    """

    def get(self, ref: str) -> ScheduleColumns:
        """Return the schedule with this ref; raises ``NotFound``."""
        return required(self.find(ref), f"there is no schedule {ref!r}; `maestro schedules list` shows all schedules")

    def find(self, ref: str | None) -> ScheduleColumns | None:
        """Return the schedule with this ref, or None if there is none."""
        kind, number = _split_ref(ref or "")
        return self._session.get(kind, number) if kind is not None else None

    def all(self) -> Sequence[ScheduleColumns]:
        """Return all schedules: heartbeats before crons, each oldest first."""
        return [planned for kind in KINDS for planned in self._session.exec(select(kind).order_by(col(kind.id)))]

    def of_agent(self, agent: Agent) -> Sequence[ScheduleColumns]:
        """Return all schedules of an agent: heartbeats before crons, each oldest first."""
        queries = (select(kind).where(kind.agent_id == agent.id).order_by(col(kind.id)) for kind in KINDS)
        return [planned for query in queries for planned in self._session.exec(query)]

    def page(self, wanted: ScheduleFilter, after: str | None, limit: int) -> Sequence[ScheduleView]:
        """Return views of up to ``limit`` schedules after a ref: heartbeats before crons, each oldest first."""
        views: list[ScheduleView] = []
        for kind in KINDS:
            if wanted.kind not in (None, str(kind.kind)):
                continue
            page = _with_agents(kind).where(*_after_ref(kind, after)).order_by(col(kind.id))
            if wanted.agent is not None:
                page = page.where(Agent.slug == wanted.agent)
            if wanted.state is not None:
                page = page.where(_state_condition(kind, wanted.state))
            rows = self._session.exec(page.limit(limit - len(views)))
            views += [schedule_view(planned, agent, job, self._now) for planned, agent, job in rows]
        return views

    def view(self, planned: ScheduleColumns) -> ScheduleView:
        kind = type(planned)
        row = self._session.exec(_with_agents(kind).where(col(kind.id) == planned.id)).one()
        planned, agent, job = row
        return schedule_view(planned, agent, job, self._now)

    def add(
        self, kind: type[ScheduleColumns], new: NewSchedule, actor: str, shortest: timedelta = SHORTEST
    ) -> ScheduleColumns:
        """Add a schedule.

        Raises ``InvalidEdit`` for an invalid schedule (docs/decisions.md: schedules) or one without work, and
        ``NotFound`` for an unknown agent. Raises ``Conflict`` for an archived agent, for a name that the agent uses
        already, and for an unnamed copy of one of its schedules, so that processing one answer twice adds its schedule
        once.
        """
        columns = new.columns()
        check_jitter(read_schedule(new.schedule, new.timezone, self._now, shortest), new.jitter_seconds)
        check_has_work(kind.kind, new.prompt, str(columns.get("script", "")))
        agent = self._agents.unarchived(new.agent)
        planned = kind(
            agent_id=agent.id or 0,
            anchored_at=self._now,
            created_by=actor,
            created_at=self._now,
            updated_at=self._now,
            **columns,
        )
        twin = next((schedule.name for schedule in self.of_agent(agent) if schedule.is_duplicate_of(planned)), None)
        if not planned.name and twin is not None:
            raise Conflict(f"the agent {agent.slug} has the same schedule already: {twin!r}; give this one a name")
        planned.name = self._free_name(planned, agent)
        self._save(planned)
        self._audit(actor, "create", planned, f"{agent.slug}/{planned.name}: {planned.schedule} ({planned.zone})")
        return planned

    def change(
        self, planned: ScheduleColumns, change: ScheduleChange, actor: str, shortest: timedelta = SHORTEST
    ) -> ScheduleColumns:
        """Apply ``changes`` to a schedule; raises the errors of ``add``."""
        values = changed_columns(planned, change, self._now, shortest)
        agent = self._agents.unarchived(change.agent) if change.agent is not None else None
        if agent is not None and agent.id != planned.agent_id:
            values["agent_id"] = agent.id
        for name, value in values.items():
            setattr(planned, name, value)
        if values.keys() & {"name", "agent_id"}:
            planned.name = self._free_name(planned, self._agents.get(planned.agent_id))
        if values:
            planned.updated_at = self._now
            self._session.flush()
            self._audit(actor, "change", planned, ", ".join(sorted(values)))
        return planned

    def remove(self, planned: ScheduleColumns, actor: str) -> None:
        """Delete a schedule; its jobs remain, and a running job continues."""
        self._remove(planned)
        self._audit(actor, "remove", planned, planned.name)

    def _audit(self, actor: str, action: str, planned: ScheduleColumns, detail: str) -> None:
        Audit(self._link, self._now).add(actor, f"{planned.kind}.{action}", planned.ref, detail)

    def _free_name(self, planned: ScheduleColumns, agent: Agent) -> str:
        """Return the name of a schedule, or a new one that no other schedule of the agent has."""
        present = {schedule.name for schedule in self.of_agent(agent) if schedule.ref != planned.ref}
        if planned.name in present:
            raise Conflict(f"the agent {agent.slug} has a schedule {planned.name!r} already; choose another name")
        numbered = (f"{planned.unnamed} {number}" for number in count(2))
        return planned.name or next(name for name in chain((planned.unnamed,), numbered) if name not in present)

    @property
    def _agents(self) -> Agents:
        return Agents(self._link, self._now)


def _split_ref(ref: str) -> tuple[type[ScheduleColumns] | None, int]:
    """Split a ref into the kind of schedule and its number; the kind is None if the ref is invalid."""
    word, _, number = ref.rpartition("-")
    kind = next((kind for kind in KINDS if str(kind.kind) == word), None)
    fits = number.isascii() and number.isdecimal() and len(number) <= 18
    return (kind, int(number)) if kind is not None and fits else (None, 0)


def _after_ref(kind: type[ScheduleColumns], after: str | None) -> Iterator[ColumnElement[bool]]:
    """Yield the condition for schedules of a kind that follow a ref in lists; nothing for an invalid ref."""
    last, number = _split_ref(after or "")
    if last is kind:
        yield col(kind.id) > number
    elif last is not None and KINDS.index(kind) < KINDS.index(last):
        yield col(kind.id) < 0


def _with_agents(kind: type[ScheduleColumns]) -> Any:
    return (
        select(kind, Agent, Job)
        .join(Agent, col(Agent.id) == kind.agent_id)
        .outerjoin(Job, col(Job.id) == kind.last_job_id)
    )


def _state_condition(kind: type[ScheduleColumns], state: ScheduleState) -> ColumnElement[bool]:
    """Return the SQL condition for schedules in a state, equivalent to ``schedule_state``."""
    ended = col(kind.ended_at).is_not(None)
    paused = or_(not_(col(kind.enabled)), col(kind.paused_reason) != "")
    works = col(Agent.status) == AgentStatus.ACTIVE
    match state:
        case ScheduleState.ENDED:
            return ended
        case ScheduleState.PAUSED:
            return and_(not_(ended), paused)
        case ScheduleState.AGENT_PAUSED:
            return and_(not_(ended), not_(paused), not_(works))
        case _:
            return and_(not_(ended), not_(paused), works)
