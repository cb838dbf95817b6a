"""Who the owners are, who may speak on the web connector and what they opened (docs/decisions.md: web identity).

See docs/decisions.md: access.
"""

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class Owner(SQLModel, table=True):
    """A person whose word always counts, beside those that the configuration names."""

    __tablename__ = "owners"

    platform: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcDateTime)
    added_by: str


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
