"""Delivery reports of platforms, matched to chunks by the key with which a message was sent."""

from sqlalchemy import update
from sqlmodel import col, select

from maestro.domain.deliveries import KEY_LENGTH, Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.errors import Undelivered
from maestro.domain.jobs.job import Job, JobStatus, JobStep, StepState
from maestro.domain.jobs.steps import StepKind
from maestro.domain.messages import Address, Receipt, ReceiptReport, ReceiptState
from maestro.store.engine.repository import Repository

FURTHER = tuple(ReceiptState)
"""The statuses of a message in their order, in which a status only moves forward."""

CLOSED = (DeliveryState.SENT, DeliveryState.UNCONFIRMED)
"""The states of chunks that no job is sending, so that a report decides their outcome."""

HELD = "held back as unconfirmed, until an operator had it sent"


class DeliveryReports(Repository):
    """Queries that apply the reports of platforms to chunks and their jobs."""

    _also_changes = ("Jobs",)

    def apply(self, address: Address, key: str, report: ReceiptReport) -> bool:
        """Store a platform's report about a message; return false if the message belongs to another account.

        A report may come before the receipt, and then also serves as the receipt; a report about an unconfirmed chunk
        settles whether it was sent. A message that was accepted but not delivered fails, and so does its job if it was
        completed: an operator can resume the job, which sends the message again.
        """
        row = self._find(address, key)
        if row is None:
            return False
        if FURTHER.index(report.standing) <= FURTHER.index(row.standing):
            return True
        arrived = row.standing in (ReceiptState.DELIVERED, ReceiptState.READ)
        undelivered = report.standing is ReceiptState.FAILED and not arrived
        settled = row.state in CLOSED
        reached = DeliveryState.FAILED if undelivered else DeliveryState.SENT
        self._run(
            update(Delivery)
            .where(col(Delivery.id) == row.id)
            .values(
                standing=report.standing,
                platform_message_id=report.platform_message_id or row.platform_message_id,
                error=report.error if undelivered else row.error,
                state=reached if settled else row.state,
                sent_at=row.sent_at or (self._now if settled else None),
                tried_at=None if settled else row.tried_at,
            )
        )
        if undelivered and settled and row.purpose is DeliveryPurpose.ANSWER:
            self._fail_job(row.job_id, report.error)
        return True

    def receipt(self, address: Address, key: str) -> Receipt | None:
        """Return the receipt of a message, or None until the platform has sent one."""
        row = self._find(address, key)
        return Receipt(platform_message_id=row.platform_message_id) if row and row.platform_message_id else None

    def button_value(self, address: Address, key: str, number: int) -> str | None:
        """Return the value of a message's button by its number, or None if the message has no such button."""
        row = self._find(address, key)
        choices = row.choices if row is not None else ()
        return choices[number].value if 0 <= number < len(choices) else None

    def has_held_chunk(self, job_id: str) -> bool:
        """Return whether a chunk of a job's answer is withheld because the platform may already have it."""
        held = select(Delivery.id).where(Delivery.job_id == job_id, Delivery.state == DeliveryState.UNCONFIRMED)
        return self._any(held)

    def release(self, job_id: str) -> None:
        """Let the withheld chunks of a resumed job be sent, marked as possible duplicates."""
        held = (col(Delivery.job_id) == job_id, col(Delivery.state) == DeliveryState.UNCONFIRMED)
        again = {"state": DeliveryState.FAILED, "repeats": col(Delivery.repeats) + 1, "tried_at": None}
        self._run(update(Delivery).where(*held).values(**again))
        self._fail_sending_step(job_id, HELD)

    def _find(self, address: Address, key: str) -> Delivery | None:
        """Return the newest chunk with a key, reloaded from the database; None for an invalid key.

        Keys need a check, because users can make a platform return any text as the key of a button.
        """
        if not (len(key) <= KEY_LENGTH and key.isascii() and key.isalnum()):
            return None
        of_account = (Delivery.platform == address.platform, Delivery.account == address.account)
        query = select(Delivery).where(Delivery.key == key, *of_account).order_by(col(Delivery.id).desc()).limit(1)
        return self._session.exec(query, execution_options={"populate_existing": True}).first()

    def _fail_job(self, job_id: str, why: str) -> None:
        """Turn a completed job into one that failed at its last step, which sent the answer."""
        completed = update(Job).where(col(Job.id) == job_id, col(Job.status) == JobStatus.COMPLETED)
        if self._run(completed.values(status=JobStatus.FAILED, error=why)).rowcount:
            self._fail_sending_step(job_id, why)

    def _fail_sending_step(self, job_id: str, why: str) -> None:
        """Turn the completed step that sent an answer into a failed step."""
        sent = (col(JobStep.job_id) == job_id, col(JobStep.step) == StepKind.DELIVER)
        failed = {"state": StepState.FAILED, "error": Undelivered.__name__, "detail": why}
        self._run(update(JobStep).where(*sent, col(JobStep.state) == StepState.DONE).values(**failed))
