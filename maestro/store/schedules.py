"""Heartbeats and crons, as they are listed and shown."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, not_, or_
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned
from maestro.domain.schedules.views import Plan, ScheduleFilter, ScheduleState, ScheduleView, schedule_view
from maestro.store.repository import Repository

KINDS: tuple[type[Planned], ...] = (Heartbeat, Cron)


class Schedules(Repository):
    """What is to run when, by its ``ref``, such as cron-3."""

    def get(self, ref: str) -> Planned:
        """Return a schedule; raises ``NotFound``."""
        found = self._find(ref)
        if found is None:
            raise NotFound(f"there is no schedule {ref!r}; `maestro schedules list` shows which there are")
        return found

    def all(self) -> Sequence[Planned]:
        """Return everything that is planned, heartbeats first, the oldest first."""
        return [planned for kind in KINDS for planned in self._session.exec(select(kind).order_by(col(kind.id)))]

    def of(self, agent: Agent) -> Sequence[Planned]:
        """Return everything that is planned for an agent, heartbeats first, the oldest first."""
        wanted = (select(kind).where(kind.agent_id == agent.id).order_by(col(kind.id)) for kind in KINDS)
        return [planned for one in wanted for planned in self._session.exec(one)]

    def page(self, wanted: ScheduleFilter, after: str | None, limit: int) -> Sequence[ScheduleView]:
        """Return up to ``limit`` schedules, heartbeats first, the oldest first, those that follow the ref ``after``."""
        kinds = [kind for kind in KINDS if wanted.kind in (None, str(kind.kind))]
        found: list[ScheduleView] = []
        for kind in kinds:
            page = _joined(kind).where(*_conditions(kind, wanted), *_behind(kind, after)).order_by(col(kind.id))
            rows = self._session.exec(page.limit(limit - len(found)))
            found += [schedule_view(Plan(*row), self._now) for row in rows]
        return found

    def view(self, planned: Planned) -> ScheduleView:
        """Show a schedule."""
        kind = type(planned)
        row = self._session.exec(_joined(kind).where(col(kind.id) == planned.id)).one()
        return schedule_view(Plan(*row), self._now)

    def _find(self, ref: str) -> Planned | None:
        kind, number = _parts(ref)
        return self._session.get(kind, number) if kind is not None else None


def _parts(ref: str) -> tuple[type[Planned] | None, int]:
    """Return the kind and the number that a ref names; no kind when it names none."""
    word, _, number = ref.rpartition("-")
    kind = next((kind for kind in KINDS if str(kind.kind) == word), None)
    fits = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
    return (kind, int(number)) if kind is not None and fits else (None, 0)


def _behind(kind: type[Planned], after: str | None) -> Iterator[ColumnElement[bool]]:
    """Yield the condition for what follows a ref; what is no ref has nothing before it."""
    last, number = _parts(after or "")
    if last is kind:
        yield col(kind.id) > number
    elif last is not None and KINDS.index(kind) < KINDS.index(last):
        yield col(kind.id) < 0


def _joined(kind: type[Planned]) -> Any:
    return (
        select(kind, Agent, Job)
        .join(Agent, col(Agent.id) == kind.agent_id)
        .outerjoin(Job, col(Job.id) == kind.last_job_id)
    )


def _conditions(kind: type[Planned], wanted: ScheduleFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.agent is not None:
        yield col(Agent.slug) == wanted.agent
    if wanted.state is not None:
        yield _is_so(kind, wanted.state)


def _is_so(kind: type[Planned], state: ScheduleState) -> ColumnElement[bool]:
    """Return the condition that ``state_of`` decides by."""
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


_MOST_DIGITS = 18
