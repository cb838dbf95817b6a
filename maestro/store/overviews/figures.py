"""Queries for metrics: the numbers of open rows, and the rows that began or ended since an earlier query.

Each query finds its rows by an index, so its cost grows with the number of changes and not with the size of the store.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, case, func, select
from sqlalchemy.orm import Mapped
from sqlmodel import col

from maestro.domain.deliveries import Delivery, DeliveryState
from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import ConnectorStatus
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import batches

UNDER_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)
"""The states of a chunk that its job is still sending."""


@dataclass(frozen=True)
class MetricMarks:
    """The last row of each table at a moment; a job is identified by its position, because a resume changes it."""

    inbox: int
    position: int
    call: int
    delivery: int


@dataclass(frozen=True)
class OpenJobs:
    """The status of each job that has not ended, by position, and the creation time of the oldest pending job."""

    by_position: Mapping[int, JobStatus]
    oldest_pending: datetime | None


@dataclass(frozen=True)
class EndedJob:
    """The end of a job; ``error`` is a class name, ``took`` the time from its creation, waits included."""

    status: JobStatus
    error: str
    took: timedelta


@dataclass(frozen=True)
class CallSample:
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


@dataclass(frozen=True)
class DeliverySample:
    """A chunk and its state."""

    id: int
    state: DeliveryState
    platform: str


class MonitoringFigures(Repository):
    """Queries for metrics, which contain no content of users."""

    def marks(self) -> MetricMarks:
        """Return the id of the last row in each table; the next query reads the rows after it."""
        return MetricMarks(
            inbox=self._last_key(col(InboxRow.id)),
            position=self._last_key(col(Job.turn)),
            call=self._last_key(col(LLMCall.id)),
            delivery=self._last_key(col(Delivery.id)),
        )

    def open_jobs(self) -> OpenJobs:
        """Return the open jobs by position, and when the oldest pending one was created.

        Only jobs that were never started count for the oldest, because no row has the time when a resumed job began to
        wait.
        """
        rows = self._session.execute(select(col(Job.turn), col(Job.status)).where(col(Job.status).in_(OPEN)))
        oldest = self._session.scalars(
            select(col(Job.created_at))
            .where(col(Job.status) == JobStatus.PENDING, col(Job.run) == 1)
            .order_by(col(Job.turn))
            .limit(1)
        ).first()
        return OpenJobs({turn: status for turn, status in rows if turn is not None}, oldest)

    def jobs_of_agents(self, since: datetime) -> Mapping[int, tuple[int, int]]:
        """Return the numbers of all and of failed jobs of each agent since a moment, without what-ifs."""
        failed = func.sum(case((col(Job.status) == JobStatus.FAILED, 1), else_=0))
        # ``coalesce`` keeps SQLite from grouping by the index of agents, which would read all jobs.
        agent = func.coalesce(Job.agent_id, 0)
        counts = select(agent, func.count(), failed).where(
            col(Job.created_at) >= since, agent != 0, col(Job.what_if).is_(False)
        )
        rows = self._session.execute(counts.group_by(agent))
        return {agent_id: (count, failures) for agent_id, count, failures in rows}

    def ended_jobs(self, after: int, turns: Collection[int]) -> Sequence[EndedJob]:
        """Return the ended jobs among those with positions above ``after`` and those at the positions ``turns``.

        What-ifs are left out, because they answer no user.
        """
        query = select(col(Job.status), col(Job.error), col(Job.created_at), col(Job.completed_at))
        query = query.where(col(Job.what_if).is_(False))
        return [
            EndedJob(status, error, completed_at - created_at)
            for status, error, created_at, completed_at in self._new_or_known(query, col(Job.turn), after, turns)
            if status.ended and completed_at is not None
        ]

    def received(self, after: int) -> Mapping[str, int]:
        """Count messages with inbox ids above ``after`` by platform."""
        # The messages are counted in Python, because with GROUP BY SQLite reads the whole index of platforms.
        return Counter(self._session.scalars(select(col(InboxRow.platform)).where(col(InboxRow.id) > after)))

    def calls(self, after: int, ids: Collection[int]) -> Sequence[CallSample]:
        """Return the model calls with ids above ``after``, and those with the given ids."""
        query = select(*(getattr(LLMCall, field.name) for field in fields(CallSample)))
        return [CallSample(*row) for row in self._new_or_known(query, col(LLMCall.id), after, ids)]

    def open_calls(self) -> set[int]:
        """Return the ids of unanswered model calls of open jobs."""
        ids = self._session.scalars(
            select(col(LLMCall.id))
            .join(Job, col(Job.id) == col(LLMCall.job_id))
            .where(col(Job.status).in_(OPEN), col(LLMCall.state) == CallState.SENT)
        )
        return {call_id for call_id in ids if call_id is not None}

    def deliveries(self, after: int, ids: Collection[int]) -> Sequence[DeliverySample]:
        """Return the chunks with ids above ``after``, and those with the given ids."""
        query = select(col(Delivery.id), col(Delivery.state), col(Delivery.platform))
        return [DeliverySample(*row) for row in self._new_or_known(query, col(Delivery.id), after, ids)]

    def open_deliveries(self) -> set[int]:
        """Return the ids of chunks that open jobs have yet to send."""
        ids = self._session.scalars(
            select(col(Delivery.id))
            .join(Job, col(Job.id) == col(Delivery.job_id))
            .where(col(Job.status).in_(OPEN), col(Delivery.state).in_(UNDER_WAY))
        )
        return {delivery_id for delivery_id in ids if delivery_id is not None}

    def connectors(self) -> Sequence[ConnectorStatus]:
        """Return the last reported state of each connector."""
        return self._session.scalars(select(ConnectorStatus)).all()

    def _last_key(self, key: Mapped[int | None]) -> int:
        return self._session.scalars(select(func.max(key))).one() or 0

    def _new_or_known(
        self, wanted: Select[*tuple[Any, ...]], key: Mapped[int | None], after: int, known: Collection[int]
    ) -> Iterator[Any]:
        """Yield rows with keys above ``after``, then those with known keys: one query for both would read all rows."""
        yield from self._session.execute(wanted.where(key > after))
        for batch in batches(known):
            yield from self._session.execute(wanted.where(key.in_(batch), key <= after))
