"""Composes the intake of webhook deliveries."""

from maestro.bootstrap.keys import Keys
from maestro.bootstrap.live import LiveSettings
from maestro.intake.hooks import HookRules, Hooks
from maestro.settings import Settings
from maestro.store.store import Store


def open_hooks(store: Store, keys: Keys, live: LiveSettings) -> Hooks:
    """Return the intake of deliveries from programs outside."""
    return Hooks(store, keys.reveal, live.of(_rules))


def _rules(settings: Settings) -> HookRules:
    hooks = settings.webhooks
    return HookRules(hooks.max_body_bytes, settings.jobs.max_pending, hooks.kept)
