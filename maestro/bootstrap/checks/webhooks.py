"""Whether the secrets of webhooks can be read: without them nothing that is sent can be taken."""

from collections.abc import Iterator, Sequence

from maestro.bootstrap.checks.subject import broken, fine, note
from maestro.bootstrap.keys import SEALED, Keys
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.errors import ConfigurationError
from maestro.domain.webhooks.signatures import checked_secret
from maestro.domain.webhooks.webhook import Webhook

CHECK = "webhooks"
MOST_NAMED = 10


def webhooks(found: Sequence[Webhook], keys: Keys) -> list[Diagnosis]:
    """Return what is to be said of webhooks; nothing where there are none."""
    used = [webhook for webhook in found if webhook.enabled]
    said = list(_unreadable(used, keys))[:MOST_NAMED]
    if not found or said:
        return said
    return [fine(CHECK, f"{len(used)} of {len(found)} take deliveries")]


def _unreadable(used: Sequence[Webhook], keys: Keys) -> Iterator[Diagnosis]:
    for webhook in used:
        try:
            checked_secret(webhook.scheme, keys.reveal(webhook.secret).get_secret_value())
        except (ConfigurationError, ValueError) as error:
            problem = f"the secret of {webhook.path} is of no use: {error}"
            if webhook.secret.startswith(SEALED):
                fix = f"Mend that, or make another with `maestro webhooks rotate {webhook.path}`."
                yield broken(CHECK, problem, fix)
            else:  # the process that serves the dashboard may have what we have not
                yield note(CHECK, problem, "Put it where the process that serves the dashboard can read it.")
