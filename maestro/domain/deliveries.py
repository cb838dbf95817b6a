"""Deliveries, the stored chunks of outgoing messages, and drafts, which show an answer while the model writes it."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter
from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, partial_index, text_of
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, Button, OutgoingMessage, ReceiptState

_BUTTONS = TypeAdapter(tuple[Button, ...])

PLACEHOLDER = "…"
"""The text of a draft's message until the platform has returned its id; a crash may leave the message with it."""
STOPPED = " … [stopped]"
IN_FILES = "The answer follows."
"""The text that replaces a draft if the answer has files but no text."""
MOST_CHARACTERS = 20_000
"""The most characters of a draft; no platform shows more in one message."""


class DeliveryPurpose(StrEnum):
    """The purpose of a delivery: the model's answer, or a notice of Maestro itself, such as a failure notice."""

    ANSWER = "answer"
    NOTICE = "notice"


class DeliveryState(StrEnum):
    """The state of a chunk; ``sending`` is committed before the platform is called.

    When a job ends early, its chunks that were never sent to the platform become abandoned. Those that were sent
    without a receipt become unconfirmed: only the platform knows whether they arrived.
    """

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNCONFIRMED = "unconfirmed"
    FAILED = "failed"
    ABANDONED = "abandoned"


KEY_LENGTH = 24
"""The length of an idempotency key, in characters: Discord accepts at most 25."""

IN_DOUBT = (DeliveryState.SENDING, DeliveryState.UNCONFIRMED)
"""The states of a chunk that was sent without a receipt: the platform may have it."""

UNSENT = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.UNCONFIRMED)
"""The states of chunks that a job still has to send; those ``IN_DOUBT`` are repeated with the same id and key."""


class Delivery(SQLModel, table=True):
    """A chunk of an outgoing message; its id grows in the order of sending, so that a repeated send has the same id.

    With a ``filename`` the content is sent as a file; with a ``digest`` the stored file of this digest is sent, with
    the content as its caption. ``tried_at`` is the time of the first send without a known result, None if there is
    none. ``repeats`` counts the repeated sends of the chunk, each a possible duplicate. ``standing`` is the last state
    that the platform reported on its own. ``edits`` is the platform's id of the message that the chunk replaces.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("job_id", "purpose", "seq"),
        Index("ix_deliveries_channel", "platform", "account", "channel", "id"),
        Index("ix_deliveries_key", "key"),
        partial_index(
            "ix_deliveries_known",
            "platform",
            "account",
            "channel",
            "platform_message_id",
            where="platform_message_id <> ''",
        ),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    purpose: DeliveryPurpose = Field(sa_type=text_of(DeliveryPurpose))
    seq: int
    platform: str
    account: str
    channel: str
    thread: str = ""
    content: str
    reply_to: str = ""
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=text_of(DeliveryState))
    attempts: int = 0
    platform_message_id: str = ""
    error: str = ""
    filename: str = ""
    digest: str = ""
    content_type: str = ""
    buttons: str = ""
    edits: str = ""
    key: str = ""
    repeats: int = 0
    standing: ReceiptState = Field(default=ReceiptState.UNKNOWN, sa_type=text_of(ReceiptState))
    tried_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    sent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def choices(self) -> tuple[Button, ...]:
        """The buttons below the chunk."""
        return _BUTTONS.validate_json(self.buttons) if self.buttons else ()

    def outgoing(self, *, more: bool, path: Path | None = None, unasked: bool = False) -> OutgoingMessage:
        """Return the message for the connector; ``more`` means that another chunk of the same text follows.

        ``path`` is the path of the stored file, None if the chunk is not a stored file. ``unasked`` means that no user
        waits for the message.
        """
        if self.id is None:
            raise ValueError("a delivery is sent only after it is stored")
        return OutgoingMessage(
            id=self.id,
            address=Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread),
            content=self.content,
            reply_to=self.reply_to,
            more=more,
            notice=self.purpose is DeliveryPurpose.NOTICE,
            # A row that an earlier release wrote has no key, so the key is computed.
            key=self.key or delivery_key(self.job_id, self.purpose, self.seq),
            filename=self.filename,
            path=path,
            content_type=self.content_type,
            buttons=self.choices,
            unasked=unasked,
            edits=self.edits,
            # A row that an earlier release wrote has no time of the first attempt, only of its creation.
            tried_at=(self.tried_at or self.created_at) if self.state in IN_DOUBT else None,
        )


def delivery_key(job_id: str, purpose: DeliveryPurpose, seq: int, instead_of: int | None = None) -> str:
    """Return the idempotency key of a chunk, the same at every attempt: 24 hexadecimal digits.

    It also differs from the keys of other Maestro instances. If the chunk is sent anew in another row, ``instead_of``
    is the id of the earlier row.
    """
    chunk = f"{job_id}/{purpose}/{seq}" + ("" if instead_of is None else f"/{instead_of}")
    return hashlib.sha256(chunk.encode()).hexdigest()[:KEY_LENGTH]


def buttons_json(buttons: Sequence[Button]) -> str:
    """Return buttons as JSON for their column; empty without buttons."""
    return _BUTTONS.dump_json(tuple(buttons)).decode() if buttons else ""


class JobFile(SQLModel, table=True):
    """A file that an agent sends with its answer; the media store has the bytes under ``digest``, ``size`` is in bytes.

    ``number`` and ``place`` identify the tool call that requested it: files are sent in the order of the requests.
    """

    __tablename__ = "job_files"
    __table_args__ = (UniqueConstraint("job_id", "digest", "filename"), Index("ix_job_files_digest", "digest"))

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    number: int = 0
    place: int = 0
    digest: str
    filename: str
    content_type: str = ""
    size: int = 0
    caption: str = ""
    created_at: datetime = Field(sa_type=UtcDateTime)


class OutboundLane(SQLModel, table=True):
    """A claim on sending to a channel: one job at a time holds it, for all its chunks (docs/invariants.md: lanes)."""

    __tablename__ = "outbound_lanes"

    lane: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    taken_at: datetime = Field(sa_type=UtcDateTime)


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
    platform has returned the id. ``begun_at`` distinguishes the draft from an earlier one of the same job, whose
    message became a question.
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
        """The idempotency key of the draft's message: the same at every attempt, different in other instances."""
        return hashlib.sha256(f"{self.job_id}/draft/{self.begun_at.isoformat()}".encode()).hexdigest()[:KEY_LENGTH]

    def placeholder(self, address: Address, reply_to: str) -> OutgoingMessage:
        """Return the message that is sent first, which contains only a placeholder."""
        return OutgoingMessage(
            id=0, address=address, content=PLACEHOLDER, reply_to=reply_to, key=self.key, tried_at=self.tried_at
        )

    def edit_to(self, address: Address, text: str) -> OutgoingMessage:
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

    ``free`` means that no other job sends or streams in the channel: a new message between their chunks would separate
    them. A waiting job later continues in the same message. After the job has ended, its draft is marked as stopped,
    unless the answer has taken its message.
    """
    if job.ended:
        # A message that is still being created is placed first: only an existing message can be marked as stopped.
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
