"""The operations on webhooks."""

import base64
import secrets

from pydantic import SecretStr

from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.accounts import REFERENCES, StoredKey
from maestro.domain.webhooks.webhook import (
    KEY_PREFIX,
    NewWebhook,
    SecretRotation,
    SignatureScheme,
    WebhookChange,
    WebhookPage,
    WebhookView,
    WebhookWithSecret,
    checked_secret,
    webhook_with_secret,
)
from maestro.operations.inputs import LIMIT, EncryptSecret, Limit
from maestro.store.store import Store

RANDOM_BYTES = 32


class WebhookOperations:
    """The operations on webhooks; each raises ``NotFound`` for an unknown path."""

    def __init__(self, store: Store, encrypt: EncryptSecret) -> None:
        self._store = store
        self._encrypt = encrypt

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> WebhookPage:
        """List the webhooks by path, with counts of deliveries; the cursor is the last path of the page before."""
        with self._store.view() as tx:
            found = tx.background.webhooks.page(cursor, limit + 1)
        return WebhookPage(items=tuple(found[:limit]), next=found[limit - 1].path if len(found) > limit else None)

    def show(self, path: str) -> WebhookView:
        """Return a webhook."""
        with self._store.view() as tx:
            return tx.background.webhooks.view(tx.background.webhooks.get(path))

    def add(self, new: NewWebhook, actor: str) -> WebhookWithSecret:
        """Create a webhook; a generated secret is shown only in this answer. 409 for a path that is taken."""
        stored, generated = self._stored_secret(new.scheme, new.secret)
        with self._store.begin() as tx:
            return webhook_with_secret(
                tx.background.webhooks.view(tx.background.webhooks.create(new, stored, actor)), generated
            )

    def change(self, path: str, change: WebhookChange, actor: str) -> WebhookView:
        """Change the given fields."""
        with self._store.begin() as tx:
            return tx.background.webhooks.view(
                tx.background.webhooks.change(tx.background.webhooks.get(path), change, actor)
            )

    def remove(self, path: str, actor: str) -> None:
        """Remove a webhook; its jobs stay."""
        with self._store.begin() as tx:
            tx.background.webhooks.remove(tx.background.webhooks.get(path), actor)

    def rotate(self, path: str, actor: str, rotation: SecretRotation | None = None) -> WebhookWithSecret:
        """Replace the secret of a webhook by the given or a generated one; the old secret is refused from now on."""
        with self._store.begin() as tx:
            webhook = tx.background.webhooks.get(path)
            stored, generated = self._stored_secret(webhook.scheme, (rotation or SecretRotation()).secret)
            tx.background.webhooks.rotate(webhook, stored, actor)
            return webhook_with_secret(tx.background.webhooks.view(webhook), generated)

    def _stored_secret(self, scheme: SignatureScheme, given: SecretStr) -> tuple[StoredKey, str]:
        """Return the stored form of a secret, and the secret itself if it is generated here, else an empty text."""
        text = given.get_secret_value().strip()
        if text.startswith(REFERENCES):
            return self._encrypt(text), ""
        secret = text or KEY_PREFIX + base64.b64encode(secrets.token_bytes(RANDOM_BYTES)).decode()
        try:
            stored = self._encrypt(checked_secret(scheme, secret))
        except ValueError as error:
            raise InvalidEdit(f"secret: {error}") from None
        return stored, "" if text else secret
