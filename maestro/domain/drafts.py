"""An answer while it is written: what people may see of it so far, and how far its platform has it."""

import hashlib
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.deliveries import KEY_LENGTH
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, OutgoingMessage

PLACEHOLDER = "…"
"""What the message says until the platform has told what it is known as: a crash may leave no more behind."""
STOPPED = " … [stopped]"
IN_FILES = "The answer follows."
"""Takes the place of what was shown where the answer has no words of its own."""
MOST_CHARACTERS = 20_000
"""Of a longer answer only the beginning grows: no platform shows more in one message."""


class DraftState(StrEnum):
    """``written`` is nowhere but in the store; ``sending`` is committed before the platform is asked for a message.

    ``shown`` has its message, which ``taken`` leaves to the answer itself; of ``dropped`` nothing more is shown.
    """

    WRITTEN = "written"
    SENDING = "sending"
    SHOWN = "shown"
    TAKEN = "taken"
    DROPPED = "dropped"


PLACED = (DraftState.SENDING, DraftState.SHOWN, DraftState.TAKEN)
"""What a draft is in while its message is, or may be, on the platform."""
UNFINISHED = (DraftState.WRITTEN, DraftState.SENDING, DraftState.SHOWN)
"""What a draft is in while its text may still change."""


class Draft(SQLModel, table=True):
    """What the newest call of a job has said so far, without its tags; each call begins from nothing.

    ``revision`` grows with every change. ``tried_at`` is when the platform was first asked for the message, as long as
    it has not said what it is known as. ``begun_at`` tells it from an earlier one of its job, which became a question.
    """

    __tablename__ = "drafts"

    job_id: str = Field(primary_key=True, foreign_key="queue.id")
    number: int
    text: str
    revision: int = 1
    state: DraftState = Field(default=DraftState.WRITTEN, sa_type=text_of(DraftState))
    platform_message_id: str = ""
    tried_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    begun_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def key(self) -> str:
        """Tell its message from every other one of any Maestro, the same at every attempt."""
        return hashlib.sha256(f"{self.job_id}/draft/{self.begun_at.isoformat()}".encode()).hexdigest()[:KEY_LENGTH]

    def placeholder(self, address: Address, reply_to: str) -> OutgoingMessage:
        """Return the message that is asked for, with no word of the answer."""
        return OutgoingMessage(
            id=0, address=address, content=PLACEHOLDER, reply_to=reply_to, key=self.key, tried_at=self.tried_at
        )

    def saying(self, address: Address, text: str) -> OutgoingMessage:
        """Return the message with another text."""
        return OutgoingMessage(id=0, address=address, content=text, key=self.key, edits=self.platform_message_id)


class DraftStep(StrEnum):
    """What is to be done about a draft now."""

    NOTHING = "nothing"
    PLACE = "place"
    EDIT = "edit"
    END = "end"
    FORGET = "forget"


def next_draft_step(draft: Draft, job: JobStatus, shown: int, *, free: bool) -> DraftStep:
    """Say what is to be done about a draft of a job in this status, of which revision ``shown`` is on the platform.

    ``free`` says that nobody else sends or is shown there, whose message would be torn apart by a new one. A job that
    waits goes on in the same message. What its job left behind says that nothing more comes, unless the answer had
    begun to take its place.
    """
    if job.ended:
        return _after_job(draft.state, job)
    if job is not JobStatus.RUNNING or not draft.text:
        return DraftStep.NOTHING
    if draft.state is DraftState.SHOWN:
        return DraftStep.EDIT if draft.revision != shown else DraftStep.NOTHING
    waits = draft.state in (DraftState.WRITTEN, DraftState.SENDING)
    return DraftStep.PLACE if waits and free else DraftStep.NOTHING


def stopped_text(text: str) -> str:
    """Return what is left of a draft that nothing follows."""
    return text.rstrip() + STOPPED


def _after_job(state: DraftState, job: JobStatus) -> DraftStep:
    if job is JobStatus.COMPLETED:
        return DraftStep.FORGET
    if state is DraftState.SENDING:
        return DraftStep.PLACE
    return DraftStep.END if state is DraftState.SHOWN else DraftStep.FORGET
