"""Queries for outgoing messages: chunks (message parts), files, outbound lanes, and delivery reports of platforms."""

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
    KEY_LENGTH,
    Delivery,
    DeliveryPurpose,
    DeliveryState,
    JobFile,
    OutboundLane,
    delivery_key,
)
from maestro.domain.drafts import Draft
from maestro.domain.errors import Undelivered
from maestro.domain.jobs.job import Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.jobs.steps import StepKind
from maestro.domain.messages import Address, InboxRow, Receipt, ReceiptReport, ReceiptState
from maestro.store.cluster import Fencing
from maestro.store.deliveries.drafts import Drafts
from maestro.store.engine.repository import LazyRepository, Repository, with_values
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, equals_parameters, insert, is_one_of
from maestro.store.jobs.related import AT_THE_END
from maestro.store.jobs.steps import StepRecords

NOT_THERE = (DeliveryState.ABANDONED, DeliveryState.FAILED)
"""The states of chunks that did not reach the user; a resumed job sends these chunks again."""

OF_ONE_TRY = {"id", "key", "state", "error", "standing", "platform_message_id", "tried_at", "sent_at"}
"""The columns of a chunk that are reset when the chunk is sent again."""

ARRIVED_OR_MAY_HAVE = (DeliveryState.SENT, DeliveryState.UNCONFIRMED)
"""The states of chunks after a send, in which a report of the platform decides the outcome."""

FURTHER = tuple(ReceiptState)
"""The delivery statuses of a message in order; the status of a message only moves forward."""


@dataclass(frozen=True, slots=True)
class DeliveryStart:
    """The facts that decide how the delivery of a job's message begins.

    ``closed`` is the reason why sending to the channel is disabled, None where sending is enabled. ``chunks``,
    ``draft`` and ``files`` say whether the job has any. ``asked`` is the platform's id of the newest message that the
    job answers. ``has_lane``: the job holds the outbound lane (the right to send) of the channel.
    """

    purpose: DeliveryPurpose
    closed: str | None
    chunks: bool
    draft: bool
    files: bool
    asked: str
    has_lane: bool = False


class JobFiles(Repository):
    """Queries for the files that jobs send to users."""

    _ADD = PreparedStatement(insert(JobFile).on_conflict_do_nothing())
    _OF_JOB = PreparedStatement(
        select(JobFile)
        .where(col(JobFile.job_id) == bindparam("of_job"))
        .order_by(col(JobFile.number), col(JobFile.place), col(JobFile.id))
    )

    def add_file(self, file: JobFile) -> None:
        """Add a file to a job, unless the job already has the same file under the same name."""
        self._run_change(self._ADD, **file.model_dump(exclude={"id"}), id=None)

    def list_files_of_job(self, job_id: str) -> Sequence[JobFile]:
        """Return the files of a job as read-only rows, in the order in which the model requested them."""
        return self._read_models(self._OF_JOB, JobFile, of_job=job_id)


class DeliveryReports(Repository):
    """Queries that apply delivery reports of platforms to chunks (message parts) and their jobs."""

    _also_changes = ("Jobs",)

    def apply_report(self, address: Address, key: str, report: ReceiptReport) -> bool:
        """Store a platform's report about a message; return false if the account has no such message.

        A report that comes before the receipt serves as the receipt. A report about an unconfirmed chunk settles
        whether the chunk was sent. If the platform reports that it did not deliver an answer, the chunk fails, and a
        completed job fails with it. An operator can resume the job, which sends the message again.
        """
        row = self._find_chunk(address, key)
        if row is None:
            return False
        if FURTHER.index(report.standing) <= FURTHER.index(row.standing):
            return True
        arrived = row.standing in (ReceiptState.DELIVERED, ReceiptState.READ)
        undelivered = report.standing is ReceiptState.FAILED and not arrived
        settled = row.state in ARRIVED_OR_MAY_HAVE
        reached = DeliveryState.FAILED if undelivered else DeliveryState.SENT
        self._update_row(
            Delivery,
            row.id,
            standing=report.standing,
            platform_message_id=report.platform_message_id or row.platform_message_id,
            error=report.error if undelivered else row.error,
            state=reached if settled else row.state,
            sent_at=row.sent_at or (self._now if settled else None),
            tried_at=None if settled else row.tried_at,
        )
        if undelivered and settled and row.purpose is DeliveryPurpose.ANSWER:
            completed = update(Job).where(col(Job.id) == row.job_id, col(Job.status) == JobStatus.COMPLETED)
            if self._run_statement(completed.values(status=JobStatus.FAILED, error=report.error)).rowcount:
                self._fail_sending_step(row.job_id, report.error)
        return True

    def find_receipt(self, address: Address, key: str) -> Receipt | None:
        """Return the receipt of a message, or None until the platform has sent a receipt."""
        row = self._find_chunk(address, key)
        return Receipt(platform_message_id=row.platform_message_id) if row and row.platform_message_id else None

    def find_button_value(self, address: Address, key: str, number: int) -> str | None:
        """Return the value of button ``number`` of a message, or None if the message has no such button."""
        row = self._find_chunk(address, key)
        choices = row.choices if row is not None else ()
        return choices[number].value if 0 <= number < len(choices) else None

    def has_held_chunk(self, job_id: str) -> bool:
        """Return whether a job has a chunk that is not sent again because the platform may already have it."""
        held = select(Delivery.id).where(Delivery.job_id == job_id, Delivery.state == DeliveryState.UNCONFIRMED)
        return self._has_any(held)

    def release_withheld_chunks(self, job_id: str) -> None:
        """Let a resumed job send its unconfirmed chunks again, marked as possible duplicates."""
        held = (col(Delivery.job_id) == job_id, col(Delivery.state) == DeliveryState.UNCONFIRMED)
        again = {"state": DeliveryState.FAILED, "repeats": col(Delivery.repeats) + 1, "tried_at": None}
        self._run_statement(update(Delivery).where(*held).values(**again))
        self._fail_sending_step(job_id, "held back as unconfirmed, until an operator had it sent")

    def _find_chunk(self, address: Address, key: str) -> Delivery | None:
        """Return the newest chunk with an idempotency key, read anew from the database; None for an invalid key.

        The key is checked because a user can make a platform return any text as the key of a button.
        """
        if not (len(key) <= KEY_LENGTH and key.isascii() and key.isalnum()):
            return None
        of_account = (Delivery.platform == address.platform, Delivery.account == address.account)
        query = select(Delivery).where(Delivery.key == key, *of_account).order_by(col(Delivery.id).desc()).limit(1)
        return self._session.exec(query, execution_options={"populate_existing": True}).first()

    def _fail_sending_step(self, job_id: str, reason: str) -> None:
        """Mark the completed step that sent a job's answer as failed."""
        sent = (col(JobStep.job_id) == job_id, col(JobStep.step) == StepKind.DELIVER)
        failed = {"state": StepState.FAILED, "error": Undelivered.__name__, "detail": reason}
        self._run_statement(update(JobStep).where(*sent, col(JobStep.state) == StepState.DONE).values(**failed))


class Deliveries(Repository):
    """Queries for the chunks (parts) of outgoing messages, and for outbound lanes."""

    files = LazyRepository(JobFiles)
    drafts = LazyRepository(Drafts)
    reports = LazyRepository(DeliveryReports)

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
    """The condition that another chunk, which continues the text of this chunk, was or will be sent."""

    _SIZE = select(func.coalesce(func.max(JobFile.size), 0)).where(col(JobFile.digest) == col(Delivery.digest))
    """The bytes of the file that a chunk sends; 0 for a text."""

    _OF_STEP = (col(Delivery.job_id) == bindparam("of_job"), col(Delivery.purpose) == bindparam("its_purpose"))
    _CHUNKS = PreparedStatement(select(Delivery).where(*_OF_STEP).order_by(col(Delivery.seq)))
    _START: tuple[Any, ...] = (
        select(DisabledChannel.reason).where(equals_parameters(DisabledChannel, *CHANNEL_KEY)).scalar_subquery(),
        select(Delivery.id).where(*_OF_STEP).exists(),
        select(Draft.job_id).where(col(Draft.job_id) == bindparam("of_job")).exists(),
        select(JobFile.id).where(col(JobFile.job_id) == bindparam("of_job")).exists(),
        # Messages of jobs merged into this job also count: their inbox rows have this job's id in ``job_id``.
        func.coalesce(
            select(InboxRow.message_id)
            .where(or_(col(InboxRow.id) == bindparam("own"), col(InboxRow.job_id) == bindparam("host")))
            .order_by(col(InboxRow.id).desc())
            .limit(1)
            .scalar_subquery(),
            "",
        ),
    )
    _READ_START = PreparedStatement(columns(*_START))
    # The update changes no value, but without it SQLite would return no row for a held lane. The subqueries
    # use no column of the lane's table, which would be ambiguous: SQLAlchemy omits table names in RETURNING.
    _BEGIN = PreparedStatement(
        insert(OutboundLane)
        .on_conflict_do_update(index_elements=["lane"], set_={"lane": col(OutboundLane.lane)})
        .returning(*_START, col(OutboundLane.job_id) == bindparam("of_job"))
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
                    is_one_of(col(Delivery.state), IN_DOUBT),
                    func.coalesce(Delivery.tried_at, bindparam("at", type_=UtcDateTime())),
                ),
                else_=bindparam("at", type_=UtcDateTime()),
            ),
        )
    )
    _FAILED_SINCE = col(Delivery.standing) == ReceiptState.FAILED
    """The condition that the platform reported the message as undelivered before its receipt arrived."""
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
        .where(col(Delivery.job_id) == bindparam("of_job"), is_one_of(col(Delivery.state), AT_THE_END))
        .values(state=case(AT_THE_END, value=col(Delivery.state)))
    )

    def begin_delivery(self, job: Job, purpose: DeliveryPurpose) -> DeliveryStart:
        """Claim the outbound lane of a job's channel if the lane is free; return how the delivery begins."""
        lane = {"lane": job.address.outbound_lane, "job_id": job.id, "taken_at": self._now}
        (start,) = self._run_returning(self._BEGIN, **lane, **_start_values(job, purpose))
        return DeliveryStart(purpose, *start)

    def read_start(self, job: Job, purpose: DeliveryPurpose) -> DeliveryStart:
        """Return how the delivery of a job's message begins, without claiming the outbound lane."""
        row = self._read_row(self._READ_START, **_start_values(job, purpose))
        assert row is not None
        return DeliveryStart(purpose, *row)

    def release_lanes(self, job_id: str) -> None:
        """Release every outbound lane that this job holds."""
        self._write(self._LEAVE, of_job=job_id)

    def list_lanes_of_ended_jobs(self) -> Sequence[str]:
        """Return the ids of ended jobs that still hold an outbound lane, which only a bug can cause."""
        return self._find_all(
            select(OutboundLane.job_id)
            .join(Job, col(Job.id) == OutboundLane.job_id)
            .where(col(Job.completed_at).is_not(None))
        )

    def list_chunks(self, job_id: str, purpose: DeliveryPurpose) -> Sequence[Delivery]:
        """Return the chunks of one message of a job as read-only rows, in order."""
        return self._read_models(self._CHUNKS, Delivery, of_job=job_id, its_purpose=purpose)

    def add_chunk(self, chunk: Delivery, *, sending: bool = False) -> Delivery:
        """Store a chunk under its idempotency key before it is sent; return the chunk with its id.

        With ``sending``, also record that the platform is about to be called for the chunk. That raises ``StepTaken``
        when a newer attempt at the step has begun, and ``LeaseLost`` when another process may run the connector.
        """
        chunk.key = chunk.key or delivery_key(chunk.job_id, chunk.purpose, chunk.seq)
        if not sending:
            return self._add_row(chunk)
        StepRecords(self._link, self._now).require_newest()
        self.require_lease(chunk)
        stored = self._add_row(with_values(chunk, state=DeliveryState.SENDING, attempts=1, tried_at=self._now))
        return with_values(chunk, id=stored.id)

    def mark_sending(self, delivery_id: int, address: Address) -> None:
        """Record that the platform is about to be called for a chunk; raises as ``add_chunk`` does."""
        StepRecords(self._link, self._now).require_newest()
        self.require_lease(address)
        self._write(self._SENDING, of_id=delivery_id, at=self._now)

    def mark_sent(self, delivery_id: int, receipt: Receipt) -> None:
        """Store the platform's receipt for a chunk."""
        self._write(self._SENT, of_id=delivery_id, known_as=receipt.platform_message_id, at=self._now)

    def mark_failed(self, delivery_id: int, error: str, *, surely_unsent: bool) -> None:
        """Store the error of a failed send; a chunk that is ``surely_unsent`` becomes pending again.

        An error that the platform has reported meanwhile stays, because it is more exact.
        """
        unsent = {"state": DeliveryState.PENDING, "tried_at": None}
        reason = case((self._FAILED_SINCE, col(Delivery.error)), else_=error)
        state = unsent if surely_unsent else {"state": DeliveryState.SENDING}
        self._update_row(Delivery, delivery_id, **state, error=reason)

    def mark_unconfirmed(self, delivery_id: int) -> None:
        """Mark a chunk as unconfirmed: it is not sent again, because the platform may have received it."""
        self._update_row(Delivery, delivery_id, state=DeliveryState.UNCONFIRMED)

    def detach_draft(self, delivery_id: int) -> None:
        """Make a chunk a separate message, because the draft that the chunk should replace can no longer be edited."""
        self._update_row(Delivery, delivery_id, edits="", state=DeliveryState.PENDING, tried_at=None)

    def count_repeat(self, delivery_id: int, times: int = 1) -> None:
        """Count a repeated send of a chunk that the platform may already have; ``times`` of -1 undoes the count."""
        self._update_row(Delivery, delivery_id, repeats=col(Delivery.repeats) + times)

    def find_lane_holder(self, lane: str) -> str | None:
        """Return the id of the job that holds an outbound lane, or None if the lane is free."""
        holder: str | None = self._read_value(self._HOLDER, of_lane=lane)
        return holder

    def require_lease(self, place: Address | Delivery) -> None:
        """Raise ``LeaseLost``, before a message is marked as being sent, if another process may run the connector."""
        if self._link.fences:
            Fencing(self._link, self._now).require_lease(place.platform, place.account)

    def abandon_chunks(self, job_id: str) -> None:
        """Settle an ended job's chunks without a receipt: abandon unsent chunks, mark other chunks as unconfirmed."""
        self._write(self._ABANDON, of_job=job_id)

    def revive_chunks(self, job_id: str) -> None:
        """Let a resumed job send its abandoned and its undelivered chunks again.

        Each such chunk gets a new id, because ids in a channel rise in the order of sending. It also gets a new key, so
        that late reports about the old message do not apply to the new one. Unconfirmed chunks stay unchanged.
        """
        chunks = self._find_all(select(Delivery).where(Delivery.job_id == job_id, col(Delivery.state).in_(NOT_THERE)))
        for chunk in chunks:
            self._session.delete(chunk)
        self._session.flush()
        for chunk in chunks:
            again = chunk.model_dump(exclude=OF_ONE_TRY)
            key = delivery_key(chunk.job_id, chunk.purpose, chunk.seq, instead_of=chunk.id)
            self.add_chunk(Delivery(**again, key=key, state=DeliveryState.PENDING))

    def find_newest_id(self) -> int:
        """Return the highest id ever assigned to a chunk; a new chunk gets a higher id."""
        return self._read_highest_id(Delivery)

    def begin_ids_after(self, floor: int) -> None:
        """Assign only ids above ``floor`` to new chunks."""
        self._begin_ids_after(Delivery, floor)

    def list_sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[tuple[Delivery, bool, int]]:
        """Return chunks sent to a channel after a chunk, oldest first.

        For each it says whether its text continues, and the bytes of its stored file.
        """
        rows = self._session.exec(
            select(Delivery, self._MORE, self._SIZE.scalar_subquery())
            .where(
                *(getattr(Delivery, name) == getattr(address, name) for name in CHANNEL_KEY),
                col(Delivery.state).in_(ARRIVED_OR_MAY_HAVE),
                col(Delivery.id) > after_id,
                # A deleted conversation leaves both columns of its chunks empty.
                or_(Delivery.content != "", Delivery.digest != ""),
            )
            .order_by(col(Delivery.id))
            .limit(limit)
        )
        return [(row, more, size) for row, more, size in rows]

    def list_deliveries_of_job(self, job_id: str) -> Sequence[Delivery]:
        """Return all chunks of a job, in every state."""
        return self._find_all(select(Delivery).where(Delivery.job_id == job_id).order_by(col(Delivery.id)))


def _start_values(job: Job, purpose: DeliveryPurpose) -> dict[str, object]:
    own = job.inbox_id
    host = job.id if own is not None and job.kind is JobKind.MESSAGE else None
    return {"of_job": job.id, "its_purpose": purpose, "own": own, "host": host, **job.address.model_dump()}
