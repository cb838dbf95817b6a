"""The messages that come in and go out, and where they belong (specification 003, step 1)."""

from datetime import datetime
from typing import NewType

from pydantic import Field

from maestro.domain.values import Value

LaneKey = NewType("LaneKey", str)

DEFAULT_ACCOUNT = "default"


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


class OutgoingMessage(Value):
    """One chunk on its way to a platform; ``id`` is the delivery row's, so that a repeat can be recognised."""

    id: int
    address: Address
    content: str
    reply_to: str = ""
    more: bool = Field(default=False, description="whether another chunk of the same text follows")
    notice: bool = Field(default=False, description="whether Maestro itself says this, and no model")


class Receipt(Value):
    """The platform's word that it has the message."""

    platform_message_id: str


class Accepted(Value):
    """The word of the store that a message is kept; only now may the platform be acknowledged.

    A message that is for nobody is only counted: ``ignored`` says why, and it has no job.
    """

    message_id: str
    job_id: str
    duplicate: bool
    ignored: str = ""
