"""The webhooks of platforms: their routes, which exist while a connector runs, size limits and signature checks."""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from connectors.base import Connector, HasRoutes
from maestro.domain.errors import MaestroError
from maestro.domain.texts import replace_unstorable

MAX_BODY = 1024 * 1024
"""The largest request body that is read, in bytes."""

log = structlog.get_logger(__name__)


async def read_body(request: Request) -> bytes:
    """Return the raw body of a request; raises ``HTTPException`` if the body is too large or incomplete."""
    too_large = HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BODY:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise too_large
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the body is incomplete") from None
    return bytes(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; raises ``HTTPException`` for any other body.

    Characters that the store rejects are replaced: otherwise the platform would repeat the request without end and
    block later requests.
    """
    try:
        payload = replace_unstorable(json.loads(body))
    except (ValueError, RecursionError):  # RecursionError: the JSON is nested thousands of levels deep
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(payload, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return payload


def ask_platform_to_resend() -> Response:
    """Return the HTTP answer 503, after which the platform repeats a request that was not completely stored."""
    return PlainTextResponse("the request was not stored: please send it again", HTTPStatus.SERVICE_UNAVAILABLE)


def is_signed(secret: str, content: bytes, signature: str, scheme: str) -> bool:
    """Tell whether ``signature`` is ``<scheme>=<HMAC-SHA256 in hex>`` of ``content``, by a constant-time comparison."""
    expected = f"{scheme}={hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()}"
    return is_same_secret(expected, signature)


def is_same_secret(expected: str, given: str) -> bool:
    """Tell whether two secrets are equal, by a constant-time comparison."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))


class WebhookEndpoint:
    """The endpoint of a platform's requests; the platform repeats a request after any answer except 200."""

    paths: Sequence[str] = ("/",)
    methods: Sequence[str] = ("POST",)

    def __init__(self, platform: str, seconds: float) -> None:
        """``seconds`` is the time limit for storing a request, shorter than the platform's timeout."""
        self.take: Callable[..., Awaitable[str | None]] | None = None
        """The function that stores the events of a request; None until the connector knows its account."""
        self._platform = platform
        self._seconds = seconds

    def routes(self) -> Sequence[BaseRoute]:
        """Return the HTTP routes, relative to the account's path."""
        return [Route(path, self.receive_request, methods=list(self.methods)) for path in self.paths]

    async def receive_request(self, request: Request) -> Response:
        """Answer one request; the body is parsed only after the signature or secret was checked."""
        try:
            body = await read_body(request)
            if not self.is_genuine(request.headers, body):
                return PlainTextResponse(f"not signed by {self._platform}", HTTPStatus.UNAUTHORIZED)
            return await self.answer_genuine(request, body)
        except HTTPException as rejected:
            return PlainTextResponse(rejected.detail, rejected.status_code)

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell whether the platform sent the request."""
        raise NotImplementedError

    async def answer_genuine(self, _: Request, body: bytes) -> Response:
        """Answer a genuine request: store the JSON object in its body."""
        return await self.store_events(parse_object(body))

    async def store_events(self, *events: Any) -> Response:
        """Store the events of a request, then answer 200 with the text that ``take`` returns; 503 if that fails.

        See docs/invariants.md: durable before ack.
        """
        if self.take is None:
            return ask_platform_to_resend()
        try:
            async with asyncio.timeout(self._seconds):
                text = await self.take(*events)
        except (MaestroError, TimeoutError) as error:
            log.warning("webhook.not_taken", platform=self._platform, error=type(error).__name__, reason=str(error))
            return ask_platform_to_resend()
        except Exception:
            # Without an acknowledgement the platform sends the request again, so a defect in ``take`` loses no message.
            log.exception("webhook.not_taken", platform=self._platform)
            return ask_platform_to_resend()
        return JSONResponse({"text": text}) if text else Response()


class PlatformWebhooks:
    """The routes of running connectors under ``/<platform>/<account>``; other paths return 404."""

    def __init__(self) -> None:
        self.router = Router()
        self._opened, self._closed = asyncio.Event(), asyncio.Event()
        self._closed.set()

    @property
    def is_open(self) -> bool:
        """Whether this process listens at the web connector's port, to which the platforms post."""
        return self._opened.is_set()

    def open(self) -> None:
        """Record that this process listens at the port."""
        self._closed.clear()
        self._opened.set()

    def close(self) -> None:
        """Record that this process listens no more."""
        self._opened.clear()
        self._closed.set()

    async def wait_until_open(self) -> None:
        """Return when this process listens at the port."""
        await self._opened.wait()

    async def wait_until_closed(self) -> None:
        """Return when this process listens no more."""
        await self._closed.wait()

    @contextlib.contextmanager
    def serve_connector(self, connector: Connector) -> Iterator[None]:
        """Serve a connector's routes, if it has any, while the block runs."""
        prefix = f"/{connector.platform}/{connector.account}"
        routes = (
            [mount_route(prefix, route) for route in connector.routes()] if isinstance(connector, HasRoutes) else []
        )
        self.router.routes.extend(routes)
        try:
            yield
        finally:
            for route in routes:
                self.router.routes.remove(route)


def mount_route(prefix: str, route: BaseRoute) -> BaseRoute:
    """Return a route under a prefix; the prefix itself serves the route ``/``, as platforms follow no redirect."""
    if not isinstance(route, Route):
        return Mount(prefix, routes=[route])
    return Route(prefix + route.path.rstrip("/"), route.endpoint, methods=list(route.methods or ()))
