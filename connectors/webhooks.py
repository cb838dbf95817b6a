"""Webhooks of platforms: routes that come and go with their connectors, and bodies of limited size with signatures."""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from connectors.base import Connector, HasRoutes
from maestro.domain.errors import MaestroError
from maestro.domain.texts import tidied

MAX_BODY = 1024 * 1024
"""Bytes of the largest body that is read."""

log = structlog.get_logger(__name__)


async def read_body(request: Request) -> bytes | Response:
    """Return the raw body, over which signatures are made, or the answer that refuses the request."""
    try:
        body = await _read(request)
    except ClientDisconnect:
        return PlainTextResponse("the body did not come to its end", HTTPStatus.BAD_REQUEST)
    if body is None:
        return PlainTextResponse("too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return body


def parse_object(body: bytes) -> dict[str, Any] | Response:
    """Return the JSON object that a body is, or what to answer to one that is none.

    What no store takes is replaced in it: else it would be posted again and again, and hold up what comes with it.
    """
    try:
        payload = tidied(json.loads(body))
    except (ValueError, RecursionError):  # RecursionError: JSON nested thousands of levels deep
        return PlainTextResponse("this is no JSON", HTTPStatus.BAD_REQUEST)
    if not isinstance(payload, dict):
        return PlainTextResponse("this is no object", HTTPStatus.BAD_REQUEST)
    return payload


def ask_to_resend() -> Response:
    """Return the answer that lets the platform send a request again, because its messages are not all stored."""
    return PlainTextResponse("not taken: please send it again", HTTPStatus.SERVICE_UNAVAILABLE)


def is_signed(secret: str, content: bytes, signature: str, scheme: str) -> bool:
    """Tell whether a signature ``<scheme>=<HMAC-SHA256 in hex>`` is over this; a wrong one takes as long as another."""
    expected = f"{scheme}={hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()}"
    return is_same_secret(expected, signature)


def is_same_secret(expected: str, given: str) -> bool:
    """Compare a shared secret in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))


async def _read(request: Request) -> bytes | None:
    """Return the raw body, None when it is too large: then the rest of it is not read."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BODY:
        return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


class WebhookEndpoint:
    """Where a platform posts; any answer but 200 lets it send the request again."""

    paths: Sequence[str] = ("/",)
    methods: Sequence[str] = ("POST",)

    def __init__(self, platform: str, seconds: float) -> None:
        """``seconds`` is how long a request may take to be in the inbox, less than the platform waits."""
        self.take: Callable[..., Awaitable[str | None]] | None = None
        """What stores the events of a request; None until the connector knows its account."""
        self._platform = platform
        self._seconds = seconds

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes, below the account's own address."""
        return [Route(path, self.receive, methods=list(self.methods)) for path in self.paths]

    async def receive(self, request: Request) -> Response:
        """Answer one request; its body is parsed only when the platform proved to have sent it."""
        body = await read_body(request)
        if isinstance(body, Response):
            return body
        if not self.is_genuine(request.headers, body):
            return PlainTextResponse(f"not signed by {self._platform}", HTTPStatus.UNAUTHORIZED)
        return await self.answer(request, body)

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell whether the platform sent this."""
        raise NotImplementedError

    async def answer(self, request: Request, body: bytes) -> Response:
        """Answer a request that the platform sent."""
        raise NotImplementedError

    async def store(self, *events: Any) -> Response:
        """Acknowledge a request, with the text that ``take`` returns, once its events are in the inbox.

        See docs/invariants.md: durable before ack.
        """
        if self.take is None:
            return ask_to_resend()
        try:
            async with asyncio.timeout(self._seconds):
                text = await self.take(*events)
        except (MaestroError, TimeoutError) as error:
            log.warning("webhook.not_taken", platform=self._platform, error=type(error).__name__, reason=str(error))
            return ask_to_resend()
        except Exception:
            # Without an acknowledgement the platform sends the request again, so a defect here loses no message.
            log.exception("webhook.not_taken", platform=self._platform)
            return ask_to_resend()
        return JSONResponse({"text": text}) if text else Response()


class PlatformWebhooks:
    """Serves the routes of connectors under ``/<platform>/<account>`` while they run; nothing else is found there."""

    def __init__(self) -> None:
        self.router = Router()

    @contextlib.contextmanager
    def serving(self, connector: Connector) -> Iterator[None]:
        """Serve a connector's routes, if it has any, for the length of the block."""
        routes = _routes_below(f"/{connector.platform}/{connector.account}", connector)
        self.router.routes.extend(routes)
        try:
            yield
        finally:
            for route in routes:
                self.router.routes.remove(route)


def _routes_below(prefix: str, connector: Connector) -> list[BaseRoute]:
    """Return a connector's routes under a prefix, which stands for their ``/``: platforms follow no redirect."""
    if not isinstance(connector, HasRoutes):
        return []
    return [_prefixed(prefix, route) for route in connector.routes()]


def _prefixed(prefix: str, route: BaseRoute) -> BaseRoute:
    if not isinstance(route, Route):
        return Mount(prefix, routes=[route])
    return Route(prefix + route.path.rstrip("/"), route.endpoint, methods=list(route.methods or ()))
