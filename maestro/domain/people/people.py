"""Owners, known users, pairings and web users, and the counts of ignored messages.

See docs/decisions.md: access, web identity, routing.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.values import View

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


class PersonId(NamedTuple):
    """A person on a platform, written ``platform:userId``."""

    platform: str
    user_id: str

    @classmethod
    def parse(cls, text: str) -> "PersonId":
        """Read ``platform:userId``, which must be well formed; the user id may contain colons."""
        platform, _, user_id = text.partition(":")
        return cls(platform, user_id)

    def __str__(self) -> str:
        """Write it as in the configuration."""
        return f"{self.platform}:{self.user_id}"


class Owner(SQLModel, table=True):
    """A person whose word always counts, beside those that the configuration names."""

    __tablename__ = "owners"

    platform: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcDateTime)
    added_by: str


class OwnerView(View):
    """An owner; ``configured`` says that the configuration names them, ``added_at`` when a command did."""

    id: str
    platform: str
    user_id: str
    configured: bool
    added_at: datetime | None = None
    added_by: str = ""


class OwnerPage(View):
    """The owners by platform and user id; all of them, so ``next`` is always null."""

    items: tuple[OwnerView, ...]
    next: str | None = None


def owner_page(configured: Iterable[str], added: Sequence[Owner]) -> OwnerPage:
    """Show every owner once, whether the configuration names them (``platform:userId``), a command, or both."""
    named = {PersonId.parse(text) for text in configured}
    rows = {PersonId(row.platform, row.user_id): row for row in added}
    return OwnerPage(
        items=tuple(_view(person, person in named, rows.get(person)) for person in sorted(named | {*rows}))
    )


def _view(person: PersonId, configured: bool, row: Owner | None) -> OwnerView:
    return OwnerView(
        id=str(person),
        platform=person.platform,
        user_id=person.user_id,
        configured=configured,
        added_at=row.added_at if row else None,
        added_by=row.added_by if row else "",
    )


class WebTicket(SQLModel, table=True):
    """A browser's single-use way in; only the SHA-256 of the ticket is kept."""

    __tablename__ = "web_tickets"

    digest: str = Field(primary_key=True)
    user_id: str
    user_name: str
    role: str
    expires_at: datetime = Field(sa_type=UtcDateTime)


class EndedLogin(SQLModel, table=True):
    """A login to the dashboard that was logged out, kept until its cookie would have expired."""

    __tablename__ = "ended_logins"

    id: str = Field(primary_key=True)
    expires_at: datetime = Field(sa_type=UtcDateTime)


class ChannelOwner(SQLModel, table=True):
    """A channel belongs to who opened it."""

    __tablename__ = "channel_owners"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    user_id: str
    opened_at: datetime = Field(sa_type=UtcDateTime)


class UploadedFile(SQLModel, table=True):
    """A file somebody uploaded; the bytes are in the media store under ``digest``."""

    __tablename__ = "uploads"

    id: str = Field(primary_key=True)
    user_id: str = Field(index=True)
    digest: str
    filename: str
    content_type: str
    size: int
    created_at: datetime = Field(sa_type=UtcDateTime)


class ConnectorStatus(SQLModel, table=True):
    """What a connector last said of itself, and how far its events are behind.

    ``lag_seconds`` is how long before we had it the last event happened. ``last_error`` is kept until another one.
    ``edit_interval`` is how often in seconds it writes an answer that grows anew, 0 where answers come whole.
    """

    __tablename__ = "connectors"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    state: str
    detail: str = ""
    changed_at: datetime = Field(sa_type=UtcDateTime)
    last_event_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    lag_seconds: float | None = None
    last_error: str = ""
    last_error_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    edit_interval: float = 0


class AuditEntry(SQLModel, table=True):
    """Who did what to what, and from where; never holds a secret or a message.

    ``origin`` is the address that an action over the network came from, empty for one on this machine's terminal.
    """

    __tablename__ = "audit_log"
    __table_args__ = tuple(Index(f"ix_audit_log_{name}", name, "at") for name in ("actor", "action", "subject"))

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    actor: str
    action: str
    subject: str = ""
    detail: str = ""
    origin: str = ""


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
