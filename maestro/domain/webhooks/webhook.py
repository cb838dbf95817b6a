"""Webhooks: their rows, the signatures of their deliveries, and the API models for operators."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, SecretStr
from pydantic import Field as ValueField
from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.agents.agent import Agent
from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.errors import MaestroError
from maestro.domain.llm.accounts import REFERENCES
from maestro.domain.messages import DEFAULT_ACCOUNT, Address
from maestro.domain.texts import storable_text
from maestro.domain.values import DisplayName, Identifier, OptionalIdentifier, Page, Slug, View, Word
from maestro.domain.webhooks.template import LONGEST, ROOT, checked_prompt, cite_source, fill_template

TOLERANCE = timedelta(minutes=5)
"""The largest difference between the sender's clock and the local one: an older delivery may be a replay attack."""
KEY_PREFIX = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 16, 512
"""The least and the most bytes of a signing secret."""

ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
GITHUB_ID_HEADER, GITHUB_SIGNATURE_HEADER = "x-github-delivery", "x-hub-signature-256"

_ID = re.compile(r"[!-~]{1,256}")

PromptTemplate = Annotated[
    str, ValueField(max_length=LONGEST), AfterValidator(lambda template: checked_prompt(storable_text(template), ROOT))
]
PerMinute = Annotated[int, ValueField(ge=1, le=10_000)]


class SignatureScheme(StrEnum):
    """The signature scheme of a webhook's sender.

    ``standard`` is that of standardwebhooks.com: id, time and body are signed; the headers are ``webhook-id``,
    ``webhook-timestamp`` and ``webhook-signature``. ``github`` signs the body alone, in ``X-Hub-Signature-256``.
    """

    STANDARD = "standard"
    GITHUB = "github"


class Webhook(SQLModel, table=True):
    """A webhook with the endpoint ``/hooks/<path>``.

    ``prompt_template`` is the input of the agent's model, with ``{{payload.field}}`` for values of the delivery; the
    answer goes to the address. ``secret`` is a reference or encrypted (docs/decisions.md: secrets at rest), ``last4``
    are its last characters; ``per_minute`` is how many deliveries are accepted in a minute.
    """

    __tablename__ = "webhooks"
    __table_args__ = {"sqlite_autoincrement": True}

    id: int | None = Field(default=None, primary_key=True)
    path: str = Field(unique=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str
    prompt_template: str
    scheme: SignatureScheme = Field(default=SignatureScheme.STANDARD, sa_type=enum_column_type(SignatureScheme))
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
        """The channel or thread that the answer is sent to."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)


class WebhookDelivery(SQLModel, table=True):
    """An accepted delivery to a webhook: the id that the sender gave it, and the job that it started.

    ``digest`` identifies the signature. A signature is accepted only once, even under another id, because GitHub does
    not sign the id.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (UniqueConstraint("webhook_id", "digest"),)

    webhook_id: int = Field(primary_key=True, foreign_key="webhooks.id")
    delivery_id: str = Field(primary_key=True)
    digest: str
    job_id: str
    received_at: datetime = Field(sa_type=UtcDateTime, index=True)


class TooManyDeliveries(MaestroError):
    """A webhook got more deliveries in a minute than it accepts; ``retry_after`` is the wait before the next try."""

    public = "Too many deliveries."
    retryable = True


class WebhookUnready(MaestroError):
    """The secret of a webhook cannot be read, so that no signature can be checked; the log has the reason."""

    public = "This webhook cannot check signatures at the moment."
    retryable = True


class BadSignature(MaestroError):
    """The signature of a delivery is missing, wrong, too old or already used; the message says which."""

    public = "The signature does not match."


@dataclass(frozen=True)
class SignedDelivery:
    """A delivery with a valid signature: the id that its sender gave it, and the digest of the signature."""

    delivery_id: str
    digest: str


def check_signature(
    scheme: SignatureScheme, secret: str, headers: Mapping[str, str], body: bytes, now: datetime
) -> SignedDelivery:
    """Return the delivery if its signature is valid; raises ``BadSignature`` if not."""
    if scheme is SignatureScheme.GITHUB:
        return _check_github_signature(secret, headers, body)
    delivery_id, seconds, signatures = (headers.get(name, "") for name in (ID_HEADER, TIME_HEADER, SIGNATURE_HEADER))
    if not (delivery_id and seconds and signatures):
        raise BadSignature(f"The delivery is not signed: send {ID_HEADER}, {TIME_HEADER} and {SIGNATURE_HEADER}.")
    if not _ID.fullmatch(delivery_id) or not re.fullmatch(r"[0-9]{1,12}", seconds):
        raise BadSignature(
            f"{ID_HEADER} must be a word of up to 256 characters, {TIME_HEADER} must be in seconds since 1970."
        )
    mac = _standard_mac(secret, delivery_id, seconds, body)
    macs = (_decode_base64(part.removeprefix("v1,")) for part in signatures.split(" ") if part.startswith("v1,"))
    if not any(hmac.compare_digest(candidate, mac) for candidate in macs):
        raise BadSignature("The signature does not match this body, or was made with another secret.")
    # Without a valid signature, the reply must not depend on the local clock, so the time is checked last.
    if abs(now.timestamp() - int(seconds)) > TOLERANCE.total_seconds():
        raise BadSignature(f"{TIME_HEADER} is more than {TOLERANCE.seconds // 60} minutes from now; sign it again.")
    return SignedDelivery(delivery_id, mac.hex())


def _check_github_signature(secret: str, headers: Mapping[str, str], body: bytes) -> SignedDelivery:
    signature = headers.get(GITHUB_SIGNATURE_HEADER, "")
    if not signature:
        raise BadSignature("The delivery is not signed: send X-Hub-Signature-256, as GitHub does once it has a secret.")
    mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not re.fullmatch(r"sha256=[0-9a-fA-F]{64}", signature) or not hmac.compare_digest(signature[7:].lower(), mac):
        raise BadSignature("The signature does not match this body, or was made with another secret.")
    delivery_id = headers.get(GITHUB_ID_HEADER) or mac
    if not _ID.fullmatch(delivery_id):
        raise BadSignature("X-GitHub-Delivery must be a word of up to 256 characters.")
    return SignedDelivery(delivery_id, mac)


def sign_delivery(
    scheme: SignatureScheme, secret: str, delivery_id: str, body: bytes, now: datetime
) -> Mapping[str, str]:
    """Return the headers with which a sender signs a delivery."""
    if scheme is SignatureScheme.GITHUB:
        mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {GITHUB_ID_HEADER: delivery_id, GITHUB_SIGNATURE_HEADER: f"sha256={mac}"}
    seconds = str(int(now.timestamp()))
    mac = base64.b64encode(_standard_mac(secret, delivery_id, seconds, body)).decode()
    return {ID_HEADER: delivery_id, TIME_HEADER: seconds, SIGNATURE_HEADER: f"v1,{mac}"}


def checked_secret(scheme: SignatureScheme, secret: str) -> str:
    """Return the secret if it can be used for signatures; raises ``ValueError`` with a sentence for the operator."""
    if scheme is SignatureScheme.STANDARD:
        _signing_key(secret)
    elif not SHORTEST_KEY <= len(secret.encode()) <= LONGEST_KEY:
        raise ValueError(
            f"expected a secret of {SHORTEST_KEY} to {LONGEST_KEY} bytes; leave it out to have one generated"
        )
    return secret


def _standard_mac(secret: str, delivery_id: str, seconds: str, body: bytes) -> bytes:
    return hmac.new(_signing_key(secret), f"{delivery_id}.{seconds}.".encode() + body, hashlib.sha256).digest()


def _signing_key(secret: str) -> bytes:
    """Return the key of a secret of the scheme ``standard``; raises ``ValueError`` if the secret is malformed."""
    key = _decode_base64(secret.removeprefix(KEY_PREFIX))
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise ValueError(
            f"expected {KEY_PREFIX} and {SHORTEST_KEY} to {LONGEST_KEY} bytes as base64, as the sender shows it; "
            "leave it out to have one generated"
        )
    return key


def _decode_base64(encoded: str) -> bytes:
    """Return the bytes of a base64 text, empty for an invalid text."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        return b""


def webhook_text(webhook: Webhook, payload: object) -> str:
    """Return the input of the model for a delivery: the filled prompt template and a note on the origin of the data."""
    filled = fill_template(webhook.prompt_template, {ROOT: payload})
    return cite_source(webhook.prompt_template, filled, f"a program outside sent to the webhook {webhook.name}")


class NewWebhook(View):
    """A webhook to create, with the endpoint ``/hooks/<path>``.

    A delivery starts a job of the ``agent``. The input of its model is ``prompt_template``, with values of the delivery
    in place of ``{{payload.field}}``; the answer goes to the channel. ``per_minute`` is how many deliveries are
    accepted in a minute. ``secret`` is the signing secret in the sender's form, stored encrypted, or a reference to it,
    ``env:NAME`` or ``file:PATH``; without one, a secret is generated.
    """

    agent: Slug = ValueField(description="the agent that answers deliveries")
    name: DisplayName = ValueField(default="", description="the display name")
    prompt_template: PromptTemplate = ValueField(
        description="the input of the agent's model, such as 'Build {{payload.id}} failed.'"
    )
    platform: Word = ValueField(description="the platform of the answer, such as web or discord")
    account: Identifier = ValueField(default=DEFAULT_ACCOUNT, description="the account on that platform")
    channel: Identifier = ValueField(description="the channel of the answer: its id on the platform")
    thread: OptionalIdentifier = ValueField(default="", description="the thread of the answer; '' for none")
    per_minute: PerMinute = ValueField(default=60, description="the most deliveries in a minute; more are refused")
    enabled: bool = True
    path: Slug
    scheme: SignatureScheme = SignatureScheme.STANDARD
    secret: SecretStr = SecretStr("")


class WebhookChange(View):
    """The changes to a webhook; a field that is null stays as it is."""

    agent: Slug | None = None
    name: DisplayName | None = None
    prompt_template: PromptTemplate | None = None
    platform: Word | None = None
    account: Identifier | None = None
    channel: Identifier | None = None
    thread: OptionalIdentifier | None = None
    per_minute: PerMinute | None = None
    enabled: bool | None = None


class SecretRotation(View):
    """The new secret of a webhook, in a form of ``NewWebhook``; if it is empty, a secret is generated."""

    secret: SecretStr = SecretStr("")


class WebhookView(View):
    """A webhook with the counts of its deliveries.

    ``hook`` is the path of the endpoint. ``last4`` are the last characters of the secret; ``reference`` is the
    reference to it, such as ``env:NAME``, empty for a stored secret. ``trigger_count`` counts the accepted deliveries,
    ``refused_count`` those with an invalid signature.
    """

    path: str
    name: str
    hook: str
    agent: str
    prompt_template: str
    scheme: SignatureScheme
    last4: str
    reference: str
    platform: str
    account: str
    channel: str
    thread: str
    per_minute: int
    enabled: bool
    trigger_count: int
    refused_count: int
    last_triggered: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime


class WebhookWithSecret(WebhookView):
    """A webhook with its new secret in clear text; no later request returns the secret.

    ``secret`` is empty if the caller provided it.
    """

    secret: str


class WebhookPage(Page[WebhookView]):
    """A page of webhooks, sorted by path."""


class DeliveryResult(View):
    """The job of a delivery; for a ``duplicate``, the job of the earlier delivery."""

    job_id: str
    duplicate: bool


def webhook_view(webhook: Webhook, agent: Agent) -> WebhookView:
    return WebhookView.from_row(
        webhook,
        hook=f"/hooks/{webhook.path}",
        agent=agent.slug,
        reference=webhook.secret if webhook.secret.startswith(REFERENCES) else "",
    )
