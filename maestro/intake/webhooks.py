"""Incoming webhook events: the signature is checked, and each event becomes exactly one job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from pydantic import SecretStr
from ulid import ULID

from maestro.domain.agents.agent import paying_client_id
from maestro.domain.errors import Backlogged, ConfigurationError, NotFound
from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.precedence import Priority
from maestro.domain.settings.jobs import JobSettings, WebhookSettings
from maestro.domain.webhooks.webhook import (
    BadSignature,
    DeliveryResult,
    SignedDelivery,
    TooManyDeliveries,
    Webhook,
    WebhookUnready,
    check_signature,
    webhook_text,
)
from maestro.store.store import Store
from maestro.store.transaction import Transaction

MINUTE = timedelta(minutes=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WebhookIntake:
    """The intake of webhooks; ``reveal`` decrypts a stored secret."""

    store: Store
    reveal: Callable[[str], SecretStr]
    settings: Callable[[], WebhookSettings]
    jobs: Callable[[], JobSettings]

    def find_webhook(self, path: str) -> Webhook:
        """Return the enabled webhook with this path; a disabled and a missing webhook raise the same ``NotFound``."""
        with self.store.view() as tx:
            webhook = tx.background.webhooks.find_enabled_webhook(path)
        if webhook is None:
            raise NotFound("there is no webhook here")
        return webhook

    def verify_event(self, webhook: Webhook, headers: Mapping[str, str], body: bytes) -> SignedDelivery:
        """Return the event if its signature is valid; raises ``BadSignature``, or ``WebhookUnready`` without secret."""
        with self.store.view() as tx:
            now = tx.now
        try:
            secret = self.reveal(webhook.secret).get_secret_value()
            return check_signature(webhook.scheme, secret, headers, body, now)
        except (ConfigurationError, ValueError) as error:
            log.warning("webhook.unready", path=webhook.path, reason=str(error))
            unready = WebhookUnready()
            unready.retry_after = MINUTE
            raise unready from None

    def count_refused_event(self, webhook: Webhook, reason: str, address: str) -> None:
        """Count a refused event of a webhook, with the reason and the sender's address."""
        with self.store.begin() as tx:
            tx.background.webhooks.count_refused(webhook, reason, address)

    def accept_event(self, webhook: Webhook, delivery: SignedDelivery, payload: object) -> DeliveryResult:
        """Commit an event and its job; a repeated event changes nothing.

        Raises ``NotFound`` or ``BadSignature`` if the webhook changed meanwhile, ``BadSignature`` for a body that was
        accepted under another id, ``TooManyDeliveries`` above the rate limit, and ``Backlogged`` if too many jobs wait.
        """
        with self.store.begin() as tx:
            present = tx.background.webhooks.find_enabled_webhook(webhook.path)
            if present is None or present.id != webhook.id:
                raise NotFound("there is no webhook here")
            if present.secret != webhook.secret:
                raise BadSignature("The secret was changed at this moment.")
            job_id = tx.background.webhooks.find_job_id(present, delivery.delivery_id)
            if job_id is not None:
                return DeliveryResult(job_id=job_id, duplicate=True)
            if tx.background.webhooks.has_accepted(present, delivery.digest):  # GitHub does not sign the delivery id
                raise BadSignature("This body was delivered already, under another id.")
            self._require_capacity(tx, present)
            # An inactive agent does not prevent the job: operators see the job fail, and can restart the job.
            agent = tx.agents.get(present.agent_id)
            job = tx.jobs.add(
                Job(
                    id=f"{JobKind.WEBHOOK}-{ULID()}",
                    kind=JobKind.WEBHOOK,
                    priority=Priority.MESSAGE,
                    webhook_id=present.id,
                    agent_id=agent.id,
                    client_id=paying_client_id(agent, tx.agents.read_binding(present.address)),
                    task=webhook_text(present, payload),
                    created_at=tx.now,
                    **present.address.model_dump(),
                )
            )
            tx.background.webhooks.add_event(present, delivery, job.id)
            tx.background.webhooks.delete_events(tx.now - timedelta(days=self.settings().keep_days))
            return DeliveryResult(job_id=job.id, duplicate=False)

    def _require_capacity(self, tx: Transaction, webhook: Webhook) -> None:
        rush = tx.background.webhooks.measure_recent_rate(webhook, MINUTE)
        if rush.count >= webhook.per_minute:
            too_many = TooManyDeliveries(f"This webhook accepts {webhook.per_minute} deliveries a minute.")
            too_many.retry_after = (rush.first or tx.now) + MINUTE - tx.now
            raise too_many
        waiting = tx.background.webhooks.count_pending()
        if waiting >= self.jobs().max_pending:
            full = Backlogged(f"{waiting} jobs are waiting already; this delivery was not accepted.")
            full.retry_after = MINUTE
            raise full
