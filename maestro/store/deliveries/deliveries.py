"""Outgoing messages: chunks and files as rows, and the outbound lane of each channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, case, delete, func, update
from sqlalchemy import select as columns
from sqlalchemy.orm import aliased
from sqlmodel import col, or_, select

from maestro.domain.columns import UtcDateTime
from maestro.domain.connectors import DisabledChannel
from maestro.domain.deliveries import (
    IN_DOUBT,
    Delivery,
    DeliveryPurpose,
    DeliveryState,
    JobFile,
    OutboundLane,
    delivery_key,
)
from maestro.domain.drafts import Draft
from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.messages import Address, InboxRow, Receipt, ReceiptState
from maestro.store.engine.repository import Repository, with_values
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, insert, one_of, same
from maestro.store.jobs.related import AT_THE_END
from maestro.store.jobs.steps import StepRecords

NOT_THERE = (DeliveryState.ABANDONED, DeliveryState.FAILED)
"""The states of chunks that a resumed job sends again."""

OF_ONE_TRY = {"id", "key", "state", "error", "standing", "platform_message_id", "tried_at", "sent_at"}
"""The columns that are reset for a chunk that is sent again."""

ARRIVED_OR_MAY_HAVE = (DeliveryState.SENT, DeliveryState.UNCONFIRMED)


@dataclass(frozen=True, slots=True)
class DeliveryStart:
    """The rows that a delivery begins with.

    ``closed`` is the reason why sending to the channel is stopped, None where it is open. ``chunks``, ``draft`` and
    ``files`` say whether the job has any. ``asked`` is the platform's id of the newest message that the job answers.
    ``has_lane`` says that the job holds the outbound lane of the channel.
    """

    purpose: DeliveryPurpose
    closed: str | None
    chunks: bool
    draft: bool
    files: bool
    asked: str
    has_lane: bool


class Deliveries(Repository):
    """All chunks, and the outbound lanes."""

    _FURTHER = aliased(Delivery)
    _MORE = (
        select(_FURTHER.id)
        .where(
            col(_FURTHER.job_id) == col(Delivery.job_id),
            col(_FURTHER.purpose) == col(Delivery.purpose),
            col(_FURTHER.seq) > col(Delivery.seq),
            col(_FURTHER.state) != DeliveryState.ABANDONED,
        )
        .exists()
    )
    """Whether another chunk of the same text was or will be sent."""

    _OF_STEP = (col(Delivery.job_id) == bindparam("of_job"), col(Delivery.purpose) == bindparam("its_purpose"))
    _CHUNKS = PreparedStatement(select(Delivery).where(*_OF_STEP).order_by(col(Delivery.seq)))
    _START: tuple[Any, ...] = (
        select(DisabledChannel.reason)
        .where(
            same(DisabledChannel, *CHANNEL_KEY),
        )
        .scalar_subquery(),
        select(Delivery.id).where(*_OF_STEP).exists(),
        select(Draft.job_id).where(col(Draft.job_id) == bindparam("of_job")).exists(),
        select(JobFile.id).where(col(JobFile.job_id) == bindparam("of_job")).exists(),
        # The messages of merged jobs count too: ``job_id`` of their rows names this job.
        select(InboxRow.message_id)
        .where(or_(col(InboxRow.id) == bindparam("own"), col(InboxRow.job_id) == bindparam("host")))
        .order_by(col(InboxRow.id).desc())
        .limit(1)
        .scalar_subquery(),
    )
    _READ_START = PreparedStatement(columns(*_START))
    # A no-op update, because a conflict without one returns no row for a held lane. The subqueries use no column of
    # this table: SQLAlchemy omits table names in RETURNING, so it would be ambiguous.
    _BEGIN = PreparedStatement(
        insert(OutboundLane)
        .on_conflict_do_update(index_elements=["lane"], set_={"lane": col(OutboundLane.lane)})
        .returning(*_START, col(OutboundLane.job_id))
    )
    _HOLDER = PreparedStatement(select(OutboundLane.job_id).where(col(OutboundLane.lane) == bindparam("of_lane")))
    _LEAVE = PreparedStatement(delete(OutboundLane).where(col(OutboundLane.job_id) == bindparam("of_job")))
    _SENDING = PreparedStatement(
        update(Delivery)
        .where(col(Delivery.id) == bindparam("of_id"))
        .values(
            state=DeliveryState.SENDING,
            attempts=col(Delivery.attempts) + 1,
            tried_at=case(
                (
                    one_of(col(Delivery.state), IN_DOUBT),
                    func.coalesce(Delivery.tried_at, bindparam("at", type_=UtcDateTime())),
                ),
                else_=bindparam("at", type_=UtcDateTime()),
            ),
        )
    )
    _FAILED_SINCE = col(Delivery.standing) == ReceiptState.FAILED
    """Whether the platform reported a message as undeliverable before its receipt arrived."""
    _SENT = PreparedStatement(
        update(Delivery)
        .where(col(Delivery.id) == bindparam("of_id"))
        .values(
            state=case((_FAILED_SINCE, DeliveryState.FAILED), else_=DeliveryState.SENT),
            error=case((_FAILED_SINCE, col(Delivery.error)), else_=""),
            tried_at=None,
            platform_message_id=bindparam("known_as"),
            sent_at=bindparam("at"),
        )
    )
    _ABANDON = PreparedStatement(
        update(Delivery)
        .where(col(Delivery.job_id) == bindparam("of_job"), one_of(col(Delivery.state), AT_THE_END))
        .values(state=case(AT_THE_END, value=col(Delivery.state)))
    )

    def begin(self, job: Job, purpose: DeliveryPurpose) -> DeliveryStart:
        """Claim the outbound lane of a job's channel if it is free, and return the start of the job's delivery."""
        lane = {"lane": job.address.outbound_lane, "job_id": job.id, "taken_at": self._now}
        ((*start, holder),) = self._returned(self._BEGIN, **lane, **_start_values(job, purpose))
        return _start(purpose, start, has_lane=holder == job.id)

    def start(self, job: Job, purpose: DeliveryPurpose) -> DeliveryStart:
        """Return the same without a claim to the lane."""
        row = self._row(self._READ_START, **_start_values(job, purpose))
        assert row is not None
        return _start(purpose, row)

    def leave_lanes(self, job_id: str) -> None:
        """Free every outbound lane this job holds."""
        self._change(self._LEAVE, of_job=job_id)

    def held_by_ended_jobs(self) -> Sequence[str]:
        """Return the ended jobs that still hold an outbound lane, which is always a fault."""
        return self._session.exec(
            select(OutboundLane.job_id)
            .join(Job, col(Job.id) == OutboundLane.job_id)
            .where(col(Job.completed_at).is_not(None))
        ).all()

    def chunks(self, job_id: str, purpose: DeliveryPurpose) -> Sequence[Delivery]:
        """Return the chunks of a job as values, in order."""
        return self._read_all(self._CHUNKS, Delivery, of_job=job_id, its_purpose=purpose)

    def add(self, chunk: Delivery, *, sending: bool = False) -> Delivery:
        """Store a chunk before it is sent, under its idempotency key, and return it with its id.

        With ``sending`` its row says that the platform is about to be called for the first time; this raises
        ``StepTaken`` where a newer attempt calls it.
        """
        chunk.key = chunk.key or delivery_key(chunk.job_id, chunk.purpose, chunk.seq)
        if not sending:
            return self._add(chunk)
        StepRecords(self._link, self._now).require_newest()
        stored = self._add(with_values(chunk, state=DeliveryState.SENDING, attempts=1, tried_at=self._now))
        return with_values(chunk, id=stored.id)

    def sending(self, delivery_id: int) -> None:
        """Note that the platform is about to be called; raises ``StepTaken`` where a newer attempt calls it."""
        StepRecords(self._link, self._now).require_newest()
        self._change(self._SENDING, of_id=delivery_id, at=self._now)

    def sent(self, delivery_id: int, receipt: Receipt) -> None:
        """Store the platform's receipt."""
        self._change(self._SENT, of_id=delivery_id, known_as=receipt.platform_message_id, at=self._now)

    def failed(self, delivery_id: int, error: str, *, surely_unsent: bool) -> None:
        """Note the reason of a failed send; a chunk that the platform surely does not have becomes pending again.

        The error that the platform reported for the message meanwhile is the better reason, and stays.
        """
        unsent = (
            {"state": DeliveryState.PENDING, "tried_at": None} if surely_unsent else {"state": DeliveryState.SENDING}
        )
        reason = case((self._FAILED_SINCE, col(Delivery.error)), else_=error)
        self._run(update(Delivery).where(col(Delivery.id) == delivery_id).values(**unsent, error=reason))

    def unconfirmed(self, delivery_id: int) -> None:
        """Mark a chunk as unconfirmed: the platform may have it, so it is not sent again."""
        doubt = update(Delivery).where(col(Delivery.id) == delivery_id).values(state=DeliveryState.UNCONFIRMED)
        self._run(doubt)

    def detach_draft(self, delivery_id: int) -> None:
        """Make a chunk a separate message, because the draft that it should replace cannot be edited any more."""
        new = {"edits": "", "state": DeliveryState.PENDING, "tried_at": None}
        self._run(update(Delivery).where(col(Delivery.id) == delivery_id).values(**new))

    def repeated(self, delivery_id: int, times: int = 1) -> None:
        """Count a repeat of a send although the platform may have the chunk; -1 takes that back."""
        again = update(Delivery).where(col(Delivery.id) == delivery_id)
        self._run(again.values(repeats=col(Delivery.repeats) + times))

    def lane_holder(self, lane: str) -> str | None:
        """Return the job that holds the outbound lane of this channel."""
        holder: str | None = self._value(self._HOLDER, of_lane=lane)
        return holder

    def abandon(self, job_id: str) -> None:
        """Mark the chunks without a receipt of an ended job: unsent ones as abandoned, others as unconfirmed."""
        self._change(self._ABANDON, of_job=job_id)

    def revive(self, job_id: str) -> None:
        """Let a resumed job send its abandoned chunks, and those that did not reach their receiver.

        Such a chunk gets a new id: others may have been sent in its channel since, and ids there rise in the order of
        sending. It gets a new key too, so that late reports about the old message do not concern it. An unconfirmed
        chunk keeps both.
        """
        left = self._session.exec(
            select(Delivery).where(Delivery.job_id == job_id, col(Delivery.state).in_(NOT_THERE))
        ).all()
        for chunk in left:
            self._session.delete(chunk)
        self._session.flush()
        for chunk in left:
            again = chunk.model_dump(exclude=OF_ONE_TRY)
            key = delivery_key(chunk.job_id, chunk.purpose, chunk.seq, instead_of=chunk.id)
            self.add(Delivery(**again, key=key, state=DeliveryState.PENDING))

    def newest_id(self) -> int:
        """Return the highest id ever given; every later one is higher."""
        return self._highest_id(Delivery)

    def begin_ids_after(self, floor: int) -> None:
        """Give only ids above the floor from now on."""
        self._begin_ids_after(Delivery, floor)

    def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[tuple[Delivery, bool]]:
        """Return the chunks sent to a channel after this one, oldest first; true where more of a text follows."""
        rows = self._session.exec(
            select(Delivery, self._MORE)
            .where(
                Delivery.platform == address.platform,
                Delivery.account == address.account,
                Delivery.channel == address.channel,
                col(Delivery.state).in_(ARRIVED_OR_MAY_HAVE),
                col(Delivery.id) > after_id,
                # Both texts are empty after the deletion of the conversation.
                or_(Delivery.content != "", Delivery.digest != ""),
            )
            .order_by(col(Delivery.id))
            .limit(limit)
        )
        return [(row, more) for row, more in rows]

    def of(self, job_id: str) -> Sequence[Delivery]:
        """Return all chunks of a job, sent or not."""
        return self._session.exec(select(Delivery).where(Delivery.job_id == job_id).order_by(col(Delivery.id))).all()


def _start_values(job: Job, purpose: DeliveryPurpose) -> dict[str, object]:
    own = job.inbox_id
    host = job.id if own is not None and job.kind is JobKind.MESSAGE else None
    return {"of_job": job.id, "its_purpose": purpose, "own": own, "host": host, **job.address.model_dump()}


def _start(purpose: DeliveryPurpose, row: Sequence[Any], *, has_lane: bool = False) -> DeliveryStart:
    closed, chunks, draft, files, asked = row
    return DeliveryStart(purpose, closed, chunks, draft, files, asked or "", has_lane)


class JobFiles(Repository):
    """The files that jobs send, each once in a job."""

    _ADD = PreparedStatement(insert(JobFile).on_conflict_do_nothing())
    _OF_JOB = PreparedStatement(
        select(JobFile)
        .where(col(JobFile.job_id) == bindparam("of_job"))
        .order_by(col(JobFile.number), col(JobFile.place), col(JobFile.id))
    )

    def add(self, file: JobFile) -> None:
        """Add a file of a job, unless it has the same one under the same name."""
        self._change(self._ADD, **file.model_dump(exclude={"id"}), id=None)

    def of(self, job_id: str) -> Sequence[JobFile]:
        """Return the files of a job as values, in the order in which they were requested."""
        return self._read_all(self._OF_JOB, JobFile, of_job=job_id)
