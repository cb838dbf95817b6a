"""Composes the intake of webhook deliveries."""

from maestro.bootstrap.keys import Keys
from maestro.bootstrap.live import LiveSettings
from maestro.intake.webhooks import WebhookIntake, WebhookIntakeRules
from maestro.settings import Settings
from maestro.store.store import Store


def open_hooks(store: Store, keys: Keys, live: LiveSettings) -> WebhookIntake:
    """Return the intake of deliveries from programs outside."""
    return WebhookIntake(store, keys.reveal, live.of(_rules))


def _rules(settings: Settings) -> WebhookIntakeRules:
    hooks = settings.webhooks
    return WebhookIntakeRules(hooks.max_body_bytes, settings.jobs.max_pending, hooks.kept)
