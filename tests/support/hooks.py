"""Senders of webhooks, and webhooks for them in a store."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from maestro.domain.webhooks.webhook import SignatureScheme, sign_delivery

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
JSON_TYPE = {"Content-Type": "application/json"}


def new_webhook(path: str = "deploys", **changes: Any) -> dict[str, Any]:
    """Return the fields of a webhook as the API takes them."""
    made = {
        "path": path,
        "agent": "ada",
        "promptTemplate": "Build {{payload.build}} is {{payload.state}}.",
        "platform": "web",
        "channel": "builds",
        "secret": SECRET,
    }
    return {**made, **changes}


def signature(
    body: bytes,
    delivery_id: str,
    *,
    secret: str = SECRET,
    scheme: SignatureScheme = SignatureScheme.STANDARD,
    now: datetime | None = None,
) -> dict[str, str]:
    """Return the headers of a delivery."""
    return {**JSON_TYPE, **sign_delivery(scheme, secret, delivery_id, body, now or datetime.now(UTC))}


async def post(
    http: httpx.AsyncClient, body: bytes, headers: Mapping[str, str], path: str = "deploys"
) -> httpx.Response:
    """Deliver."""
    return await http.post(f"/hooks/{path}", content=body, headers=headers)
