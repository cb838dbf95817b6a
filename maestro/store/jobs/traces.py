"""Queries that read the rows of ended jobs for their traces (``maestro.domain.jobs.traces``)."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Select, case, func
from sqlalchemy import select as columns
from sqlmodel import col, or_

from maestro.domain.agents.agent import Agent
from maestro.domain.deliveries import Delivery
from maestro.domain.jobs.job import Job, JobStep, StepState
from maestro.domain.jobs.traces import TracedCall, TracedChunk, TracedJob, TracedStep, TracedTool, TraceRecord
from maestro.domain.llm.calls import LLMCall
from maestro.domain.messages import InboxRow
from maestro.domain.tools import ToolRun
from maestro.store.engine.repository import Repository

Traced = TypeVar("Traced", TracedStep, TracedCall, TracedTool, TracedChunk)


class JobEnd(NamedTuple):
    """The end of a job in one of its runs."""

    completed_at: datetime
    job_id: str
    run: int


class JobTraces(Repository):
    """Queries for the rows of traces; they read no text of users, models or tools."""

    def list_ends(self, after: tuple[datetime, str], limit: int) -> Sequence[JobEnd]:
        """Return the next ended jobs in the order of their ends, after an end and the id of its job."""
        moment, job_id = after
        ended = col(Job.completed_at)
        later = or_(ended > moment, (ended == moment) & (col(Job.id) > job_id))
        found = columns(ended, col(Job.id), col(Job.run)).where(ended.is_not(None), ended >= moment, later)
        return [JobEnd(*row) for row in self._run_statement(found.order_by(ended, col(Job.id)).limit(limit))]

    def count_ends(self, since: datetime, until: datetime) -> int:
        """Count the jobs that ended after ``since`` and by ``until``."""
        ended = col(Job.completed_at)
        counted = columns(func.count()).select_from(Job).where(ended.is_not(None), ended > since, ended <= until)
        return int(self._run_statement(counted).scalar_one())

    def read_records(self, job_ids: Collection[str]) -> Sequence[TraceRecord]:
        """Return the rows for the traces of these jobs; a job that was deleted meanwhile is left out."""
        names = [name for name in TracedJob._fields if name not in ("agent", "message_id", "sent_at", "received_at")]
        joined = (Agent.slug, InboxRow.message_id, InboxRow.sent_at, InboxRow.received_at)
        selected: list[Any] = [*(getattr(Job, name) for name in names), *joined]
        query: Select[Any] = (
            columns(*selected)
            .outerjoin(Agent, col(Agent.id) == Job.agent_id)
            .outerjoin(InboxRow, col(InboxRow.id) == Job.inbox_id)
            .where(col(Job.id).in_(job_ids))
        )
        jobs = [TracedJob(*row) for row in self._run_statement(query)]
        steps, calls = self._read_parts(JobStep, TracedStep, job_ids), self._read_parts(LLMCall, TracedCall, job_ids)
        tools, chunks = self._read_parts(ToolRun, TracedTool, job_ids), self._read_parts(Delivery, TracedChunk, job_ids)
        related = self._read_creation_times(jobs)
        return [TraceRecord(job, steps[job.id], calls[job.id], tools[job.id], chunks[job.id], related) for job in jobs]

    def _read_parts(self, table: Any, kind: type[Traced], job_ids: Collection[str]) -> Mapping[str, Sequence[Traced]]:
        selected: list[Any] = [getattr(table, name) for name in kind._fields]
        if kind is TracedStep:  # The results of other attempts are not needed, and may be long.
            selected[-1] = case((col(JobStep.state) == StepState.WAITING, col(JobStep.result)), else_="")
        query: Select[Any] = columns(*selected).where(table.job_id.in_(job_ids)).order_by(table.id)
        parts: dict[str, list[Traced]] = defaultdict(list)
        for row in self._run_statement(query):
            parts[row[0]].append(kind(*row))
        return parts

    def _read_creation_times(self, jobs: Collection[TracedJob]) -> Mapping[str, datetime]:
        related = {other for job in jobs for other in (job.parent_id, job.merged_into, job.restarted_from) if other}
        rows = self._run_statement(columns(col(Job.id), col(Job.created_at)).where(col(Job.id).in_(related)))
        return {row[0]: row[1] for row in rows}
