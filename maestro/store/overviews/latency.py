"""Queries for the latency of jobs, computed from a sample of at most a few thousand rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, String, bindparam, func, or_, select, type_coerce
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.job import Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.jobs.steps import StepKind, kind_of
from maestro.domain.llm.budgets import Client
from maestro.domain.llm.usage import Period
from maestro.domain.llm.usage_views import (
    SAMPLED_STEPS,
    LatencyPage,
    LatencyQuery,
    LatencyStage,
    StageTime,
    latency_page,
    sampled_jobs_per_day,
    sampled_period,
)
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import PreparedStatement, in_list, json_list
from maestro.store.jobs.filters import unindexed

STAGES: Mapping[StepKind | None, LatencyStage] = {
    StepKind.ROUTE: LatencyStage.ROUTE,
    StepKind.MEDIA: LatencyStage.MEDIA,
    StepKind.COMPACTION: LatencyStage.COMPACTION,
    StepKind.CONTEXT: LatencyStage.CONTEXT,
    StepKind.MODEL: LatencyStage.MODEL,
    StepKind.TOOL: LatencyStage.TOOLS,
    StepKind.TAGS: LatencyStage.TAGS,
    StepKind.DELIVER: LatencyStage.DELIVER,
}
"""The latency stage of each kind of step; other steps are too short to show."""
DATE_CHARS = len("2026-11-20")
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A sampled job, with times as stored texts, because most times are only subtracted."""

    id: str
    kind: JobKind
    run: int
    created_at: str
    claimed_at: str | None
    started_at: str | None


class Latency(Repository):
    """Queries for the latency of jobs."""

    _ANSWERS = PreparedStatement(
        select(col(Delivery.job_id), func.min(type_coerce(Delivery.sent_at, String)))
        .where(in_list(col(Delivery.job_id), "jobs"), col(Delivery.purpose) == DeliveryPurpose.ANSWER)
        .where(col(Delivery.sent_at).is_not(None))
        .group_by(col(Delivery.job_id))
    )
    _STEPS = PreparedStatement(
        select(
            col(JobStep.job_id),
            col(JobStep.step),
            type_coerce(JobStep.started_at, String),
            type_coerce(JobStep.finished_at, String),
        )
        .where(in_list(col(JobStep.job_id), "jobs"), col(JobStep.state) == StepState.DONE)
        .where(col(JobStep.finished_at).is_not(None))
        .limit(SAMPLED_STEPS)
    )

    def page(self, query: LatencyQuery, period: Period) -> LatencyPage:
        """Return the latency percentiles of a sample of the matching completed jobs: the newest of each day."""
        days = sampled_period(period)
        jobs = self._sample_jobs(query, days)
        days_of = {job.id: job.created_at[:DATE_CHARS] for job in jobs}
        times = [*self._wait_times(jobs), *self._answer_times(jobs), *self._step_times(days_of)]
        return latency_page(days, len(jobs), times)

    def _sample_jobs(self, query: LatencyQuery, days: Period) -> Sequence[_Sampled]:
        moments = (type_coerce(moment, String) for moment in (Job.created_at, Job.claimed_at, Job.started_at))
        # The same statement serves all days, because compiling one for each day takes longer than running it.
        of_day = (
            select(col(Job.id), col(Job.kind), col(Job.run), *moments)
            .where(col(Job.created_at) >= bindparam("begins"), col(Job.created_at) < bindparam("ends"))
            .where(*_query_conditions(query))
            .order_by(col(Job.created_at).desc(), col(Job.id).desc())
            .limit(sampled_jobs_per_day(days))
        )
        results = (self._run(of_day, begins=day.start_time, ends=day.end_time) for day in _days_of(days))
        return [_Sampled(*row) for rows in results for row in rows]

    def _wait_times(self, jobs: Sequence[_Sampled]) -> Iterator[StageTime]:
        """Yield each job's wait for its first step; resumed runs are left out, because other waits precede them."""
        for job in jobs:
            if job.run == 1 and job.claimed_at and job.started_at:
                day = job.created_at[:DATE_CHARS]
                yield StageTime(day, LatencyStage.LANE, _milliseconds(job.created_at, job.claimed_at))
                yield StageTime(day, LatencyStage.QUEUED, _milliseconds(job.claimed_at, job.started_at))

    def _answer_times(self, jobs: Sequence[_Sampled]) -> Iterator[StageTime]:
        created = {job.id: job.created_at for job in jobs if job.kind is JobKind.MESSAGE}
        for job_id, first in self._rows(self._ANSWERS, jobs=json_list(created)):
            yield StageTime(created[job_id][:DATE_CHARS], LatencyStage.ANSWER, _milliseconds(created[job_id], first))

    def _step_times(self, days_of: dict[str, str]) -> Iterator[StageTime]:
        for job_id, step, started, finished in self._rows(self._STEPS, jobs=json_list(days_of)):
            stage = STAGES.get(kind_of(step))
            if stage is not None:
                yield StageTime(days_of[job_id], stage, _milliseconds(started, finished))


def _days_of(period: Period) -> Iterator[Period]:
    """Yield each day of a period, the newest first."""
    for back in range(period.days):
        day = period.until - timedelta(days=back)
        yield Period(day, day)


def _query_conditions(query: LatencyQuery) -> Iterator[ColumnElement[bool]]:
    yield unindexed(Job.status) == JobStatus.COMPLETED
    yield ~col(Job.what_if)
    if query.agent is not None:
        yield unindexed(Job.agent_id) == select(col(Agent.id)).where(col(Agent.slug) == query.agent).scalar_subquery()
    if query.client is not None:
        named = or_(col(Client.name) == query.client, col(Client.slug) == query.client)
        yield col(Job.client_id).in_(select(col(Client.id)).where(named))
    if query.platform is not None:
        yield unindexed(Job.platform) == query.platform


def _milliseconds(earlier: str, later: str) -> float:
    """Return the milliseconds from one time to a later one; 0 if the clock was set back between them."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)) / MILLISECOND)
