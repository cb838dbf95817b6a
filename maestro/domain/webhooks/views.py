"""The API models of webhooks, for operators to edit and view."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, SecretStr
from pydantic import Field as ValueField

from maestro.domain.agents.agent import Agent
from maestro.domain.fields import DisplayName, Identifier, OptionalIdentifier, Slug, Word
from maestro.domain.llm.account_views import REFERENCES
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.texts import storable
from maestro.domain.values import Page, View
from maestro.domain.webhooks.template import LONGEST, ROOT, checked_prompt
from maestro.domain.webhooks.webhook import SignatureScheme, Webhook

PromptTemplate = Annotated[
    str, ValueField(max_length=LONGEST), AfterValidator(lambda template: checked_prompt(storable(template), ROOT))
]
PerMinute = Annotated[int, ValueField(ge=1, le=10_000)]


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
    per_minute: PerMinute = ValueField(default=60, description="how many deliveries are accepted in a minute")
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

    def fields(self) -> dict[str, object]:
        """Return the changed values by column name; for the agent, its slug."""
        return self.model_dump(by_alias=False, exclude_none=True)


class SecretRotation(View):
    """The next secret of a webhook, as in ``NewWebhook``; without one, a secret is generated."""

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
    own = {"hook", "agent", "reference"}
    return WebhookView(
        **webhook.model_dump(include=set(WebhookView.model_fields) - own),
        hook=f"/hooks/{webhook.path}",
        agent=agent.slug,
        reference=webhook.secret if webhook.secret.startswith(REFERENCES) else "",
    )


def webhook_with_secret(view: WebhookView, secret: str) -> WebhookWithSecret:
    return WebhookWithSecret(**view.model_dump(by_alias=False), secret=secret)
