"""Incoming and outgoing messages and addresses (docs/invariants.md: lanes; docs/decisions.md: control words)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NewType

from pydantic import Field, TypeAdapter
from sqlmodel import Field as RowField
from sqlmodel import Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type, partial_index
from maestro.domain.values import Value

LaneKey = NewType("LaneKey", str)

DEFAULT_ACCOUNT = "default"

MAX_CONTENT_CHARS = 300_000
"""The most characters of an accepted message."""
MAX_LABEL_CHARS = 60
"""The most characters of a button's label; platforms with a lower limit cut it."""


class Address(Value):
    """The address of a conversation on a platform: a channel or thread, as one account sees it."""

    platform: str
    account: str = DEFAULT_ACCOUNT
    channel: str
    thread: str = ""

    @property
    def outbound_lane(self) -> str:
        """The key of the channel's outbound lane, which orders sends to the channel and all its threads."""
        return "/".join((self.platform, self.account, self.channel))


class Attachment(Value):
    """A reference to a file of a message; the connector or the media store has the bytes of the file."""

    id: str
    filename: str = ""
    content_type: str = ""
    size: int = Field(default=0, ge=0, description="bytes, 0 when the platform does not say")


class Addressing(StrEnum):
    """The addressee of a message in a group, by the platform's own mentions and replies.

    ``US``: the message mentions Maestro's account. ``REPLY``: it replies to a message of that account, whichever agent
    wrote it. ``ANYBODY``: the account is set to receive every message (``requireMention``). An ``@slug`` in the text is
    not considered here.
    """

    NOBODY = ""
    ANYBODY = "anybody"
    REPLY = "reply"
    US = "us"


class IncomingMessage(Value):
    """A message as a connector received it; ``id`` is the platform's id, unique in its channel."""

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
        default="", max_length=256, description="the id of the message that this edit replaces; empty for a new message"
    )


class Button(Value):
    """A button below a message; when a user presses it, Maestro gets ``value`` as if the user had typed it."""

    label: str = Field(min_length=1, max_length=MAX_LABEL_CHARS)
    value: str = Field(min_length=1)


class OutgoingMessage(Value):
    """A chunk to send to a platform; ``id`` is the id of the delivery's row, the same at every attempt.

    ``key`` is an idempotency key that also differs between Maestro instances, because several may use one platform.
    With a ``path``, the file at this path is sent, with ``content`` as its caption, which may be empty.
    """

    id: int
    address: Address
    content: str
    reply_to: str = ""
    more: bool = Field(default=False, description="whether another chunk of the same text follows")
    notice: bool = Field(default=False, description="whether the message is a notice of Maestro")
    key: str = Field(default="", max_length=25, description="ASCII letters and digits, the same at every attempt")
    filename: str = Field(default="", description="the name of the file that the content is sent as; empty: as a text")
    path: Path | None = Field(default=None, description="the path of the stored file; None: the content is sent")
    content_type: str = Field(default="", description="the content type of the stored file")
    size: int = Field(default=0, description="the bytes of a stored file that may be on another host")
    buttons: tuple[Button, ...] = ()
    unasked: bool = Field(default=False, description="whether no user waits for the message, as for a scheduled post")
    edits: str = Field(default="", description="the platform's id of the message to replace; empty: none")
    tried_at: datetime | None = Field(
        default=None, description="when the message was first sent without a receipt; None: never"
    )


class Receipt(Value):
    """The platform's confirmation that it accepted a message, with the platform's id of the message."""

    platform_message_id: str


class ReceiptState(StrEnum):
    """The last state that a platform reported for a sent message; the states are in the order of time."""

    UNKNOWN = ""
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


class ReceiptReport(Value):
    """A platform's delivery report for a sent message; for a failed delivery, ``error`` is the reason as a sentence."""

    platform_message_id: str
    standing: ReceiptState
    error: str = ""


class AcceptedMessage(Value):
    """The store's confirmation that an incoming message is durable, so that the platform may be acknowledged.

    A message that no agent answers is only counted: ``ignored`` is the reason, and ``job_id`` is empty.
    """

    message_id: str
    job_id: str
    duplicate: bool
    ignored: str = ""


def lane_key(address: Address, user_id: str | None) -> LaneKey:
    """Return the key of a lane (queue): its address, and the user if the channel's binding separates users."""
    parts = (address.platform, address.account, address.channel, address.thread, user_id or "")
    return LaneKey("/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts))


class ControlWord(StrEnum):
    """The control words, as users type them."""

    STOP = "/stop"
    STATUS = "/status"
    NEW = "/new"


def control_word(content: str) -> ControlWord | None:
    """Return the control word that is the whole message, None for any other; case and outer blanks do not matter."""
    typed = content.strip().lower()
    return next((word for word in ControlWord if word == typed), None)


PAIR = "/pair"


@dataclass(frozen=True)
class PairingCode:
    """The code in a user's pairing message, as the user typed it."""

    text: str


def pairing_code(content: str) -> PairingCode | None:
    """Return the code in a message ``/pair CODE``, empty if it is missing; None for any other message."""
    first, *rest = content.split(maxsplit=1) or [""]
    return PairingCode("".join(rest).strip()) if first.lower() == PAIR else None


_ATTACHMENTS = TypeAdapter(tuple[Attachment, ...])
_SAME_COLUMNS = frozenset(IncomingMessage.model_fields) - {"id", "address", "attachments", "edit_of"}
"""The inbox columns that store a field of the message unchanged."""


class FloodState(StrEnum):
    """Whether the user exceeded the rate limit with this message, and whether the user got a notice of that."""

    WITHIN = ""
    OVER = "over"
    TOLD = "told"


class InboxRow(SQLModel, table=True):
    """An incoming message; unique by platform, account, channel and the platform's message id.

    ``control`` is the control word that Maestro executed, empty for other messages and for a refused control word. The
    code of a pairing message is not stored in ``content``.
    """

    __tablename__ = "inbox"
    __table_args__ = (
        UniqueConstraint("platform", "account", "channel", "message_id"),
        partial_index("ix_inbox_new_conversation", "platform", "account", "channel", "id", where="control = '/new'"),
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
    pace: FloodState = RowField(default=FloodState.WITHIN, sa_type=enum_column_type(FloodState))
    addressing: Addressing = RowField(default=Addressing.NOBODY, sa_type=enum_column_type(Addressing))

    @staticmethod
    def columns(message: IncomingMessage) -> dict[str, Any]:
        attachments = _ATTACHMENTS.dump_json(message.attachments).decode()
        columns = {
            "message_id": message.id,
            "attachments": attachments,
            **message.model_dump(include=set(_SAME_COLUMNS)),
        }
        return {**message.address.model_dump(), **columns}

    @property
    def address(self) -> Address:
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)

    def message(self) -> IncomingMessage:
        same = {name: getattr(self, name) for name in _SAME_COLUMNS}
        return IncomingMessage(id=self.message_id, address=self.address, attachments=self.files(), **same)

    def files(self) -> tuple[Attachment, ...]:
        return _ATTACHMENTS.validate_json(self.attachments)
