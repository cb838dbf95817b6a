"""Column types that the tables share, and the row versions that end cached values."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import DateTime, String, TypeDecorator
from sqlmodel import Field, SQLModel

LARGEST = 2**63 - 1
"""The largest number that a row can have."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, kept in SQLite as sortable ISO 8601 text so that an operator can read and compare it."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """Use the database's own type where it knows time zones."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(32))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        """Refuse a naive time: nobody could say when that was."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        moment = value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds") if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any, dialect: Any) -> datetime | None:
        """Give back an aware time."""
        del dialect
        if value is None or isinstance(value, datetime):
            return value
        return datetime.fromisoformat(value)


def text_of(words: type[StrEnum]) -> Any:
    """Return a column type that keeps a word of this enumeration as the text a person would type in a query."""

    known = {str(word): word for word in words}

    class EnumText(TypeDecorator[StrEnum]):
        impl = String
        cache_ok = True

        def process_bind_param(self, value: StrEnum | None, dialect: Any) -> Any:
            del dialect
            return None if value is None else str(words(value))

        def process_result_value(self, value: Any, dialect: Any) -> StrEnum | None:
            del dialect
            # A look in a table takes a fifth of what the enumeration takes to find its word.
            return None if value is None else known.get(value) or words(value)

    return EnumText


class RowVersion(SQLModel, table=True):
    """The edition of one kind of rows; triggers write it, whoever changes the rows.

    ``stamp`` is a number drawn at random for every change, so that none comes back: not after a change that was rolled
    back, nor with an older copy of the file.
    """

    __tablename__ = "editions"

    name: str = Field(primary_key=True)
    stamp: int


class RowVersions(NamedTuple):
    """The stamps of all editions; None for rows that nobody ever changed."""

    accounts: int | None = None
    agent_channels: int | None = None
    agents: int | None = None
    bot_instances: int | None = None
    compactions: int | None = None
    memory_state: int | None = None
    schedules: int | None = None
    skills: int | None = None
