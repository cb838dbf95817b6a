"""Who is known to us on a platform, and the codes by which a person becomes known (docs/decisions.md: access)."""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime, text_of

CODE_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without those that look like others: I, L, O, 0 and 1."""
CODE_LENGTH = 8
TOLD_AGAIN_AFTER = timedelta(minutes=10)
"""How long a person who goes on writing is not told the code again."""
MOST_PENDING = 100
"""People who may wait to be let in at the same time; strangers beyond them are told nothing."""
KEPT_AFTER_EXPIRY = timedelta(days=1)

GUESSES = timedelta(minutes=10)
"""The time in which wrong codes are counted."""
MOST_GUESSES = 5
"""Wrong codes of one person in that time; what they send after is not looked at."""
MOST_GUESSES_OF_ALL = 100
"""The same for everybody together: a person may have many names."""

Draw = Callable[[str], str]
"""Picks one letter of a text so that nobody can guess which."""


def new_code(draw: Draw) -> str:
    """Return a code that can be read out and typed."""
    return "".join(draw(CODE_LETTERS) for _ in range(CODE_LENGTH))


def code_of(text: str) -> str:
    """Return a code as it is kept, from how somebody wrote it."""
    return "".join(text.split()).replace("-", "").upper()


class PairingStatus(StrEnum):
    """A pending pairing waits for an operator's word; one that ran out is pending and past its time."""

    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"


class KnownPerson(SQLModel, table=True):
    """A person whom an operator let in: direct messages of theirs are answered."""

    __tablename__ = "known_people"

    platform: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    user_name: str = ""
    added_at: datetime = Field(sa_type=UtcDateTime)
    added_by: str


class Pairing(SQLModel, table=True):
    """An unknown person's wish to be let in: they were told the code, and tell it to an operator."""

    __tablename__ = "pairings"
    __table_args__ = (
        Index(
            "ux_pairings_pending",
            "platform",
            "user_id",
            unique=True,
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        Index("ix_pairings_person", "platform", "user_id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    code: str = Field(unique=True)
    platform: str
    account: str
    channel: str
    user_id: str
    user_name: str = ""
    status: PairingStatus = Field(default=PairingStatus.PENDING, sa_type=text_of(PairingStatus))
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    told_at: datetime = Field(sa_type=UtcDateTime)
    settled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    settled_by: str = ""

    def waits(self, now: datetime) -> bool:
        """Say whether an operator may still be told the code."""
        return self.status is PairingStatus.PENDING and self.expires_at > now

    def is_due(self, now: datetime) -> bool:
        """Say whether it is time to tell the person the code once more; a later time is one of a wrong clock."""
        return now - self.told_at >= TOLD_AGAIN_AFTER or self.told_at > now


class Invitation(SQLModel, table=True):
    """A code that an operator gives to a person, who sends it to us and is known from then on.

    Only the SHA-256 of the code is kept.
    """

    __tablename__ = "invitations"

    digest: str = Field(primary_key=True)
    as_owner: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    created_by: str
    expires_at: datetime = Field(sa_type=UtcDateTime)
