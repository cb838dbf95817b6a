"""Programs outside, told apart by the signatures of what they send; whoever guesses is slowed down and noted."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.errors import Unauthorized
from maestro.domain.throttle import Throttle
from maestro.domain.webhooks.signatures import BadSignature, Signed
from maestro.domain.webhooks.webhook import Webhook
from maestro.intake.webhooks import WebhookIntake
from maestro.store.store import Clock


@dataclass(frozen=True)
class Delivery:
    """What was sent to a webhook by somebody who knows its secret."""

    webhook: Webhook
    signed: Signed
    body: bytes


class Signatures:
    """Lets deliveries in by their signatures."""

    def __init__(self, hooks: WebhookIntake, clock: Clock) -> None:
        self._hooks = hooks
        self._throttle = Throttle(clock, "signatures")

    async def admit(self, request: Request) -> None:
        """Return if the signature of a request fits, and note what it delivers.

        Raises ``Unauthorized``, ``NotFound``, ``BadSignature``, ``WebhookUnready``, ``TooManyAttempts``, and
        ``HTTPException`` for a body that is too large.
        """
        path = request.path_params.get("path")
        if path is None:
            raise Unauthorized("Nothing is let in here.")
        webhook = await asyncio.to_thread(self._hooks.at, path)
        body = await self._body(request)
        request.state.delivery = await asyncio.to_thread(self._checked, request, webhook, body)

    async def _body(self, request: Request) -> bytes:
        """Read the body; what says of itself that it is too large is not read at all."""
        said, most = request.headers.get("content-length", ""), self._hooks.rules().max_body_bytes
        if said.isdecimal() and int(said) > most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have at most {most} bytes.")
        try:
            return await request.body()
        except ClientDisconnect:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "The body did not come to its end.") from None

    def _checked(self, request: Request, webhook: Webhook, body: bytes) -> Delivery:
        try:
            return Delivery(webhook, self._hooks.check(webhook, request.headers, body), body)
        except BadSignature as error:
            self.refuse(request, webhook, str(error))
            raise

    def refuse(self, request: Request, webhook: Webhook, reason: str) -> None:
        """Count and note a delivery that is refused; raises ``TooManyAttempts`` while none is looked at.

        A signature that fits is never locked out with the wrong ones of its address, which may be that of a proxy in
        front of all senders.
        """
        address = request.client.host if request.client else ""
        self._throttle.refuse(address)
        self._hooks.refuse(webhook, reason, address)


def delivered(request: Request) -> Delivery:
    """Return what a request delivers whose signature was found to fit."""
    found = request.state.delivery
    assert isinstance(found, Delivery)
    return found
