"""Webhooks as operators edit and see them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from maestro.domain.agents.agent import Agent
from maestro.domain.fields import DisplayName, Identifier, OptionalIdentifier, Slug, Word
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.texts import storable
from maestro.domain.values import View
from maestro.domain.webhooks.template import LONGEST, checked_prompt
from maestro.domain.webhooks.webhook import ROOT, SignatureScheme, Webhook

REFERENCES = ("env:", "file:")
"""How a secret begins that stands elsewhere and is only referred to."""


def _checked(template: str) -> str:
    return checked_prompt(storable(template), ROOT)


PromptTemplate = Annotated[str, Field(max_length=LONGEST), AfterValidator(_checked)]
PerMinute = Annotated[int, Field(ge=1, le=10_000)]


class WebhookFields(View):
    """What people can change of a webhook.

    The ``agent`` is told ``prompt_template``, with what was sent in the place of ``{{payload.field}}``, and what it
    says goes to the channel. ``per_minute`` is how many deliveries a minute are taken.
    """

    agent: Slug = Field(description="the agent that is told")
    name: DisplayName = Field(default="", description="the name that people see")
    prompt_template: PromptTemplate = Field(description="what it is told, such as 'Build {{payload.id}} failed.'")
    platform: Word = Field(description="where it posts: the platform, such as web or discord")
    account: Identifier = Field(default=DEFAULT_ACCOUNT, description="the account on that platform")
    channel: Identifier = Field(description="where it posts: the platform's id of the channel")
    thread: OptionalIdentifier = Field(default="", description="where it posts: a thread of the channel; '' for none")
    per_minute: PerMinute = Field(default=60, description="deliveries a minute that are taken")
    enabled: bool = True


class NewWebhook(WebhookFields):
    """A webhook to make, reached at ``/hooks/<path>``.

    ``secret`` is what the sender signs with, as it shows it, or ``env:NAME`` or ``file:PATH``, where it stands; without
    one it is made. It is stored encrypted.
    """

    path: Slug
    scheme: SignatureScheme = SignatureScheme.STANDARD
    secret: SecretStr = SecretStr("")


class WebhookChange(View):
    """What is to be changed of a webhook; what is null stays."""

    agent: Slug | None = None
    name: DisplayName | None = None
    prompt_template: PromptTemplate | None = None
    platform: Word | None = None
    account: Identifier | None = None
    channel: Identifier | None = None
    thread: OptionalIdentifier | None = None
    per_minute: PerMinute | None = None
    enabled: bool | None = None

    def fields(self) -> dict[str, object]:
        """Return what is to be changed, by the names of the columns; the agent by its slug."""
        return self.model_dump(by_alias=False, exclude_none=True)


class SecretRotation(View):
    """The next secret of a webhook, as in ``NewWebhook``; without one it is made."""

    secret: SecretStr = SecretStr("")


class WebhookView(View):
    """A webhook, and what came to it.

    ``hook`` is where senders post to. ``last4`` are the last characters of the secret, ``reference`` is where it stands
    instead, such as ``env:NAME``. ``trigger_count`` counts the deliveries taken, ``refused_count`` those whose
    signature did not fit.
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
    """A webhook that has a new secret, which is in clear only here; empty when the caller knows it already."""

    secret: str


class WebhookPage(View):
    """Webhooks by path; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[WebhookView, ...]
    next: str | None


class DeliveryResult(View):
    """What became of a delivery: the job that it made, now or, if it is a ``duplicate``, before."""

    job_id: str
    duplicate: bool


def webhook_view(webhook: Webhook, agent: Agent) -> WebhookView:
    """Show a webhook of an agent."""
    own = {"hook", "agent", "reference"}
    return WebhookView(
        **webhook.model_dump(include=set(WebhookView.model_fields) - own),
        hook=f"/hooks/{webhook.path}",
        agent=agent.slug,
        reference=webhook.secret if webhook.secret.startswith(REFERENCES) else "",
    )


def webhook_with_secret(view: WebhookView, secret: str) -> WebhookWithSecret:
    """Show a webhook together with its new secret."""
    return WebhookWithSecret(**view.model_dump(by_alias=False), secret=secret)


def webhook_page(found: Sequence[WebhookView], limit: int) -> WebhookPage:
    """Show up to ``limit`` webhooks of one more that was looked for."""
    page = tuple(found[:limit])
    return WebhookPage(items=page, next=page[-1].path if len(found) > limit else None)
