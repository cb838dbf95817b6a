"""Messages that are answered together: by the job that answers in the place of others.

See docs/decisions.md: busy agents.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, or_, select, update

from maestro.domain.deliveries import Delivery, DeliveryState, Purpose
from maestro.domain.jobs.busy import Asked
from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus
from maestro.domain.messages import InboxRow, LaneKey
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository, read_once


class Merges(Repository):
    """``queue.merged_into``: which job answers in whose place."""

    _also_changes = ("Jobs",)

    _OWN = Prepared(select(InboxRow).where(col(InboxRow.id) == bindparam("own")))
    _ASKED = Prepared(
        select(InboxRow)
        .where(
            or_(
                col(InboxRow.id) == bindparam("own"),
                col(InboxRow.id).in_(select(Job.inbox_id).where(Job.merged_into == bindparam("host"))),
            )
        )
        .order_by(col(InboxRow.id))
    )
    _BEHIND = (
        select(Job, InboxRow)
        .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .where(
            Job.lane == bindparam("its_lane"), Job.status == JobStatus.PENDING, col(Job.turn) > bindparam("its_turn")
        )
        .order_by(col(Job.turn))
        .limit(bindparam("at_most"))
    )

    def asked(self, job: Job) -> Sequence[InboxRow]:
        """Return every message that a job answers, in the order they came in; none for one that answers no message.

        They are values, which cannot be changed.
        """
        if job.inbox_id is None:
            return ()
        alone = job.kind is not JobKind.MESSAGE or ("none", job.id) in self._known()
        return self._asked(job.inbox_id, None if alone else job.id)

    def assume_none(self, job_id: str) -> None:
        """Take it that a job answers in the place of no other one, as the caller has read in this transaction."""
        self._known()[("none", job_id)] = True

    @read_once
    def _asked(self, inbox_id: int, host: str | None) -> Sequence[InboxRow]:
        if host is None:
            return self._read_all(self._OWN, InboxRow, own=inbox_id)
        return self._read_all(self._ASKED, InboxRow, own=inbox_id, host=host)

    def behind(self, job: Job, limit: int) -> Sequence[Asked]:
        """Return what waits behind a job in its lane, in order."""
        where = {"its_lane": job.lane, "its_turn": job.turn, "at_most": limit}
        return [Asked(*row) for row in self._session.exec(self._BEHIND, params=where)]

    def open_in(self, lane: LaneKey) -> Sequence[Asked]:
        """Return the open jobs of a lane that answer messages, those outside their place too, in order."""
        found = select(Job, InboxRow).join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        open_ones = found.where(Job.lane == lane, col(Job.status).in_(OPEN)).order_by(col(Job.turn))
        return [Asked(*row) for row in self._session.exec(open_ones)]

    def into(self, ids: Sequence[str]) -> Sequence[Job]:
        """Return the jobs in whose place these answer, as far as is known."""
        return self._session.exec(
            select(Job).where(col(Job.merged_into).in_(ids)).order_by(col(Job.turn)),
            execution_options={"populate_existing": True},
        ).all()

    def merge(self, ids: Sequence[str], host: str) -> None:
        """Let a job answer in the place of others, and of those in whose place they would have answered."""
        self._run(update(Job).where(col(Job.id).in_(ids)).values(merged_into=host))
        self.follow(ids, host)

    def follow(self, ids: Sequence[str], host: str) -> None:
        """Let everything that these jobs were to answer be answered by another."""
        self._run(update(Job).where(col(Job.merged_into).in_(ids)).values(merged_into=host))
        self._run(update(InboxRow).where(col(InboxRow.job_id).in_(ids)).values(job_id=host))

    def release(self, ids: Sequence[str]) -> None:
        """Let jobs that ended by themselves keep what they answered."""
        self._run(update(Job).where(col(Job.id).in_(ids)).values(merged_into=None))

    def unheard(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of these jobs of whose answer nothing has left, as far as we know."""
        left = select(Delivery.job_id).where(
            col(Delivery.job_id).in_(ids),
            Delivery.purpose == Purpose.ANSWER,
            col(Delivery.state).in_((DeliveryState.SENT, DeliveryState.UNCONFIRMED, DeliveryState.SENDING)),
        )
        heard = self._session.exec(left).all()
        return [one for one in ids if one not in heard]
