"""Runs of heartbeats and crons that operators begin: as rows, which the dispatcher starts (ADR 17)."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from sqlmodel import col, select
from ulid import ULID

from maestro.domain.agents.agent import Agent, AgentStatus, payer_of
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.job import Job
from maestro.domain.schedules.edits import BackfillWish
from maestro.domain.schedules.firing import job_of, no_run, overdue
from maestro.domain.schedules.schedule import Planned
from maestro.domain.schedules.texts import read_zone, recall_schedule
from maestro.domain.schedules.times import times
from maestro.domain.schedules.views import BackfilledTime, BackfillView
from maestro.store.agents import Agents
from maestro.store.audit import Audit
from maestro.store.jobs import Jobs
from maestro.store.repository import Repository
from maestro.store.schedule_runs import ScheduleRuns

MOST_TIMES = 100
"""Times that are made up for at once."""

_SMALLEST = timedelta(microseconds=1)


class ScheduleStarts(Repository):
    """Begins runs beside the schedule, of paused ones too; ``actor`` is who the audit log says it was."""

    def run_now(self, planned: Planned, actor: str) -> str:
        """Begin a run and return its job's id; raises ``Conflict`` while another is open, or if nobody would work."""
        agent = self._ready(planned)
        job_id = f"{planned.kind}-{ULID()}"
        self._begin(planned, agent, job_id, None)
        Audit(self._link, self._now).add(actor, f"{planned.kind}.trigger", planned.ref, job_id)
        return job_id

    def backfill(self, planned: Planned, wish: BackfillWish, prefix: str, actor: str) -> BackfillView:
        """Begin a run for each time of the schedule that passed without one, or tell of them.

        They run one after the other. ``prefix`` begins the ids of the runs that Temporal begins, and so those of these:
        a time that had its run has no other. Raises ``InvalidEdit`` for times to come and for more than
        ``MOST_TIMES``, and ``Conflict`` as ``run_now`` does.
        """
        wish.check(self._now)
        found = self._times(planned, wish, prefix)
        missed = [one for one in found if not one.ran]
        if missed and not wish.preview:
            agent = self._ready(planned)
            for one in missed:
                self._begin(planned, agent, one.job_id, one.time)
            Audit(self._link, self._now).add(actor, f"{planned.kind}.backfill", planned.ref, f"{len(missed)} runs")
        return BackfillView(preview=wish.preview, count=len(missed), times=found)

    def begin_late(self, ref: str, prefix: str) -> bool:
        """Begin what was to run once and was not, though its moment is over; say whether there was any of it.

        Temporal does not begin what it hears of only later. Should it do so all the same, both make the same job.
        """
        planned = ScheduleRuns(self._link, self._now).find(ref)
        moment = overdue(planned, self._now) if planned is not None else None
        agent = self._session.get(Agent, planned.agent_id) if planned is not None else None
        if planned is None or agent is None or moment is None:
            return False
        job_id = _job_id(prefix, moment)
        open_job = ScheduleRuns(self._link, self._now).open_job(ref)
        if no_run(planned, agent, open_job) or Jobs(self._link, self._now).find(job_id) is not None:
            return False
        self._begin(planned, agent, job_id, moment)
        return True

    def _times(self, planned: Planned, wish: BackfillWish, prefix: str) -> tuple[BackfilledTime, ...]:
        """Return the times of the schedule in a stretch; which of them had a run is known by the ids of these."""
        schedule = recall_schedule(planned.schedule, planned.zone, planned.anchored_at)
        every = times(schedule, read_zone(planned.zone), planned.anchored_at, wish.start - _SMALLEST)
        passed = list(islice(takewhile(lambda time: time <= wish.end, every), MOST_TIMES + 1))
        if len(passed) > MOST_TIMES:
            raise InvalidEdit(f"these are more than {MOST_TIMES} times; choose from and to nearer to each other")
        ids = [_job_id(prefix, time) for time in passed]
        known = set(self._session.exec(select(Job.id).where(col(Job.id).in_(ids))))
        return tuple(
            BackfilledTime(time=time, job_id=job_id, ran=job_id in known)
            for time, job_id in zip(passed, ids, strict=True)
        )

    def _ready(self, planned: Planned) -> Agent:
        """Return who works on the run; raises ``Conflict`` if nobody would, or another run is open."""
        agent = self._session.get(Agent, planned.agent_id)
        assert agent is not None  # the foreign key sees to it
        if agent.status is not AgentStatus.ACTIVE:
            raise Conflict(f"the agent {agent.slug} is {agent.status}; make it active first")
        present = ScheduleRuns(self._link, self._now).open_job(planned.ref)
        if present is not None:
            raise Conflict(f"job {present} of {planned.ref} is not over; wait for its end, or cancel it")
        return agent

    def _begin(self, planned: Planned, agent: Agent, job_id: str, slot: datetime | None) -> None:
        binding = Agents(self._link, self._now).binding(planned.address)
        job = job_of(planned, payer_of(agent, binding), job_id, slot)
        if slot is not None:
            job.lane = f"schedule:{planned.ref}"
        ScheduleRuns(self._link, self._now).began(Jobs(self._link, self._now).add(job))


def _job_id(prefix: str, time: datetime) -> str:
    """Return the id that Temporal gives to the run of a time."""
    return f"{prefix}-{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
