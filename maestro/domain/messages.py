"""The messages that come in and go out, where they belong, and the row of one that came in.

See docs/invariants.md: lanes; docs/decisions.md: control words.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NewType

from pydantic import Field, TypeAdapter
from sqlmodel import Field as RowField
from sqlmodel import Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.values import Value

LaneKey = NewType("LaneKey", str)

DEFAULT_ACCOUNT = "default"

MAX_CONTENT_CHARS = 300_000
"""Characters of the longest message that is taken in."""
MAX_LABEL_CHARS = 60
"""Characters on a button; a platform that shows fewer cuts them."""


class Address(Value):
    """A place on a platform where a conversation happens: one account's channel or thread."""

    platform: str
    account: str = DEFAULT_ACCOUNT
    channel: str
    thread: str = ""

    @property
    def outbound_lane(self) -> str:
        """The name under which sends to this channel are kept apart, threads included."""
        return "/".join((self.platform, self.account, self.channel))


class Attachment(Value):
    """A file that came with a message, by reference only; the bytes stay in the connector's or the media store."""

    id: str
    filename: str = ""
    content_type: str = ""
    size: int = Field(default=0, ge=0, description="bytes, 0 when the platform does not say")


class Addressing(StrEnum):
    """To whom a line in a group is said, by means of the platform's own.

    ``US`` is the account of ours, which is mentioned; ``REPLY`` answers what it said, whichever agent that was.
    ``ANYBODY`` is for an account that is set to hear every line (``requireMention``). What a text says with ``@slug``
    is no part of this.
    """

    NOBODY = ""
    ANYBODY = "anybody"
    REPLY = "reply"
    US = "us"


class IncomingMessage(Value):
    """One message as a connector hands it over; ``id`` is the platform's own and unique per channel."""

    id: str = Field(min_length=1, max_length=256)
    address: Address
    user_id: str
    user_name: str = ""
    content: str = ""
    sent_at: datetime
    attachments: tuple[Attachment, ...] = ()
    is_direct: bool = False
    is_owner: bool = False
    from_bot: bool = False
    reply_to: str = ""
    addressing: Addressing = Addressing.NOBODY
    edit_of: str = Field(
        default="", max_length=256, description="the id of the message whose text this replaces; empty for a new one"
    )


class Button(Value):
    """A choice below a message; who presses it says ``value``, as if they had typed it."""

    label: str = Field(min_length=1, max_length=MAX_LABEL_CHARS)
    value: str = Field(min_length=1)


class OutgoingMessage(Value):
    """One chunk on its way to a platform; ``id`` is the delivery row's, so that a repeat can be recognised.

    ``key`` says the same to platforms that other Maestros use as well: it is unique among all of them.
    With a ``path`` it is that file, and ``content`` is what is said below it, which may be nothing.
    """

    id: int
    address: Address
    content: str
    reply_to: str = ""
    more: bool = Field(default=False, description="whether another chunk of the same text follows")
    notice: bool = Field(default=False, description="whether Maestro itself says this, and no model")
    key: str = Field(default="", max_length=25, description="ASCII letters and digits, the same at every attempt")
    filename: str = Field(default="", description="the name of the file that the content goes as; empty: as a message")
    path: Path | None = Field(
        default=None, description="where the bytes of the file are; None: the content is the file"
    )
    content_type: str = Field(default="", description="what kind of file is at the path")
    buttons: tuple[Button, ...] = ()
    unasked: bool = Field(default=False, description="whether nobody waits for it, as for a scheduled post")
    edits: str = Field(
        default="", description="the platform's id of the message whose place it takes; empty: a new one"
    )
    tried_at: datetime | None = Field(
        default=None, description="when it was first handed over without a word back; None: the platform has it not"
    )


class Receipt(Value):
    """The platform's word that it has the message."""

    platform_message_id: str


class ReceiptState(StrEnum):
    """What a platform said last of a message of ours, in the order in which it can come true."""

    UNKNOWN = ""
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


class ReceiptReport(Value):
    """What a platform tells of a message of ours without being asked; ``error`` is our own sentence, for a failure."""

    platform_message_id: str
    standing: ReceiptState
    error: str = ""


class AcceptedMessage(Value):
    """The word of the store that a message is kept; only now may the platform be acknowledged.

    A message that is for nobody is only counted: ``ignored`` says why, and it has no job.
    """

    message_id: str
    job_id: str
    duplicate: bool
    ignored: str = ""


def lane_of(address: Address, user_id: str | None) -> LaneKey:
    """Name the lane: platform, account, channel, thread, and the user where the binding keys conversations by user."""
    parts = (address.platform, address.account, address.channel, address.thread, user_id or "")
    return LaneKey("/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts))


class ControlWord(StrEnum):
    """The words, as they are written."""

    STOP = "/stop"
    STATUS = "/status"
    NEW = "/new"


def control_word(content: str) -> ControlWord | None:
    """Return the control word if the message is nothing else; case and surrounding space do not matter."""
    said = content.strip().lower()
    return next((word for word in ControlWord if word == said), None)


PAIR = "/pair"


@dataclass(frozen=True)
class PairingCode:
    """What a person sends to be let in: the code that an operator gave them, as they wrote it."""

    text: str


def pairing_code(content: str) -> PairingCode | None:
    """Return the code of ``/pair CODE``, an empty one where it is missing; None for what is something else."""
    first, *rest = content.split(maxsplit=1) or [""]
    return PairingCode("".join(rest).strip()) if first.lower() == PAIR else None


_ATTACHMENTS = TypeAdapter(tuple[Attachment, ...])


class FloodState(StrEnum):
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

    id: int | None = RowField(default=None, primary_key=True)
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
    sent_at: datetime = RowField(sa_type=UtcDateTime)
    received_at: datetime = RowField(sa_type=UtcDateTime)
    job_id: str = RowField(index=True)
    control: str = ""
    pace: FloodState = RowField(default=FloodState.WITHIN, sa_type=text_of(FloodState))
    addressing: Addressing = RowField(default=Addressing.NOBODY, sa_type=text_of(Addressing))

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
