"""Drafts: the unfinished answer that a user sees while the model writes it, and the message that shows it."""

import hashlib
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.deliveries import KEY_LENGTH
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, OutgoingMessage

PLACEHOLDER = "…"
"""The first text of a draft's message, until the platform returns the message's id; after a crash it may stay."""
STOPPED = " … [stopped]"
IN_FILES = "The answer follows."
"""The text that replaces a draft if the answer has files but no text."""
MOST_CHARACTERS = 20_000
"""The most characters of a draft; no platform shows more in one message."""


class DraftState(StrEnum):
    """The state of a draft.

    ``written``: stored only. ``sending`` is committed before the platform is asked to create the message. ``shown``:
    the message exists. ``taken``: the final answer replaces the draft in the same message. ``dropped``: the draft is
    not shown any more.
    """

    WRITTEN = "written"
    SENDING = "sending"
    SHOWN = "shown"
    TAKEN = "taken"
    DROPPED = "dropped"


PLACED = (DraftState.SENDING, DraftState.SHOWN, DraftState.TAKEN)
"""The states of a draft whose message is, or may be, on the platform."""
UNFINISHED = (DraftState.WRITTEN, DraftState.SENDING, DraftState.SHOWN)
"""The states of a draft whose text may still change."""


class Draft(SQLModel, table=True):
    """The text that the newest model call of a job has written so far, without tags; each call starts with no text.

    ``revision`` grows with every change. ``tried_at`` is the time of the first request for the message, None once the
    platform has returned the id. ``begun_at`` distinguishes the draft from an earlier draft of the same job, whose
    message became a question.
    """

    __tablename__ = "drafts"

    job_id: str = Field(primary_key=True, foreign_key="queue.id")
    number: int
    text: str
    revision: int = 1
    state: DraftState = Field(default=DraftState.WRITTEN, sa_type=enum_column_type(DraftState))
    platform_message_id: str = ""
    tried_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    begun_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def key(self) -> str:
        """The idempotency key of the draft's message: the same at every attempt, different in other instances."""
        return hashlib.sha256(f"{self.job_id}/draft/{self.begun_at.isoformat()}".encode()).hexdigest()[:KEY_LENGTH]

    def build_placeholder(self, address: Address, reply_to: str) -> OutgoingMessage:
        """Return the message that is sent first, which contains only a placeholder."""
        return OutgoingMessage(
            id=0, address=address, content=PLACEHOLDER, reply_to=reply_to, key=self.key, tried_at=self.tried_at
        )

    def build_edit(self, address: Address, text: str) -> OutgoingMessage:
        """Return the edit that gives the draft's message this text."""
        return OutgoingMessage(id=0, address=address, content=text, key=self.key, edits=self.platform_message_id)


class DraftStep(StrEnum):
    """The next action for a draft."""

    NOTHING = "nothing"
    PLACE = "place"
    EDIT = "edit"
    END = "end"
    FORGET = "forget"


def next_draft_step(draft: Draft, job: JobStatus, shown_revision: int, *, free: bool) -> DraftStep:
    """Return the next action for a draft; the platform shows ``shown_revision``, and ``job`` is the job's status.

    ``free`` means that no other job sends or streams in the channel: a new message would separate the chunks of that
    job. A waiting job continues in the same message when it resumes. After the job has ended, its draft is marked as
    stopped, unless the answer has taken the draft's message.
    """
    if job.ended:
        # A message that may not exist yet is sent first: only an existing message can be marked as stopped.
        after = {DraftState.SENDING: DraftStep.PLACE, DraftState.SHOWN: DraftStep.END}
        return DraftStep.FORGET if job is JobStatus.COMPLETED else after.get(draft.state, DraftStep.FORGET)
    if job is not JobStatus.RUNNING or not draft.text:
        return DraftStep.NOTHING
    if draft.state is DraftState.SHOWN:
        return DraftStep.EDIT if draft.revision != shown_revision else DraftStep.NOTHING
    unplaced = draft.state in (DraftState.WRITTEN, DraftState.SENDING)
    return DraftStep.PLACE if unplaced and free else DraftStep.NOTHING


def stopped_text(text: str) -> str:
    """Return the text of a draft that will not be continued, with a mark at its end."""
    return text.rstrip() + STOPPED
