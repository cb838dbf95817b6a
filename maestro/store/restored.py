"""What the rows of a restored backup need before Maestro may continue them (ADR 46)."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, literal, update
from sqlalchemy import select as columns
from sqlmodel import col

from maestro.domain.cluster import FencingNumber, KeyFingerprint
from maestro.domain.columns import UtcDateTime
from maestro.domain.deliveries import UNSENT, Delivery, DeliveryState
from maestro.domain.jobs.job import OPEN, Job, JobEnding, JobStatus, JobStep, StepState
from maestro.domain.people.people import WebTicket
from maestro.store.engine.repository import Link, Repository
from maestro.store.engine.statements import is_one_of
from maestro.store.transaction import Transaction

HELD = "RestoredOpen"
"""The error of a job that was open in a backup and was not continued."""


FENCED = 1_000_000
"""More than the number of times that a lease can have been taken since a backup."""


@dataclass(frozen=True, slots=True)
class RestoredJobs:
    """The number of jobs that were open in a backup, and of their chunks that may have been sent since."""

    open: int
    chunks: int


class RestoredRows(Repository):
    """Queries that change the rows of open jobs after a restore."""

    def list_open_jobs(self) -> Sequence[str]:
        """Return the ids of all open jobs, by position."""
        found = columns(col(Job.id)).where(is_one_of(col(Job.status), OPEN)).order_by(col(Job.turn))
        return [job_id for (job_id,) in self._link.connection.execute(found)]

    def begin_new_runs(self, backed_up_at: datetime) -> None:
        """Let every open job begin a new workflow run, and remember since when its sends are unknown.

        A workflow that ran when the backup was made knows results that the store no longer has.
        """
        open_jobs = update(Job).where(is_one_of(col(Job.status), OPEN))
        self._run_statement(
            open_jobs.values(
                backed_up_at=func.coalesce(Job.backed_up_at, literal(backed_up_at, UtcDateTime())),
                claimed_at=None,
                claimed_by="",
            )
        )
        started = update(Job).where(is_one_of(col(Job.status), (JobStatus.PENDING, JobStatus.RUNNING)))
        self._run_statement(started.values(status=JobStatus.PENDING, run=col(Job.run) + 1))
        interrupted = update(JobStep).where(col(JobStep.state) == StepState.RUNNING)
        self._run_statement(interrupted.values(state=StepState.INTERRUPTED, finished_at=self._now))

    def renew_unsent_chunks(self, backed_up_at: datetime, floor: int) -> int:
        """Mark the unsent chunks of open jobs as possibly sent, with new ids after ``floor``; return their number.

        A client that has seen higher ids since the backup would not hear a chunk with its old id.
        """
        unsent = (
            columns(col(Delivery.id))
            .join(Job, col(Job.id) == Delivery.job_id)
            .where(is_one_of(col(Delivery.state), UNSENT), is_one_of(col(Job.status), OPEN))
            .order_by(col(Delivery.id))
        )
        ids = [chunk_id for (chunk_id,) in self._link.connection.execute(unsent)]
        for number, chunk_id in enumerate(ids, floor + 1):
            chunk = update(Delivery).where(col(Delivery.id) == chunk_id)
            tried_at = func.coalesce(Delivery.tried_at, literal(backed_up_at, UtcDateTime()))
            self._run_statement(chunk.values(id=number, state=DeliveryState.SENDING, tried_at=tried_at))
        return len(ids)

    def raise_fencing_numbers(self) -> None:
        """Raise the number of each lease above all that were taken since the backup, and accept this host's keys."""
        self._run_statement(update(FencingNumber).values(number=col(FencingNumber.number) + FENCED))
        self._run_statement(delete(KeyFingerprint))

    def delete_tickets(self) -> None:
        """Delete the tickets of web users, because one that was used after the backup must not be used again."""
        self._run_statement(delete(WebTicket))


def settle_restored_rows(connection: Connection, backed_up_at: datetime, now: datetime, *, hold: bool) -> RestoredJobs:
    """Prepare the rows of a restored database for the first start, in the transaction of the connection.

    New deliveries and chat posts get ids after the present time, as at each start. With ``hold``, jobs that were open
    fail instead of being continued, so that an operator decides about each.
    """
    with closing(Link(connection)) as link:
        tx, rows = Transaction(link, now), RestoredRows(link, now)
        open_jobs = rows.list_open_jobs()
        floor = max(int(now.timestamp() * 1000), tx.deliveries.find_newest_id())
        chunks = rows.renew_unsent_chunks(backed_up_at, floor)
        rows.begin_new_runs(backed_up_at)
        rows.delete_tickets()
        rows.raise_fencing_numbers()
        if hold:
            reason = f"it was open in the backup of {backed_up_at:%Y-%m-%d %H:%M} UTC, and may have been answered since"
            for job_id in open_jobs:
                tx.jobs.close_job(job_id, JobEnding(status=JobStatus.FAILED, error=HELD, reason=reason))
        tx.deliveries.begin_ids_after(floor + chunks)
        tx.chat.begin_ids_after(floor)
        tx.system.audit.add_entry(
            "maestro", "store.restored", f"{backed_up_at:%Y-%m-%dT%H:%M:%SZ}", f"{len(open_jobs)} open jobs"
        )
        link.flush_writes()
    return RestoredJobs(len(open_jobs), chunks)
