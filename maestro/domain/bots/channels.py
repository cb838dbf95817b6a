"""Channels of platforms: up to where each was read, where it went, and whether anything can be sent there."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class ChannelCursor(SQLModel, table=True):
    """A channel, or a thread of one, that one of our accounts saw.

    Every message up to the platform's id ``mark`` is in the inbox; it is empty where nothing was read.
    """

    __tablename__ = "channel_cursors"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    thread: str = Field(primary_key=True)
    mark: str = ""
    direct: bool = False
    seen_at: datetime = Field(sa_type=UtcDateTime)


class DisabledChannel(SQLModel, table=True):
    """A channel in which the platform lets us send nothing any more.

    A message from there, or an operator, enables it again.
    """

    __tablename__ = "disabled_channels"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    reason: str
    disabled_at: datetime = Field(sa_type=UtcDateTime)


class MovedChannel(SQLModel, table=True):
    """A channel that its platform goes on with under another id, such as a group that became larger."""

    __tablename__ = "moved_channels"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    moved_to: str
    moved_at: datetime = Field(sa_type=UtcDateTime)
