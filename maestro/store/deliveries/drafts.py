"""Queries for drafts: platform messages that show answers while a model writes the answers."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, case, delete, func, tuple_, update
from sqlmodel import col, select

from maestro.domain.columns import UtcDateTime
from maestro.domain.deliveries import OutboundLane
from maestro.domain.drafts import PLACED, UNFINISHED, Draft, DraftState
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.messages import Address, Receipt
from maestro.domain.people.people import ConnectorStatus
from maestro.store.engine.repository import Repository, read_once
from maestro.store.engine.statements import PreparedStatement, insert, is_one_of
from maestro.store.users.users import WebUsers

Place = tuple[str, str]
"""A platform and the name of an account on the platform."""


class AddressedDraft(NamedTuple):
    """A draft, its address and its job's status; ``free``: no other job sends or streams at the address."""

    draft: Draft
    address: Address
    status: JobStatus
    free: bool


class Drafts(Repository):
    """Queries for drafts (messages that show an answer while it is written) of accounts that can stream answers."""

    _INTERVAL = PreparedStatement(
        select(ConnectorStatus.edit_interval).where(
            ConnectorStatus.platform == bindparam("platform"), ConnectorStatus.account == bindparam("account")
        )
    )
    _ADD = insert(Draft)
    _WRITE = PreparedStatement(
        _ADD.on_conflict_do_update(
            index_elements=["job_id"],
            set_={
                "number": _ADD.excluded.number,
                "text": _ADD.excluded.text,
                "revision": col(Draft.revision) + 1,
                "updated_at": _ADD.excluded.updated_at,
            },
            where=is_one_of(col(Draft.state), UNFINISHED),
        )
    )
    _IS_RUNNING = PreparedStatement(
        select(Job.id).where(col(Job.id) == bindparam("of_job"), col(Job.status) == JobStatus.RUNNING)
    )
    _OF = update(Draft).where(col(Draft.job_id) == bindparam("of_job"))
    _SENDING = PreparedStatement(
        _OF.where(is_one_of(col(Draft.state), (DraftState.WRITTEN, DraftState.SENDING))).values(
            state=DraftState.SENDING, tried_at=func.coalesce(Draft.tried_at, bindparam("at", type_=UtcDateTime()))
        )
    )
    _UNSENT = PreparedStatement(
        _OF.where(col(Draft.state) == DraftState.SENDING).values(state=DraftState.WRITTEN, tried_at=None)
    )
    _PLACED = PreparedStatement(
        _OF.values(
            state=case((col(Draft.state) == DraftState.SENDING, DraftState.SHOWN), else_=col(Draft.state)),
            platform_message_id=bindparam("known_as"),
            tried_at=None,
        )
    )
    _DROP = PreparedStatement(_OF.values(state=DraftState.DROPPED, tried_at=None))
    _TAKE = PreparedStatement(_OF.values(state=DraftState.TAKEN))
    _FORGET = PreparedStatement(delete(Draft).where(col(Draft.job_id) == bindparam("of_job")))

    @read_once
    def find_draft(self, job_id: str) -> Draft | None:
        """Return the draft of a job as a read-only row, or None if the job has none."""
        return self._read_model_by(Draft, job_id=job_id)

    def read_edit_interval(self, place: Place) -> float:
        """Return the least number of seconds between two edits of an account's message; 0 means no streaming."""
        seconds: float | None = self._read_value(self._INTERVAL, platform=place[0], account=place[1])
        return seconds or 0.0

    def set_edit_interval(self, place: Place, seconds: float) -> None:
        """Store the least number of seconds between two edits of a message that an account allows."""
        WebUsers(self._link, self._now).find_status(*place).edit_interval = seconds
        self._session.flush()

    def save_draft_text(self, job_id: str, number: int, text: str) -> None:
        """Store the answer so far, unless its final form has replaced the draft or the job is not running."""
        if self._has_row(self._IS_RUNNING, of_job=job_id):
            draft = Draft(job_id=job_id, number=number, text=text, begun_at=self._now, updated_at=self._now)
            self._write(self._WRITE, **vars(draft))

    def list_drafts_on_accounts(self, places: Collection[Place]) -> Sequence[AddressedDraft]:
        """Return the drafts on these accounts, with the drafts' addresses and job statuses."""
        lane = col(Job.platform) + "/" + col(Job.account) + "/" + col(Job.channel)
        rows = self._session.exec(
            select(Draft, Job, OutboundLane.job_id)
            .join(Job, col(Job.id) == Draft.job_id)
            .outerjoin(OutboundLane, col(OutboundLane.lane) == lane)
            .where(tuple_(col(Job.platform), col(Job.account)).in_(places))
        ).all()
        visible = {job.address: job.id for draft, job, _ in rows if _is_visible(draft, job)}
        return [
            AddressedDraft(
                draft, job.address, job.status, holder in (None, job.id) and visible.get(job.address, job.id) == job.id
            )
            for draft, job, holder in rows
        ]

    def is_other_visible(self, job_id: str, address: Address) -> bool:
        """Return whether another job shows a streamed answer at this address."""
        place = (col(Job.platform), col(Job.account), col(Job.channel), col(Job.thread))
        here = (address.platform, address.account, address.channel, address.thread)
        rows = self._session.exec(
            select(Draft, Job).join(Job, col(Job.id) == Draft.job_id).where(tuple_(*place) == tuple_(*here))
        )
        return any(job.id != job_id and _is_visible(draft, job) for draft, job in rows)

    def mark_sending(self, job_id: str) -> bool:
        """Record that the draft's message is about to be sent; return false if the message must no longer be sent."""
        return self._run_change(self._SENDING, of_job=job_id, at=self._now) > 0

    def mark_unsent(self, job_id: str) -> None:
        """Record that the draft's message certainly did not reach the platform."""
        self._write(self._UNSENT, of_job=job_id)

    def set_message_id(self, job_id: str, receipt: Receipt) -> None:
        """Store the platform's id of a draft's message, even after the final answer has taken over the draft."""
        self._write(self._PLACED, of_job=job_id, known_as=receipt.platform_message_id)

    def mark_dropped(self, job_id: str) -> None:
        """Mark the draft of a job as no longer shown."""
        self._write(self._DROP, of_job=job_id)

    def hand_over_draft(self, job_id: str) -> None:
        """Let the final answer take over the message of a job's draft."""
        self._write(self._TAKE, of_job=job_id)

    def delete_draft(self, job_id: str) -> None:
        """Delete the draft of a job."""
        self._write(self._FORGET, of_job=job_id)


def _is_visible(draft: Draft, job: Job) -> bool:
    """Return whether a draft shows an answer that is still written, which another message would interrupt."""
    return draft.state in PLACED and job.status is JobStatus.RUNNING
