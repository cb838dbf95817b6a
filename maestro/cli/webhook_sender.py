"""Sends a delivery to a webhook of one's own, as a program outside would, to try it."""

from datetime import UTC, datetime

import httpx

from maestro.domain.errors import MaestroError
from maestro.domain.webhooks.signatures import sign
from maestro.domain.webhooks.views import Taken
from maestro.domain.webhooks.webhook import Webhook
from maestro.settings import WebuiSettings

PATIENCE_SECONDS = 30.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to connect to, where somebody bound it
JSON = {"Content-Type": "application/json"}


class NotTaken(MaestroError):
    """A delivery was refused, or nobody was there to take it; the message says why."""

    public = "The delivery was not taken."


def home(webui: WebuiSettings) -> str:
    """Return where the dashboard listens, as seen from this machine."""
    host = WILDCARDS.get(webui.host, webui.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{webui.port}"


def send(address: str, webhook: Webhook, secret: str, delivery_id: str, body: bytes) -> Taken:
    """Sign and post a delivery; raises ``NotTaken``."""
    headers = {**JSON, **sign(webhook.scheme, secret, delivery_id, body, datetime.now(UTC))}
    url = f"{address.rstrip('/')}/hooks/{webhook.path}"
    try:
        answer = httpx.post(url, content=body, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotTaken(
            f"nobody took it at {url} ({error}); start Maestro, or name another address with --url"
        ) from None
    if answer.status_code != httpx.codes.ACCEPTED:
        raise NotTaken(f"{url} answered {answer.status_code}: {_reason(answer)}")
    return Taken.model_validate_json(answer.content)


def _reason(answer: httpx.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        said = None
    return str(said.get("message", "")) if isinstance(said, dict) else "that is no Maestro"
