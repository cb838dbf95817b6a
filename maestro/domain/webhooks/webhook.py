"""Inbound webhooks: what a program outside says becomes work for an agent."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Address

ROOT = "payload"
"""What the placeholders of a prompt begin with."""


class SignatureScheme(StrEnum):
    """How the sender signs.

    ``standard`` is that of standardwebhooks.com: id, time and body are signed, in ``webhook-id``,
    ``webhook-timestamp`` and ``webhook-signature``. ``github`` signs the body alone, in ``X-Hub-Signature-256``.
    """

    STANDARD = "standard"
    GITHUB = "github"


class Webhook(SQLModel, table=True):
    """A path under ``/hooks/``; ``prompt_template`` is what the agent is told, with ``{{payload.field}}`` in it.

    What the agent says goes to the address. ``secret`` is a reference or encrypted (docs/decisions.md: secrets at
    rest), ``last4`` its end; ``per_minute`` is how many deliveries a minute are taken.
    """

    __tablename__ = "webhooks"
    __table_args__ = {"sqlite_autoincrement": True}

    id: int | None = Field(default=None, primary_key=True)
    path: str = Field(unique=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str
    prompt_template: str
    scheme: SignatureScheme = Field(default=SignatureScheme.STANDARD, sa_type=text_of(SignatureScheme))
    secret: str = Field(repr=False)
    last4: str
    platform: str
    account: str
    channel: str
    thread: str = ""
    per_minute: int
    enabled: bool = True
    trigger_count: int = 0
    refused_count: int = 0
    last_triggered: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_by: str
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def address(self) -> Address:
        """Where what the agent says goes."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)


class WebhookDelivery(SQLModel, table=True):
    """A delivery that was taken, by the sender's id for it, and the job that it made.

    ``digest`` is its signature: the same body is not taken again under another id, which nobody signed.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (UniqueConstraint("webhook_id", "digest"),)

    webhook_id: int = Field(primary_key=True, foreign_key="webhooks.id")
    delivery_id: str = Field(primary_key=True)
    digest: str
    job_id: str
    received_at: datetime = Field(sa_type=UtcDateTime, index=True)


class TooManyDeliveries(MaestroError):
    """More came to a webhook in a minute than is taken; ``retry_after`` says when there is room."""

    public = "Too many deliveries."
    retryable = True


class WebhookUnready(MaestroError):
    """The secret of a webhook cannot be read, so that nobody can say who sent this; the log says why."""

    public = "This webhook cannot check signatures at the moment."
    retryable = True
