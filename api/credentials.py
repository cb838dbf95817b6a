"""Authentication of programs: external agents by bearer tokens, and webhook senders by signatures."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.errors import BEARER
from maestro.domain.agents.agent import Agent, AgentStatus, TokenHolder, is_use_due
from maestro.domain.errors import Forbidden, Unauthorized
from maestro.domain.throttle import Throttle
from maestro.domain.webhooks.webhook import BadSignature, SignedDelivery, Webhook
from maestro.intake.webhooks import WebhookIntake
from maestro.store.store import Clock, Store


class TokenAuthentication:
    """The authentication of external agents by their bearer tokens."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._throttle = Throttle(clock, "tokens")

    def admit(self, request: Request) -> None:
        """Check the token of a request, and store its agent in the request.

        Raises ``Unauthorized``, ``TooManyAttempts``, or ``Forbidden`` for an agent that is paused.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("Send the token of an agent: Authorization: Bearer mst_...", challenge=BEARER)
        holder = self._find_holder(token.strip())
        if holder is None:
            self._record_wrong_token(request.client.host if request.client else "")
            raise Unauthorized(
                "This token is unknown or revoked, or its agent is archived. `maestro agents token new` creates one.",
                challenge=BEARER,
            )
        if holder.agent.status is not AgentStatus.ACTIVE:
            raise Forbidden(
                f"Agent {holder.agent.slug} is {holder.agent.status}; its tokens are valid again once it is active."
            )
        request.state.caller = holder.agent

    def _find_holder(self, token: str) -> TokenHolder | None:
        with self._store.view() as tx:
            holder, now = tx.agents.tokens.holder(token), tx.now
        if holder is None or holder.agent.status is AgentStatus.ARCHIVED:
            return None
        if is_use_due(holder.token, now):
            with self._store.begin() as tx:
                tx.agents.tokens.used(holder.token)
        return holder

    def _record_wrong_token(self, address: str) -> None:
        """Count a wrong token and add it to the audit log; raises ``TooManyAttempts`` after too many.

        Wrong tokens never lock out a valid token from the same address: one machine may run many agents, and 256 random
        bits cannot be guessed.
        """
        self._throttle.record_failure(address)
        with self._store.begin() as tx:
            tx.system.audit.add("unknown", "token.failed", address)


def caller(request: Request) -> Agent:
    """Return the agent whose token authenticated the request."""
    found = request.state.caller
    assert isinstance(found, Agent)
    return found


@dataclass(frozen=True)
class SignedRequest:
    """A request to a webhook with a valid signature."""

    webhook: Webhook
    signed: SignedDelivery
    body: bytes


class SignatureAuthentication:
    """The authentication of webhook requests by their signatures."""

    def __init__(self, hooks: WebhookIntake, clock: Clock) -> None:
        self._hooks = hooks
        self._throttle = Throttle(clock, "signatures")

    async def admit(self, request: Request) -> None:
        """Check the signature of a webhook request, and store the signed delivery in the request.

        Raises ``Unauthorized``, ``NotFound``, ``BadSignature``, ``WebhookUnready``, ``TooManyAttempts``, and
        ``HTTPException`` for a body that is too large.
        """
        path = request.path_params.get("path")
        if path is None:
            raise Unauthorized("No webhook has this address.")
        webhook = await asyncio.to_thread(self._hooks.find, path)
        body = await self._read_body(request)
        request.state.delivery = await asyncio.to_thread(self._check_signature, request, webhook, body)

    async def _read_body(self, request: Request) -> bytes:
        """Read the body; raises ``HTTPException`` if its declared length exceeds the limit."""
        length, max_bytes = request.headers.get("content-length", ""), self._hooks.settings().max_body_bytes
        if length.isdecimal() and int(length) > max_bytes:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have at most {max_bytes} bytes.")
        try:
            return await request.body()
        except ClientDisconnect:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "The body of the request is incomplete.") from None

    def _check_signature(self, request: Request, webhook: Webhook, body: bytes) -> SignedRequest:
        try:
            return SignedRequest(webhook, self._hooks.check(webhook, request.headers, body), body)
        except BadSignature as error:
            self.refuse(request, webhook, str(error))
            raise

    def refuse(self, request: Request, webhook: Webhook, reason: str) -> None:
        """Count and record a rejected delivery; raises ``TooManyAttempts`` after too many.

        Wrong signatures never lock out a valid one from the same address, which may be that of a proxy in front of all
        senders.
        """
        address = request.client.host if request.client else ""
        self._throttle.record_failure(address)
        self._hooks.refuse(webhook, reason, address)


def signed_request(request: Request) -> SignedRequest:
    """Return the webhook, the signed delivery and the body of a request with a valid signature."""
    found = request.state.delivery
    assert isinstance(found, SignedRequest)
    return found
