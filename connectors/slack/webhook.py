"""The Events API: requests of Slack on the web connector's port, each of them signed."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors.slack.ears import COMMANDS, EVENTS, Ears
from connectors.slack.signature import is_signed

MAX_BODY = 1024 * 1024
SECONDS = 2.5
"""How long a message may take to be in the inbox; Slack waits three seconds."""
TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
FORM = "application/x-www-form-urlencoded"
CHALLENGE = "url_verification"


class Webhook:
    """Takes requests in; anything but 200 lets Slack send them again."""

    def __init__(
        self, secret: str, ears: Ears, *, seconds: float = SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._ears = ears
        self._seconds = seconds
        self._clock = clock

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Slack posts events and slash commands; both places take both."""
        return [Route(path, self.receive, methods=["POST"]) for path in ("/events", "/commands")]

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        try:
            body = await _body(request)
        except ClientDisconnect:
            return PlainTextResponse("the body did not come to its end", HTTPStatus.BAD_REQUEST)
        if body is None:
            return PlainTextResponse("too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        timestamp, signature = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        if not is_signed(self._secret, timestamp, signature, body, self._clock()):
            return PlainTextResponse("not signed by Slack", HTTPStatus.UNAUTHORIZED)
        if request.headers.get("content-type", "").startswith(FORM):
            return await self._hear(COMMANDS, dict(parse_qsl(body.decode("utf-8", "replace"))))
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):  # the latter of one that is nested thousands deep
            return PlainTextResponse("this is no JSON", HTTPStatus.BAD_REQUEST)
        if not isinstance(payload, dict):
            return PlainTextResponse("this is no object", HTTPStatus.BAD_REQUEST)
        if payload.get("type") == CHALLENGE:
            return PlainTextResponse(str(payload.get("challenge") or ""))
        return await self._hear(EVENTS, payload)

    async def _hear(self, kind: str, payload: dict[str, Any]) -> Response:
        said: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                said = await self._ears.hear(kind, payload)
        except TimeoutError:
            said = None
        if said is None:
            return PlainTextResponse("not taken: please send it again", HTTPStatus.SERVICE_UNAVAILABLE)
        return JSONResponse({"text": said}) if said else Response()


async def _body(request: Request) -> bytes | None:
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
