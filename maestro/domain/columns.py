"""Column types and indexes that several tables use, and the row versions that invalidate cached values."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Index, String, TypeDecorator, text
from sqlmodel import Field, SQLModel

LARGEST = 2**63 - 1
"""The largest integer that a database column can hold."""


class UtcDateTime(TypeDecorator[datetime]):
    """A column type for times in UTC, stored as ISO 8601 text, which sorts by time and is readable."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        """Convert a time to UTC for storage; raises ``ValueError`` for a time without a time zone."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone cannot be stored; add its time zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Any) -> datetime | None:
        del dialect
        return None if value is None else datetime.fromisoformat(value)


def enum_column_type(enumeration: type[StrEnum]) -> Any:
    """Return a column type that stores the members of an enumeration as text, so that SQL queries can name them."""

    members = {str(member): member for member in enumeration}

    class EnumText(TypeDecorator[StrEnum]):
        impl = String
        cache_ok = True

        def process_bind_param(self, value: StrEnum | None, dialect: Any) -> Any:
            del dialect
            return None if value is None else str(enumeration(value))

        def process_result_value(self, value: Any, dialect: Any) -> StrEnum | None:
            del dialect
            # A dictionary finds a member five times as fast as the enumeration itself.
            return None if value is None else members.get(value) or enumeration(value)

    return EnumText


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet the SQL condition ``where``."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


class ChannelRow(SQLModel):
    """The key columns of a table with one row for each channel of a platform account."""

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)


class RowVersion(SQLModel, table=True):
    """The version of all rows of one kind; database triggers change the version with every change of a row.

    ``stamp`` is a new random number for every change. An old number therefore never occurs again, not even after a
    rollback or with a restored backup.
    """

    __tablename__ = "editions"

    name: str = Field(primary_key=True)
    stamp: int


class RowVersions(NamedTuple):
    """The stamps of all kinds of rows; None for rows that have never changed."""

    accounts: int | None = None
    agent_channels: int | None = None
    agents: int | None = None
    bot_instances: int | None = None
    compactions: int | None = None
    memory_state: int | None = None
    schedules: int | None = None
    skills: int | None = None
