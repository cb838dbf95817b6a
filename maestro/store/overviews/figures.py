"""Queries for metrics and for the latency of jobs; their cost does not grow with the size of the store."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, String, bindparam, case, func, or_, select, type_coerce
from sqlalchemy.orm import Mapped
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.jobs.steps import StepKind, step_kind
from maestro.domain.llm.budgets import Client
from maestro.domain.llm.calls import CallState, LLMCall
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
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import ConnectorStatus
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import PreparedStatement, is_in_list, split_into_batches, write_json_list
from maestro.store.jobs.filters import without_index

UNDER_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)
"""The states of a chunk that its job has yet to send or is sending."""

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


class MetricMarks(NamedTuple):
    """The last row of each table at one time; ``position`` identifies the last job, because a resume changes it."""

    inbox: int
    position: int
    call: int
    delivery: int


class OpenJobs(NamedTuple):
    """The status of each open job by position, and the creation time of the oldest pending job."""

    by_position: Mapping[int, JobStatus]
    oldest_pending: datetime | None


class PendingJobs(NamedTuple):
    """The pending jobs of one kind: all, and those whose workflow waits for a worker, with the oldest of each.

    ``since`` is the creation of the oldest job that was never started, ``ready_since`` the oldest claim.
    """

    kind: JobKind
    total: int
    since: datetime | None
    ready: int
    ready_since: datetime | None


class EndedJob(NamedTuple):
    """The end of a job; ``error`` is a class name, ``took`` the time since the job's creation, with all waits."""

    status: JobStatus
    error: str
    took: timedelta


class CallSample(NamedTuple):
    """An attempt at a model call; ``error`` is a class name, ``cost_usd`` is None if unknown."""

    id: int
    state: CallState
    provider: str
    model: str
    error: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class DeliverySample(NamedTuple):
    """A chunk (message part), its state and its platform."""

    id: int
    state: DeliveryState
    platform: str


class MonitoringFigures(Repository):
    """Queries for metrics; the results contain no content of users."""

    def read_last_ids(self) -> MetricMarks:
        """Return the id of the last row in each table, after which the next reading of the metrics begins."""
        return MetricMarks(
            inbox=self._last_key(col(InboxRow.id)),
            position=self._last_key(col(Job.turn)),
            call=self._last_key(col(LLMCall.id)),
            delivery=self._last_key(col(Delivery.id)),
        )

    def count_open_jobs(self) -> OpenJobs:
        """Return the open jobs by position, and when the oldest pending job was created.

        A resumed job does not count as the oldest, because no row has the time when it became pending again.
        """
        rows = self._session.execute(select(col(Job.turn), col(Job.status)).where(col(Job.status).in_(OPEN)))
        oldest = self._session.scalars(
            select(col(Job.created_at))
            .where(col(Job.status) == JobStatus.PENDING, col(Job.run) == 1)
            .order_by(col(Job.turn))
            .limit(1)
        ).first()
        return OpenJobs({turn: status for turn, status in rows if turn is not None}, oldest)

    def count_pending_by_kind(self) -> Sequence[PendingJobs]:
        """Return the pending jobs of each kind that has any."""
        created = case((col(Job.run) == 1, col(Job.created_at)))
        figures = (func.count(), func.min(created), func.count(col(Job.claimed_at)), func.min(col(Job.claimed_at)))
        query = select(col(Job.kind), *figures).where(col(Job.status) == JobStatus.PENDING).group_by(col(Job.kind))
        return [PendingJobs(*row) for row in self._session.execute(query)]

    def count_jobs_of_agents(self, since: datetime) -> Mapping[int, tuple[int, int]]:
        """Return the number of jobs and of failed jobs since a time, by agent id, without what-if jobs."""
        failed = func.sum(case((col(Job.status) == JobStatus.FAILED, 1), else_=0))
        # ``coalesce`` keeps SQLite from the index of agents, with which the grouping would read all jobs.
        agent = func.coalesce(Job.agent_id, 0)
        counts = select(agent, func.count(), failed).where(
            col(Job.created_at) >= since, agent != 0, col(Job.what_if).is_(False)
        )
        rows = self._session.execute(counts.group_by(agent))
        return {agent_id: (count, failures) for agent_id, count, failures in rows}

    def list_ended_jobs(self, after: int, turns: Collection[int]) -> Sequence[EndedJob]:
        """Return the ended jobs with positions above ``after`` or in ``turns``.

        What-if jobs are left out, because they answer no user.
        """
        query = select(col(Job.status), col(Job.error), col(Job.created_at), col(Job.completed_at))
        query = query.where(col(Job.what_if).is_(False))
        return [
            EndedJob(status, error, completed_at - created_at)
            for status, error, created_at, completed_at in self._read_new_or_known(query, col(Job.turn), after, turns)
            if status.ended and completed_at is not None
        ]

    def count_received(self, after: int) -> Mapping[str, int]:
        """Count the messages with inbox ids above ``after``, by platform."""
        # Python counts the messages, because for GROUP BY SQLite would read the whole index of platforms.
        return Counter(self._session.scalars(select(col(InboxRow.platform)).where(col(InboxRow.id) > after)))

    def list_calls(self, after: int, ids: Collection[int]) -> Sequence[CallSample]:
        """Return the attempts at model calls with ids above ``after`` or in ``ids``."""
        query = select(*(getattr(LLMCall, name) for name in CallSample._fields))
        return [CallSample(*row) for row in self._read_new_or_known(query, col(LLMCall.id), after, ids)]

    def list_open_calls(self) -> set[int]:
        """Return the ids of unanswered attempts at model calls of open jobs."""
        ids = self._session.scalars(
            select(col(LLMCall.id))
            .join(Job, col(Job.id) == col(LLMCall.job_id))
            .where(col(Job.status).in_(OPEN), col(LLMCall.state) == CallState.SENT)
        )
        return {call_id for call_id in ids if call_id is not None}

    def list_deliveries(self, after: int, ids: Collection[int]) -> Sequence[DeliverySample]:
        """Return the chunks with ids above ``after`` or in ``ids``."""
        query = select(col(Delivery.id), col(Delivery.state), col(Delivery.platform))
        return [DeliverySample(*row) for row in self._read_new_or_known(query, col(Delivery.id), after, ids)]

    def list_open_deliveries(self) -> set[int]:
        """Return the ids of chunks that open jobs have not sent yet."""
        ids = self._session.scalars(
            select(col(Delivery.id))
            .join(Job, col(Job.id) == col(Delivery.job_id))
            .where(col(Job.status).in_(OPEN), col(Delivery.state).in_(UNDER_WAY))
        )
        return {delivery_id for delivery_id in ids if delivery_id is not None}

    def list_connector_states(self) -> Sequence[ConnectorStatus]:
        """Return the last reported state of each connector."""
        return self._session.scalars(select(ConnectorStatus)).all()

    def _last_key(self, key: Mapped[int | None]) -> int:
        return self._session.scalars(select(func.max(key))).one() or 0

    def _read_new_or_known(
        self, query: Select[*tuple[Any, ...]], key: Mapped[int | None], after: int, known_ids: Collection[int]
    ) -> Iterator[Any]:
        """Yield rows with keys above ``after``, then rows with known keys; one query for both would read all rows."""
        yield from self._session.execute(query.where(key > after))
        for batch in split_into_batches(known_ids):
            yield from self._session.execute(query.where(key.in_(batch), key <= after))


class _Sampled(NamedTuple):
    """A sampled job; its times are stored texts, because most of them are only subtracted."""

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
        .where(is_in_list(col(Delivery.job_id), "jobs"), col(Delivery.purpose) == DeliveryPurpose.ANSWER)
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
        .where(is_in_list(col(JobStep.job_id), "jobs"), col(JobStep.state) == StepState.DONE)
        .where(col(JobStep.finished_at).is_not(None))
        .limit(SAMPLED_STEPS)
    )

    def build_latency_page(self, query: LatencyQuery, period: Period) -> LatencyPage:
        """Return the latency percentiles of the newest matching jobs of each day that completed."""
        days = sampled_period(period)
        jobs = self._sample_jobs(query, days)
        days_of = {job.id: job.created_at[:DATE_CHARS] for job in jobs}
        times = [*self._read_wait_times(jobs), *self._read_answer_times(jobs), *self._read_step_times(days_of)]
        return latency_page(days, len(jobs), times)

    def _sample_jobs(self, query: LatencyQuery, days: Period) -> Sequence[_Sampled]:
        moments = (type_coerce(moment, String) for moment in (Job.created_at, Job.claimed_at, Job.started_at))
        # All days use the same statement, because compiling one for each day takes longer than running it.
        of_day = (
            select(col(Job.id), col(Job.kind), col(Job.run), *moments)
            .where(col(Job.created_at) >= bindparam("begins"), col(Job.created_at) < bindparam("ends"))
            .where(*_query_conditions(query))
            .order_by(col(Job.created_at).desc(), col(Job.id).desc())
            .limit(sampled_jobs_per_day(days))
        )
        results = (self._run_statement(of_day, begins=day.start_time, ends=day.end_time) for day in each_day(days))
        return [_Sampled(*row) for rows in results for row in rows]

    def _read_wait_times(self, jobs: Sequence[_Sampled]) -> Iterator[StageTime]:
        """Yield each job's waits before its first step; resumed jobs are left out, because they had other waits."""
        for job in jobs:
            if job.run == 1 and job.claimed_at and job.started_at:
                day = job.created_at[:DATE_CHARS]
                yield StageTime(day, LatencyStage.LANE, milliseconds_between(job.created_at, job.claimed_at))
                yield StageTime(day, LatencyStage.QUEUED, milliseconds_between(job.claimed_at, job.started_at))

    def _read_answer_times(self, jobs: Sequence[_Sampled]) -> Iterator[StageTime]:
        created = {job.id: job.created_at for job in jobs if job.kind is JobKind.MESSAGE}
        for job_id, first in self._read_rows(self._ANSWERS, jobs=write_json_list(created)):
            yield StageTime(
                created[job_id][:DATE_CHARS], LatencyStage.ANSWER, milliseconds_between(created[job_id], first)
            )

    def _read_step_times(self, days_of: dict[str, str]) -> Iterator[StageTime]:
        for job_id, step, started, finished in self._read_rows(self._STEPS, jobs=write_json_list(days_of)):
            stage = STAGES.get(step_kind(step))
            if stage is not None:
                yield StageTime(days_of[job_id], stage, milliseconds_between(started, finished))


def each_day(period: Period) -> Iterator[Period]:
    """Yield each day of a period as a period of its own, the newest day first."""
    for back in range(period.days):
        day = period.until - timedelta(days=back)
        yield Period(day, day)


def _query_conditions(query: LatencyQuery) -> Iterator[ColumnElement[bool]]:
    yield without_index(Job.status) == JobStatus.COMPLETED
    yield ~col(Job.what_if)
    if query.agent is not None:
        yield (
            without_index(Job.agent_id) == select(col(Agent.id)).where(col(Agent.slug) == query.agent).scalar_subquery()
        )
    if query.client is not None:
        named = or_(col(Client.name) == query.client, col(Client.slug) == query.client)
        yield col(Job.client_id).in_(select(col(Client.id)).where(named))
    if query.platform is not None:
        yield without_index(Job.platform) == query.platform


def milliseconds_between(earlier: str, later: str) -> float:
    """Return the milliseconds from ``earlier`` to ``later``; 0 if the clock was set back between them."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)) / MILLISECOND)
