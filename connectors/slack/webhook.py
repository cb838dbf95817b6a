"""The Events API: requests of Slack on the web connector's port, each of them signed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors.posted import body_of, not_taken, object_in
from connectors.slack.ears import COMMANDS, EVENTS, INTERACTIVE, Ears
from connectors.slack.signature import is_signed

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
        """Return where Slack posts events, slash commands and presses of buttons; each place takes all of them."""
        return [Route(path, self.receive, methods=["POST"]) for path in ("/events", "/commands", "/interactive")]

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        body = await body_of(request)
        if isinstance(body, Response):
            return body
        timestamp, signature = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        if not is_signed(self._secret, timestamp, signature, body, self._clock()):
            return PlainTextResponse("not signed by Slack", HTTPStatus.UNAUTHORIZED)
        if request.headers.get("content-type", "").startswith(FORM):
            return await self._form(dict(parse_qsl(body.decode("utf-8", "replace"))))
        payload = object_in(body)
        if isinstance(payload, Response):
            return payload
        if payload.get("type") == CHALLENGE:
            return PlainTextResponse(str(payload.get("challenge") or ""))
        return await self._hear(EVENTS, payload)

    async def _form(self, fields: dict[str, str]) -> Response:
        """Answer a slash command, or what somebody did with a message, which comes as JSON in a field."""
        if "payload" not in fields:
            return await self._hear(COMMANDS, fields)
        payload = object_in(fields["payload"].encode())
        return payload if isinstance(payload, Response) else await self._hear(INTERACTIVE, payload)

    async def _hear(self, kind: str, payload: dict[str, Any]) -> Response:
        said: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                said = await self._ears.hear(kind, payload)
        except TimeoutError:
            said = None
        if said is None:
            return not_taken()
        return JSONResponse({"text": said}) if said else Response()
