"""Where Meta posts: a route of our own on the web connector's port, for requests that Meta has signed."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors.posted import body_of, is_signed, not_taken, object_in, same
from maestro.domain.errors import MaestroError

SECONDS = 8.0
"""How long a request may take to be in the inbox; Meta waits about ten seconds."""
SIGNATURE, SCHEME = "x-hub-signature-256", "sha256"

log = structlog.get_logger(__name__)


class Takes(Protocol):
    """What takes in requests; whatever it raises, Meta is to send them again."""

    async def take(self, payload: Mapping[str, Any]) -> None:
        """Take in all of a request."""
        ...


class Webhook:
    """Takes requests in; anything but 200 lets Meta send them again, for up to seven days."""

    def __init__(self, secret: str, verify_token: str, *, seconds: float = SECONDS) -> None:
        self._secret = secret
        self._verify_token = verify_token
        self._seconds = seconds
        self._inbound: Takes | None = None

    def open(self, inbound: Takes) -> None:
        """Hand what comes from now on to this; before, nothing is taken."""
        self._inbound = inbound

    def routes(self) -> Sequence[BaseRoute]:
        """Return the one route, at the account's own address."""
        return [Route("/", self.answer, methods=["GET", "POST"])]

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        return await self._receive(request) if request.method == "POST" else self._verify(request)

    def _verify(self, request: Request) -> Response:
        """Tell Meta, when an operator sets the webhook up, that the address is ours."""
        asked = request.query_params
        known = same(self._verify_token, asked.get("hub.verify_token", ""))
        if asked.get("hub.mode") != "subscribe" or not known:
            return PlainTextResponse("the verify token is another one", HTTPStatus.FORBIDDEN)
        return PlainTextResponse(asked.get("hub.challenge", ""))

    async def _receive(self, request: Request) -> Response:
        body = await body_of(request)
        if isinstance(body, Response):
            return body
        if not is_signed(self._secret, body, request.headers.get(SIGNATURE, ""), SCHEME):
            return PlainTextResponse("not signed by Meta", HTTPStatus.UNAUTHORIZED)
        payload = object_in(body)
        if isinstance(payload, Response):
            return payload
        return Response() if await self._taken(payload) else not_taken()

    async def _taken(self, payload: Mapping[str, Any]) -> bool:
        """Tell whether all of a request is kept (docs/invariants.md: durable before ack)."""
        if self._inbound is None:
            return False
        try:
            async with asyncio.timeout(self._seconds):
                await self._inbound.take(payload)
        except TimeoutError:
            log.warning("whatsapp.not_taken", error="TimeoutError", reason="the store is too slow")
        except MaestroError as error:
            log.warning("whatsapp.not_taken", error=type(error).__name__, reason=str(error))
        except Exception:
            # An error of ours costs no message: it is not acknowledged, so Meta sends it again.
            log.exception("whatsapp.not_taken")
        else:
            return True
        return False
