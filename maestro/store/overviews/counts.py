"""Queries that count jobs by status, by kind of failure, and for the overview; each reads a limited number of rows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import String, func, type_coerce
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.filters import FailedJob, FailureCount, JobFilter
from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus
from maestro.domain.messages import InboxRow
from maestro.domain.overview import FailureRecord, OldestJob, WorkOverview
from maestro.store.engine.repository import Repository
from maestro.store.jobs.filters import conditions, failed_step, newest_first, unindexed

MOST = 20_000
"""The most jobs that are counted, newest first; a view shows whether its count stopped there."""
SAMPLE = 1_000
"""The most answers that are timed, and the most failures that are grouped, newest first."""


class JobCounts(Repository):
    """Queries for counts of jobs by status and by failure."""

    def statuses(self, wanted: JobFilter) -> Mapping[JobStatus, int]:
        """Count jobs by status; the status in the filter is ignored."""
        others = wanted.model_copy(update={"status": ()})
        status = unindexed(Job.status)
        counts = select(status, func.count()).where(*conditions(others, sifted=True)).group_by(status)
        return dict(self._run(counts).all())

    def failures(self, wanted: JobFilter) -> Sequence[FailureCount]:
        """Return the matching failed jobs (or jobs of the statuses in the filter), grouped by cause."""
        chosen = wanted if wanted.status else wanted.model_copy(update={"status": (JobStatus.FAILED,)})
        each = (
            select(Job.id, Job.error, Job.reason, Job.agent_id)
            # The times stay texts, because only two of the thousands in a group are parsed for display.
            .add_columns(
                type_coerce(Job.completed_at, String).label("completed_at"),
                func.coalesce(failed_step(), "").label("step"),
            )
            .where(*conditions(chosen), col(Job.completed_at).is_not(None))
            .subquery()
        )
        kind = (each.c.error, each.c.step, each.c.reason, each.c.agent_id)
        groups = (
            select(each.c.error, each.c.step, each.c.reason, Agent.slug)
            .add_columns(func.count(), func.min(each.c.completed_at), func.max(each.c.completed_at))
            .add_columns(func.max(each.c.id))
            .outerjoin_from(each, Agent, col(Agent.id) == each.c.agent_id)
            .group_by(*kind)
        )
        return [FailureCount(*row) for row in self._run(groups).all()]

    def failed(self, wanted: JobFilter) -> Iterator[FailedJob]:
        """Yield the failed jobs that match a filter, newest first."""
        failed = select(Job.id, Job.reason, Job.created_at).where(*conditions(wanted, sifted=True))
        yield from (
            FailedJob(*row) for row in self._run(failed.order_by(col(Job.created_at).desc(), col(Job.id).desc()))
        )


class Overview(Repository):
    """Queries for the overview page of operators."""

    def work(self, since: datetime) -> WorkOverview:
        """Return counts and the oldest of the open jobs, and the outcomes of jobs since a moment."""
        recent = select(Job.status).where(col(Job.created_at) >= since).order_by(*newest_first()).limit(MOST + 1)
        statuses: list[JobStatus] = list(self._run(recent).scalars())
        return WorkOverview(
            any_job=self._first(select(Job.id).limit(1)) is not None,
            open=self._count_open(),
            ended={status: count for status, count in Counter(statuses[:MOST]).items() if status.ended},
            capped=len(statuses) > MOST,
            oldest=[*self._oldest_pending(), *self._oldest_waiting()],
            pending=self._count_pending(),
        )

    def first_answers(self, since: datetime) -> Sequence[tuple[datetime, timedelta]]:
        """Return how long the newest messages since a moment waited for the first chunk of their answer."""
        sent = (
            select(func.min(Delivery.sent_at))
            .where(
                Delivery.job_id == Job.id,
                Delivery.purpose == DeliveryPurpose.ANSWER,
                col(Delivery.sent_at).is_not(None),
            )
            .correlate(Job)
            .scalar_subquery()
        )
        chosen = (
            select(Job.id)
            .where(
                col(Job.created_at) >= since,
                unindexed(col(Job.kind)) == JobKind.MESSAGE,
                unindexed(col(Job.status)) == JobStatus.COMPLETED,
            )
            .order_by(*newest_first())
            .limit(SAMPLE)
        )
        answered = (
            select(InboxRow.received_at, sent)
            .select_from(Job)
            .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
            .where(col(Job.id).in_(chosen.scalar_subquery()))
        )
        return [(came, left - came) for came, left in self._run(answered) if left is not None]

    def failures(self, since: datetime) -> Sequence[FailureRecord]:
        """Return the newest failed jobs since a moment, newest first."""
        failed = (
            select(Job.id, Job.error, Job.reason)
            .add_columns(col(Job.completed_at), col(Job.created_at))
            .where(col(Job.created_at) >= since, unindexed(col(Job.status)) == JobStatus.FAILED)
            .order_by(*newest_first())
            .limit(SAMPLE)
        )
        return [
            FailureRecord(id_, error, reason, ended or came) for id_, error, reason, ended, came in self._run(failed)
        ]

    def _count_open(self) -> Mapping[JobStatus, int]:
        counted = select(Job.status, func.count()).where(col(Job.status).in_(OPEN)).group_by(col(Job.status))
        return dict(self._run(counted).all())

    def _oldest_pending(self) -> Sequence[OldestJob]:
        pending = select(Job.id, Job.created_at).where(Job.status == JobStatus.PENDING).order_by(col(Job.turn)).limit(1)
        return [OldestJob(*row) for row in self._run(pending)]

    def _oldest_waiting(self) -> Sequence[OldestJob]:
        waiting = (
            select(Job.id, Job.waits_since, Job.waits_for)
            .where(Job.status == JobStatus.WAITING, col(Job.waits_since).is_not(None))
            .order_by(col(Job.waits_since))
            .limit(1)
        )
        return [OldestJob(*row) for row in self._run(waiting)]

    def _count_pending(self) -> Mapping[tuple[str, str], int]:
        pending = select(col(Job.platform), col(Job.account)).where(Job.status == JobStatus.PENDING).limit(MOST)
        return Counter((platform, account) for platform, account in self._run(pending))
