"""Deliveries: every chunk of an outgoing message is stored as a row before it is sent."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter
from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type, partial_index
from maestro.domain.messages import Address, Button, OutgoingMessage, ReceiptState

_BUTTONS = TypeAdapter(tuple[Button, ...])


class DeliveryPurpose(StrEnum):
    """The purpose of a delivery: the model's answer, or a notice of Maestro itself, such as a failure notice."""

    ANSWER = "answer"
    NOTICE = "notice"


class DeliveryState(StrEnum):
    """The state of a chunk; ``sending`` is committed before the platform is called.

    When a job ends early, its chunks that were never sent to the platform become abandoned. Chunks that were sent
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
"""The states of chunks that a job still has to send; a chunk ``IN_DOUBT`` is sent again with the same id and key."""


class Delivery(SQLModel, table=True):
    """A chunk of an outgoing message; ids grow in the order of sending, and a repeated send has the same id.

    With a ``filename`` the content is sent as a file; with a ``digest`` the stored file of this digest is sent, with
    the content as its caption. ``tried_at`` is the time of the first send without a known result, None if there is
    none. ``repeats`` counts the repeated sends of the chunk, each a possible duplicate. ``standing`` is the last state
    in a delivery report of the platform. ``edits`` is the platform's id of the message that the chunk replaces.
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
    purpose: DeliveryPurpose = Field(sa_type=enum_column_type(DeliveryPurpose))
    seq: int
    platform: str
    account: str
    channel: str
    thread: str = ""
    content: str
    reply_to: str = ""
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=enum_column_type(DeliveryState))
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
    standing: ReceiptState = Field(default=ReceiptState.UNKNOWN, sa_type=enum_column_type(ReceiptState))
    tried_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    sent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def choices(self) -> tuple[Button, ...]:
        """The buttons below the chunk."""
        return _BUTTONS.validate_json(self.buttons) if self.buttons else ()

    def build_outgoing(
        self, *, has_more: bool, path: Path | None = None, size: int = 0, proactive: bool = False
    ) -> OutgoingMessage:
        """Return the message for the connector; ``has_more`` means that another chunk of the same text follows.

        ``path`` is the path of the stored file, None if the chunk is not a stored file, and ``size`` its bytes if they
        are known. ``proactive`` means that no user waits for the message.
        """
        if self.id is None:
            raise ValueError("a delivery is sent only after it is stored")
        return OutgoingMessage(
            id=self.id,
            address=Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread),
            content=self.content,
            reply_to=self.reply_to,
            more=has_more,
            notice=self.purpose is DeliveryPurpose.NOTICE,
            # A row that an earlier release wrote has no key, so the key is computed.
            key=self.key or delivery_key(self.job_id, self.purpose, self.seq),
            filename=self.filename,
            path=path,
            content_type=self.content_type,
            size=size,
            buttons=self.choices,
            unasked=proactive,
            edits=self.edits,
            # A row that an earlier release wrote has no time of the first attempt, only of its creation.
            tried_at=(self.tried_at or self.created_at) if self.state in IN_DOUBT else None,
        )


def delivery_key(job_id: str, purpose: DeliveryPurpose, seq: int, instead_of: int | None = None) -> str:
    """Return the idempotency key of a chunk, the same at every attempt: 24 hexadecimal digits.

    Other Maestro instances compute other keys. If the chunk is sent anew in another row, ``instead_of`` is the id of
    the earlier row.
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
    """The right to send in a channel: one job at a time holds it, for all its chunks (docs/invariants.md: lanes)."""

    __tablename__ = "outbound_lanes"

    lane: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    taken_at: datetime = Field(sa_type=UtcDateTime)
