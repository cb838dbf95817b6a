"""Deliveries: every chunk that goes out is a row before it is sent (specification 003, step 13)."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.messages import Address, OutgoingMessage


class Purpose(StrEnum):
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


UNSENT = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.UNCONFIRMED)
"""What a job still has to send; a chunk in doubt goes out under its old id, by which a repeat is recognised."""


class Delivery(SQLModel, table=True):
    """One chunk; a platform can recognise a repeat by its id, which grows in the order of sending per channel."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("job_id", "purpose", "seq"),
        Index("ix_deliveries_channel", "platform", "account", "channel", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    purpose: Purpose = Field(sa_type=text_of(Purpose))
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
    created_at: datetime = Field(sa_type=UtcDateTime)
    sent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def outgoing(self, *, more: bool) -> OutgoingMessage:
        """Return what the connector sends; ``more`` says that another chunk of the same text follows."""
        if self.id is None:
            raise ValueError("a delivery is sent only after it is stored")
        return OutgoingMessage(
            id=self.id,
            address=Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread),
            content=self.content,
            reply_to=self.reply_to,
            more=more,
            notice=self.purpose is Purpose.NOTICE,
        )


class OutboundLane(SQLModel, table=True):
    """Who sends in a channel now: one job at a time, for all its chunks (design invariant 7)."""

    __tablename__ = "outbound_lanes"

    lane: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    taken_at: datetime = Field(sa_type=UtcDateTime)
