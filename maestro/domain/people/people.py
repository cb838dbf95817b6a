"""Owners, users, pairings, connector states, and access (docs/decisions.md: access, web identity, routing)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Field, Index, SQLModel

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.columns import ChannelRow, UtcDateTime, enum_column_type, partial_index
from maestro.domain.messages import InboxRow

CODE_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""The characters of a pairing code, without those that look alike: I, L, O, 0 and 1."""
CODE_LENGTH = 8
CODE_REPEATED_AFTER = timedelta(minutes=10)
"""The least time between two messages with the code to an unknown user, however many messages that user sends."""
MOST_PENDING = 100
"""The most pending pairings; further unknown users get no code and no reply."""
KEPT_AFTER_EXPIRY = timedelta(days=1)

GUESS_PERIOD = timedelta(minutes=10)
"""The period in which wrong codes are counted."""
MOST_GUESSES = 5
"""The most wrong codes of one user in ``GUESS_PERIOD``; further codes of that user are not checked."""
MOST_GUESSES_OF_ALL = 100
"""The most wrong codes of all users in ``GUESS_PERIOD``: one person may have many accounts."""

Draw = Callable[[str], str]
"""A function that picks a random character of a text, in a way that cannot be predicted."""


class PersonId(NamedTuple):
    """A user on a platform, written ``platform:userId``."""

    platform: str
    user_id: str

    @classmethod
    def parse_text(cls, text: str) -> "PersonId":
        """Read a well-formed ``platform:userId``; the user id may contain colons."""
        platform, _, user_id = text.partition(":")
        return cls(platform, user_id)

    def __str__(self) -> str:
        """Return the user as ``platform:userId``, the form in the configuration."""
        return f"{self.platform}:{self.user_id}"


class Owner(SQLModel, table=True):
    """An owner that a command added, besides the owners in the configuration.

    An owner may talk to every agent and approve everything.
    """

    __tablename__ = "owners"

    platform: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcDateTime)
    added_by: str


class WebTicket(SQLModel, table=True):
    """A single-use login ticket of a browser; only its SHA-256 digest is stored."""

    __tablename__ = "web_tickets"

    digest: str = Field(primary_key=True)
    user_id: str
    user_name: str
    role: str
    expires_at: datetime = Field(sa_type=UtcDateTime)


class EndedLogin(SQLModel, table=True):
    """A logout from the dashboard, stored until the login's cookie would have expired."""

    __tablename__ = "ended_logins"

    id: str = Field(primary_key=True)
    expires_at: datetime = Field(sa_type=UtcDateTime)


class ChannelOwner(ChannelRow, table=True):
    """The user that opened a channel; the channel belongs to this user."""

    __tablename__ = "channel_owners"

    user_id: str
    opened_at: datetime = Field(sa_type=UtcDateTime)


class UploadedFile(SQLModel, table=True):
    """An uploaded file; the bytes are in the media store under ``digest``."""

    __tablename__ = "uploads"

    id: str = Field(primary_key=True)
    user_id: str = Field(index=True)
    digest: str
    filename: str
    content_type: str
    size: int
    created_at: datetime = Field(sa_type=UtcDateTime)


class ConnectorStatus(SQLModel, table=True):
    """The last reported state of a connector, and the delay of its events.

    ``lag_seconds`` is the time from the last event on the platform to its receipt. ``last_error`` stays until the next
    error. ``edit_interval`` is the number of seconds between two updates of a streamed answer, 0 where answers are not
    streamed.
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
    """One entry of the audit log: actor, action, subject and origin; never holds a secret or a message.

    ``origin`` is the network address of the request, empty for an action from this machine's terminal.
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
    """Return a new random code that is easy to read out and to type."""
    return "".join(draw(CODE_LETTERS) for _ in range(CODE_LENGTH))


def normalize_code(text: str) -> str:
    """Return a code in its stored form: without blanks and hyphens, in upper case."""
    return "".join(text.split()).replace("-", "").upper()


class PairingStatus(StrEnum):
    """The state of a pairing; a pending pairing past ``expires_at`` counts as expired."""

    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"


class KnownPerson(SQLModel, table=True):
    """A user that an operator approved: the agents answer direct messages of this user."""

    __tablename__ = "known_people"

    platform: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    user_name: str = ""
    added_at: datetime = Field(sa_type=UtcDateTime)
    added_by: str


class Pairing(SQLModel, table=True):
    """An unknown user's request for access: the user gives the code to an operator, and the operator approves it."""

    __tablename__ = "pairings"
    __table_args__ = (
        partial_index("ux_pairings_pending", "platform", "user_id", unique=True, where="status = 'pending'"),
        Index("ix_pairings_person", "platform", "user_id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    code: str = Field(unique=True)
    platform: str
    account: str
    channel: str
    user_id: str
    user_name: str = ""
    status: PairingStatus = Field(default=PairingStatus.PENDING, sa_type=enum_column_type(PairingStatus))
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    told_at: datetime = Field(sa_type=UtcDateTime)
    settled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    settled_by: str = ""

    def is_open(self, now: datetime) -> bool:
        """Return whether the pairing can still be approved at the time ``now``."""
        return self.status is PairingStatus.PENDING and self.expires_at > now

    def is_code_due(self, now: datetime) -> bool:
        """Return whether the user gets the code again at the time ``now``.

        ``told_at`` is when the code was last sent; a time in the future comes from a wrong clock and counts as due.
        """
        return now - self.told_at >= CODE_REPEATED_AFTER or self.told_at > now


class Invitation(SQLModel, table=True):
    """A code that an operator gives to a user; the user sends it to Maestro and is known from then on.

    Only the SHA-256 digest of the code is stored.
    """

    __tablename__ = "invitations"

    digest: str = Field(primary_key=True)
    as_owner: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    created_by: str
    expires_at: datetime = Field(sa_type=UtcDateTime)


class IgnoredLines(ChannelRow, table=True):
    """The number of messages in a channel that were ignored before a job was created, by reason."""

    __tablename__ = "ignored_lines"

    reason: str = Field(primary_key=True)
    count: int = 0
    first_at: datetime = Field(sa_type=UtcDateTime)
    last_at: datetime = Field(sa_type=UtcDateTime)


class DmPolicy(StrEnum):
    """The policy for direct messages of unknown users: answer all, only after pairing, or none."""

    OPEN = "open"
    PAIRING = "pairing"
    ALLOWLIST = "allowlist"


UNKNOWN_USER_REASONS = {
    DmPolicy.PAIRING: "the user is not known: an operator has to approve the user first (dmPolicy pairing)",
    DmPolicy.ALLOWLIST: "direct messages of unknown users are not answered (dmPolicy allowlist)",
}
"""Why a direct message of an unknown user is not answered, by policy."""


@dataclass(frozen=True)
class AccessRules:
    """The access settings: the owners, as ``platform:userId``, and the policy for direct messages of each platform.

    A platform without a policy requires pairing.
    """

    owners: frozenset[str] = frozenset()
    dm_policies: Mapping[str, DmPolicy] = field(default_factory=dict)

    def policy(self, platform: str) -> DmPolicy:
        return self.dm_policies.get(platform, DmPolicy.PAIRING)


@dataclass(frozen=True)
class Person:
    """The user that sends a message or a request; ``known`` means that an operator approved the user."""

    id: PersonId
    is_owner: bool = False
    known: bool = False

    @classmethod
    def from_row(cls, row: InboxRow) -> "Person":
        """Return the sender of a message; ``known`` is not looked up."""
        return cls(PersonId(row.platform, row.user_id), row.is_owner)


def access_refusal(person: Person, agent: Agent | None, binding: AgentChannel | None = None) -> str | None:
    """Return why a user may not talk to an agent, None if access is allowed.

    Owners always have access. Other users need full permission in the ``binding``, if one is given, and must be on the
    agent's user list, if it has one. A delegation is checked without a ``binding``. ``agent`` is None for a control
    word where no agent answers.
    """
    if person.is_owner:
        return None
    if binding is not None and binding.permission is not Permission.FULL:
        return f"the channel's permission is {binding.permission}"
    if agent is not None and agent.allow_users is not None and not is_on_allow_list(person, agent):
        return f"the user is not on the list of {agent.slug} (allowUsers)"
    return None


def is_unknown(person: Person, agent: Agent | None, binding: AgentChannel | None) -> bool:
    """Return whether the user is unknown, so that ``DmPolicy`` decides about the user's direct messages.

    Known are owners, approved users, users on the agent's list, and all users in a channel that is bound with full
    permission.
    """
    bound = binding is not None and binding.permission is Permission.FULL
    return not (person.is_owner or person.known or bound or (agent is not None and is_on_allow_list(person, agent)))


def is_on_allow_list(person: Person, agent: Agent) -> bool:
    return str(person.id) in (agent.allow_users or "").split()
