"""Deliveries: every chunk that goes out is a row before it is sent."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter
from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.messages import Address, Button, OutgoingMessage, ReceiptState

_BUTTONS = TypeAdapter(tuple[Button, ...])


class DeliveryPurpose(StrEnum):
    """Why something is sent: the model's answer, or a line of our own such as a failure notice."""

    ANSWER = "answer"
    NOTICE = "notice"


class DeliveryState(StrEnum):
    """``sending`` is committed before the platform is called.

    When a job ends early, what was never handed over is abandoned, and what was and got no receipt is unconfirmed:
    only the platform knows whether it arrived.
    """

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNCONFIRMED = "unconfirmed"
    FAILED = "failed"
    ABANDONED = "abandoned"


KEY_LENGTH = 24
"""Discord takes a nonce of 25 characters at most."""

IN_DOUBT = (DeliveryState.SENDING, DeliveryState.UNCONFIRMED)
"""What was handed over without a word back: the platform may have it."""

UNSENT = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.UNCONFIRMED)
"""What a job still has to send; a chunk in doubt goes out under its old id, by which a repeat is recognised."""


class Delivery(SQLModel, table=True):
    """One chunk; a platform can recognise a repeat by its id, which grows in the order of sending per channel.

    With a ``filename`` the content is sent as a file; with a ``digest`` it is the kept file of this digest, and the
    content is said below it. ``tried_at`` is when it was first handed over since when we have had no word whether the
    platform has it; None when it has it not, or surely. ``repeats`` is how often it was sent again although the
    platform may have had it: it may be there so many times more. ``standing`` is what the platform said of it last,
    without being asked. ``edits`` is the platform's id of the message whose place it takes.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("job_id", "purpose", "seq"),
        Index("ix_deliveries_channel", "platform", "account", "channel", "id"),
        Index("ix_deliveries_key", "key"),
        Index(
            "ix_deliveries_known",
            "platform",
            "account",
            "channel",
            "platform_message_id",
            sqlite_where=text("platform_message_id <> ''"),
            postgresql_where=text("platform_message_id <> ''"),
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
        """The buttons below it."""
        return _BUTTONS.validate_json(self.buttons) if self.buttons else ()

    def outgoing(self, *, more: bool, path: Path | None = None, unasked: bool = False) -> OutgoingMessage:
        """Return what the connector sends; ``more`` says that another chunk of the same text follows.

        ``path`` is where the kept file is, if it is one.
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
            # A chunk that an earlier release left behind has no key of its own yet.
            key=self.key or delivery_key(self.job_id, self.purpose, self.seq),
            filename=self.filename,
            path=path,
            content_type=self.content_type,
            buttons=self.choices,
            unasked=unasked,
            edits=self.edits,
            # Of a chunk that an earlier release left behind nothing but its age is known.
            tried_at=(self.tried_at or self.created_at) if self.state in IN_DOUBT else None,
        )


def delivery_key(job_id: str, purpose: DeliveryPurpose, seq: int, instead_of: int | None = None) -> str:
    """Tell a chunk from every other one of any Maestro, the same at every attempt: 24 letters and digits.

    ``instead_of`` is the id of the row that was sent before, of a chunk that is sent anew.
    """
    chunk = f"{job_id}/{purpose}/{seq}" + ("" if instead_of is None else f"/{instead_of}")
    return hashlib.sha256(chunk.encode()).hexdigest()[:KEY_LENGTH]


def buttons_json(buttons: Sequence[Button]) -> str:
    """Return buttons as their column has them."""
    return _BUTTONS.dump_json(tuple(buttons)).decode() if buttons else ""


class JobFile(SQLModel, table=True):
    """A file that an agent wants to be sent with its answer; the bytes are kept under ``digest``, ``size`` in bytes.

    ``number`` and ``place`` are of the tool call that wants it: files go out in the order in which they were asked for.
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
    """Who sends in a channel now: one job at a time, for all its chunks (docs/invariants.md: lanes)."""

    __tablename__ = "outbound_lanes"

    lane: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    taken_at: datetime = Field(sa_type=UtcDateTime)
