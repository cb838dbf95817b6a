"""Queries for webhook endpoints and the events that they accepted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, tuple_
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import BACKGROUND, Job, JobStatus
from maestro.domain.llm.accounts import StoredKey
from maestro.domain.webhooks.webhook import (
    NewWebhook,
    SignedDelivery,
    Webhook,
    WebhookChange,
    WebhookDelivery,
    WebhookView,
    webhook_view,
)
from maestro.store.agents.agents import Agents
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.users.audit import Audit

MOST_FORGOTTEN = 500
"""The most event records that one request deletes, because the sender of a new event waits for the deletion."""


@dataclass(frozen=True)
class WebhookRate:
    """The number of recent events at a webhook, and the time of the first of these events (None without events)."""

    count: int
    first: datetime | None


class WebhookEndpoints(Repository):
    """Queries for webhook endpoints, and edits by operators; ``actor`` is recorded in the audit log as the author."""

    _agents = LazyRepository(Agents)

    def get(self, path: str) -> Webhook:
        """Return the webhook at this URL path; raises ``NotFound``."""
        return require_found(
            self._find(path), f"there is no webhook {path!r}; `maestro webhooks list` shows all webhooks"
        )

    def find_enabled_webhook(self, path: str) -> Webhook | None:
        """Return the enabled webhook at this URL path, or None if there is none."""
        webhook = self._find(path)
        return webhook if webhook is not None and webhook.enabled else None

    def list_webhooks(self) -> Sequence[Webhook]:
        """Return all webhooks, sorted by path."""
        return self._find_all(select(Webhook).order_by(Webhook.path))

    def list_webhook_page(self, after: str | None, limit: int) -> Sequence[WebhookView]:
        """Return up to ``limit`` webhooks after the path ``after``, sorted by path."""
        page = select(Webhook, Agent).join(Agent, col(Agent.id) == Webhook.agent_id).order_by(Webhook.path)
        if after is not None:
            page = page.where(Webhook.path > after)
        return [webhook_view(webhook, agent) for webhook, agent in self._session.exec(page.limit(limit))]

    def build_webhook_view(self, webhook: Webhook) -> WebhookView:
        return webhook_view(webhook, self._agents.get(webhook.agent_id))

    def create_webhook(self, new: NewWebhook, stored_key: StoredKey, actor: str) -> Webhook:
        """Add a webhook; raises ``Conflict`` if its path is in use, and the errors of ``change_webhook``."""
        if self._find(new.path) is not None:
            raise Conflict(f"there is a webhook {new.path!r} already; change it, or choose another path")
        webhook = Webhook(
            **new.model_dump(by_alias=False, exclude={"agent", "secret"}),
            agent_id=self._agents.get_unarchived_agent(new.agent).id or 0,
            secret=stored_key.secret,
            last4=stored_key.last4,
            created_by=actor,
            created_at=self._now,
            updated_at=self._now,
        )
        webhook.name = new.name or new.path
        self._save(webhook)
        self._add_audit_entry(actor, "webhook.create", webhook, new.agent)
        return webhook

    def change_webhook(self, webhook: Webhook, change: WebhookChange, actor: str) -> Webhook:
        """Change a webhook; raises ``NotFound`` for an unknown agent and ``Conflict`` for an archived agent."""
        values = change.model_dump(by_alias=False, exclude_none=True)
        if "agent" in values:
            values["agent_id"] = self._agents.get_unarchived_agent(str(values.pop("agent"))).id
        if values.get("name") == "":
            values["name"] = webhook.path
        different = sorted(name for name, value in values.items() if getattr(webhook, name) != value)
        for name in different:
            setattr(webhook, name, values[name])
        if different:
            self._save(webhook)
            self._add_audit_entry(actor, "webhook.change", webhook, ", ".join(different))
        return webhook

    def rotate_key(self, webhook: Webhook, stored_key: StoredKey, actor: str) -> None:
        """Replace the secret of a webhook by a new one."""
        webhook.secret, webhook.last4 = stored_key.secret, stored_key.last4
        self._save(webhook)
        self._add_audit_entry(
            actor, "webhook.rotate", webhook, f"ends in {stored_key.last4}" if stored_key.last4 else stored_key.secret
        )

    def remove_webhook(self, webhook: Webhook, actor: str) -> None:
        """Delete a webhook, but not the jobs of its events."""
        self._run_statement(delete(WebhookDelivery).where(col(WebhookDelivery.webhook_id) == webhook.id))
        self._delete_object(webhook)
        self._add_audit_entry(actor, "webhook.remove", webhook)

    def count_refused(self, webhook: Webhook, reason: str, address: str) -> None:
        """Count an event that a webhook refused because of an invalid signature."""
        self._update_row(Webhook, webhook.id, refused_count=col(Webhook.refused_count) + 1)
        self._add_audit_entry("unknown", "webhook.refused", webhook, f"{address}: {reason}")

    def find_job_id(self, webhook: Webhook, delivery_id: str) -> str | None:
        """Return the id of the job that an event created, or None if the event is new."""
        delivery = self._session.get(WebhookDelivery, (webhook.id or 0, delivery_id))
        return delivery.job_id if delivery is not None else None

    def has_accepted(self, webhook: Webhook, digest: str) -> bool:
        """Return whether a webhook has already accepted an event with this signature."""
        of_webhook = select(WebhookDelivery.job_id).where(WebhookDelivery.webhook_id == webhook.id)
        return self._has_any(of_webhook.where(WebhookDelivery.digest == digest))

    def measure_recent_rate(self, webhook: Webhook, period: timedelta) -> WebhookRate:
        """Count the events that a webhook accepted within a recent period, and find the time of the first."""
        counted = select(func.count(), func.min(WebhookDelivery.received_at)).where(
            WebhookDelivery.webhook_id == webhook.id,
            WebhookDelivery.received_at > self._now - period,
            # An event with a time in the future does not count: it was received before the clock was set back.
            WebhookDelivery.received_at <= self._now,
        )
        return WebhookRate(*self._session.exec(counted).one())

    def add_event(self, webhook: Webhook, delivery: SignedDelivery, job_id: str) -> None:
        """Record an accepted event, and the id of the job that it created."""
        self._save_objects(
            WebhookDelivery(
                webhook_id=webhook.id or 0,
                delivery_id=delivery.delivery_id,
                digest=delivery.digest,
                job_id=job_id,
                received_at=self._now,
            )
        )
        trigger_count = col(Webhook.trigger_count) + 1
        self._update_row(Webhook, webhook.id, trigger_count=trigger_count, last_triggered=self._now)

    def count_pending(self) -> int:
        """Count the pending background jobs, including those of webhook events."""
        return self._count_rows(Job.status == JobStatus.PENDING, col(Job.kind).in_(BACKGROUND))

    def delete_events(self, before: datetime) -> None:
        """Delete records of events before a time, oldest first, at most ``MOST_FORGOTTEN`` in one call."""
        key = tuple_(col(WebhookDelivery.webhook_id), col(WebhookDelivery.delivery_id))
        oldest = (
            select(WebhookDelivery.webhook_id, WebhookDelivery.delivery_id)
            .where(WebhookDelivery.received_at < before)
            .order_by(col(WebhookDelivery.received_at))
            .limit(MOST_FORGOTTEN)
        )
        self._run_statement(delete(WebhookDelivery).where(key.in_(oldest)))

    def _find(self, path: str) -> Webhook | None:
        return self._find_first(select(Webhook).where(Webhook.path == path))

    def _save(self, webhook: Webhook) -> None:
        webhook.updated_at = self._now
        self._save_objects(webhook)

    def _add_audit_entry(self, actor: str, action: str, webhook: Webhook, detail: str = "") -> None:
        Audit(self._link, self._now).add_entry(actor, action, webhook.path, detail)
