"""Webhooks as operators see them, on API, command line and dashboard alike; a secret is shown once, when it is made."""

from collections.abc import Sequence
from datetime import datetime

from maestro.domain.agents.agent import Agent
from maestro.domain.values import View
from maestro.domain.webhooks.webhook import SignatureScheme, Webhook

REFERENCES = ("env:", "file:")
"""How a secret begins that stands elsewhere and is only referred to."""


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


class MadeWebhook(WebhookView):
    """A webhook that has a new secret, which is in clear only here; empty when the caller knows it already."""

    secret: str


class WebhookPage(View):
    """Webhooks by path; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[WebhookView, ...]
    next: str | None


class Taken(View):
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


def made_webhook(view: WebhookView, secret: str) -> MadeWebhook:
    """Show a webhook together with its new secret."""
    return MadeWebhook(**view.model_dump(by_alias=False), secret=secret)


def webhook_page(found: Sequence[WebhookView], limit: int) -> WebhookPage:
    """Show up to ``limit`` webhooks of one more that was looked for."""
    page = tuple(found[:limit])
    return WebhookPage(items=page, next=page[-1].path if len(found) > limit else None)
