"""The row that makes a message ours: written before the platform is told that we have it."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter
from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.messages import Address, Addressing, Attachment, IncomingMessage

_ATTACHMENTS = TypeAdapter(tuple[Attachment, ...])


class Pace(StrEnum):
    """Whether a person had sent too many messages in the last minute; of one that was over, whether they were told."""

    WITHIN = ""
    OVER = "over"
    TOLD = "told"


class InboxRow(SQLModel, table=True):
    """One received message; unique by platform, account, channel and the platform's message id.

    ``control`` is the control word that Maestro obeyed, empty for what is no control word and for a refused one. The
    code of a pairing is left out of ``content``.
    """

    __tablename__ = "inbox"
    __table_args__ = (
        UniqueConstraint("platform", "account", "channel", "message_id"),
        Index(
            "ix_inbox_new_conversation",
            "platform",
            "account",
            "channel",
            "id",
            sqlite_where=text("control = '/new'"),
            postgresql_where=text("control = '/new'"),
        ),
        Index("ix_inbox_person", "platform", "user_id", "pace", "received_at"),
    )

    id: int | None = Field(default=None, primary_key=True)
    platform: str
    account: str
    channel: str
    thread: str = ""
    message_id: str
    user_id: str
    user_name: str = ""
    content: str = ""
    attachments: str = "[]"
    is_direct: bool = False
    is_owner: bool = False
    from_bot: bool = False
    reply_to: str = ""
    sent_at: datetime = Field(sa_type=UtcDateTime)
    received_at: datetime = Field(sa_type=UtcDateTime)
    job_id: str = Field(index=True)
    control: str = ""
    pace: Pace = Field(default=Pace.WITHIN, sa_type=text_of(Pace))
    addressing: Addressing = Field(default=Addressing.NOBODY, sa_type=text_of(Addressing))

    @staticmethod
    def columns(message: IncomingMessage) -> dict[str, Any]:
        """Return the columns that keep a message."""
        return {
            **message.address.model_dump(),
            "message_id": message.id,
            "attachments": _ATTACHMENTS.dump_json(message.attachments).decode(),
            **message.model_dump(exclude={"id", "address", "attachments", "edit_of"}),
        }

    @property
    def address(self) -> Address:
        """Where it was said."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)

    def message(self) -> IncomingMessage:
        """Turn the row back into the message it keeps."""
        return IncomingMessage(
            id=self.message_id,
            address=self.address,
            user_id=self.user_id,
            user_name=self.user_name,
            content=self.content,
            sent_at=self.sent_at,
            attachments=self.files(),
            is_direct=self.is_direct,
            is_owner=self.is_owner,
            from_bot=self.from_bot,
            reply_to=self.reply_to,
            addressing=self.addressing,
        )

    def files(self) -> tuple[Attachment, ...]:
        """Return the attachments, by reference."""
        return _ATTACHMENTS.validate_json(self.attachments)
