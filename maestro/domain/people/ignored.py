"""What was dropped at the door and left no row of its own (docs/decisions.md: routing)."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class IgnoredLines(SQLModel, table=True):
    """How many messages of a channel were dropped at the door, for this reason."""

    __tablename__ = "ignored_lines"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    reason: str = Field(primary_key=True)
    count: int = 0
    first_at: datetime = Field(sa_type=UtcDateTime)
    last_at: datetime = Field(sa_type=UtcDateTime)
