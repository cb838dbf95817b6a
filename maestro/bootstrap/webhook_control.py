"""Makes and changes webhooks for operators, and gives them their secrets (decision 22)."""

import base64
import secrets

from pydantic import SecretStr

from maestro.bootstrap.keys import Keys
from maestro.bootstrap.live import LiveSettings
from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.accounts import KeptKey
from maestro.domain.webhooks.edits import NewWebhook, Rotation, WebhookChange
from maestro.domain.webhooks.signatures import PREFIX, checked_secret
from maestro.domain.webhooks.views import REFERENCES, MadeWebhook, WebhookView, made_webhook
from maestro.domain.webhooks.webhook import SignatureScheme
from maestro.intake.hooks import HookRules, Hooks
from maestro.settings import Settings
from maestro.store.store import Store

RANDOM_BYTES = 32


class StoreWebhookControl:
    """Changes webhooks in the store, where every process sees them; a ``WebhookControl``."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def add(self, new: NewWebhook, actor: str) -> MadeWebhook:
        """Make a webhook.

        Raises ``Conflict`` for a path that is taken and for an archived agent, ``NotFound`` for an unknown one, and
        ``InvalidEdit`` or ``ConfigurationError`` for a secret that can be none.
        """
        kept, made = self._secret(new.scheme, new.secret)
        with self._store.begin() as tx:
            return made_webhook(tx.webhooks.view(tx.webhooks.create(new, kept, actor)), made)

    def change(self, path: str, change: WebhookChange, actor: str) -> WebhookView:
        """Change a webhook; raises as ``add`` does."""
        with self._store.begin() as tx:
            return tx.webhooks.view(tx.webhooks.change(tx.webhooks.get(path), change, actor))

    def rotate(self, path: str, rotation: Rotation, actor: str) -> MadeWebhook:
        """Give a webhook another secret; from now on nothing that is signed with the old one is taken."""
        with self._store.begin() as tx:
            webhook = tx.webhooks.get(path)
            kept, made = self._secret(webhook.scheme, rotation.secret)
            tx.webhooks.rotate(webhook, kept, actor)
            return made_webhook(tx.webhooks.view(webhook), made)

    def _secret(self, scheme: SignatureScheme, typed: SecretStr) -> tuple[KeptKey, str]:
        """Return what may be stored of a secret, and the secret itself if it is made here."""
        text = typed.get_secret_value().strip()
        if text.startswith(REFERENCES):
            return self._keys.keep(text), ""
        secret = text or PREFIX + base64.b64encode(secrets.token_bytes(RANDOM_BYTES)).decode()
        try:
            kept = self._keys.keep(checked_secret(scheme, secret))
        except ValueError as error:
            raise InvalidEdit(f"secret: {error}") from None
        return kept, "" if text else secret


def open_hooks(store: Store, keys: Keys, live: LiveSettings) -> Hooks:
    """Return the way in for programs."""
    return Hooks(store, keys.reveal, live.of(_rules))


def _rules(settings: Settings) -> HookRules:
    hooks = settings.webhooks
    return HookRules(hooks.max_body_bytes, settings.jobs.max_pending, hooks.kept)
