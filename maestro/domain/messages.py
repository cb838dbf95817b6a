"""The messages that come in and go out, and where they belong."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NewType

from pydantic import Field

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


class Standing(StrEnum):
    """What a platform said last of a message of ours, in the order in which it can come true."""

    UNKNOWN = ""
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


class Report(Value):
    """What a platform tells of a message of ours without being asked; ``error`` is our own sentence, for a failure."""

    platform_message_id: str
    standing: Standing
    error: str = ""


class Accepted(Value):
    """The word of the store that a message is kept; only now may the platform be acknowledged.

    A message that is for nobody is only counted: ``ignored`` says why, and it has no job.
    """

    message_id: str
    job_id: str
    duplicate: bool
    ignored: str = ""
