"""The HTTP side of the web connector: one message per request, uploads, and health."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connectors.web import downloads, frames
from connectors.web.errors import TooLarge, Unauthorized, UnsupportedMedia, explain, presentable
from connectors.web.identity import Guest
from connectors.web.session import House, caller_of
from connectors.web.uploads import receive_file, too_large
from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError, NotFound, StoreBusy
from maestro.domain.throttle import TooManyAttempts

STATUS: tuple[tuple[type[MaestroError], HTTPStatus], ...] = (
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (UnsupportedMedia, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (InvalidMessage, HTTPStatus.BAD_REQUEST),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Unauthorized, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
    (Backlogged, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreBusy, HTTPStatus.SERVICE_UNAVAILABLE),
)
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Endpoint = Callable[[Request], Awaitable[Mapping[str, object]]]


class Endpoints:
    """``POST /api/message``, ``POST /api/upload``, ``GET /api/file`` and ``GET /health``."""

    def __init__(self, house: House) -> None:
        self._house = house

    def routes(self) -> list[Route]:
        """Return the HTTP routes of the web connector."""
        return [
            Route("/api/message", _json(self.message), methods=["POST"]),
            Route("/api/upload", _json(self.upload), methods=["POST"]),
            Route(frames.FILE_PATH, _told(self.file), methods=["GET"]),
            Route("/health", _json(self.health), methods=["GET"]),
        ]

    async def message(self, request: Request) -> Mapping[str, object]:
        """Commit one message; the answer goes to the sockets of its channel, now or when they resume."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMedia("Send JSON with Content-Type: application/json.")
        fields = frames.decode(await _text(request, self._house.config.max_frame_bytes))
        said = frames.said(fields)
        channel = frames.channel(fields)
        guest = await self._guest(request, fields)
        address = await self._house.reception.open_channel(guest, channel)
        try:
            accepted = await self._house.reception.take(guest, address, said)
        finally:
            self._house.reception.leave(address)
        return {
            "ok": True,
            "messageId": accepted.message_id,
            "channelId": address.channel,
            "duplicate": accepted.duplicate,
            "resumeToken": self._house.tokens.issue(guest),
        }

    async def upload(self, request: Request) -> Mapping[str, object]:
        """Keep one file for this user; its id may then stand in ``attachments`` of a message."""
        guest = await self._guest(request, {})
        upload = await receive_file(request, self._house.config.max_upload_bytes, self._house.config.upload_dir)
        try:
            kept = await self._house.context.keep_upload(guest.identity.user_id, upload)
        finally:
            await asyncio.to_thread(upload.path.unlink, missing_ok=True)
        return {
            "id": kept.id,
            "filename": kept.filename,
            "contentType": kept.content_type,
            "size": kept.size,
            "resumeToken": self._house.tokens.issue(guest),
        }

    async def file(self, request: Request) -> Response:
        """Hand out a file that was sent to a channel of this person's."""
        guest = await self._guest(request, {})
        channel, number = request.path_params["channel"], request.path_params["delivery"]
        named = frames.CHANNEL.fullmatch(channel) and frames.NUMBER.fullmatch(number)
        if not named or int(number) > frames.MAX_ID:
            raise NotFound("There is no such file.")
        message = await downloads.found(self._house, guest, channel, int(number))
        return await asyncio.to_thread(downloads.handed_out, message)

    async def health(self, _request: Request) -> Mapping[str, object]:
        """Tell that the connector serves, and how many sockets are authenticated."""
        return {"status": "ok", "clients": self._house.hub.clients}

    async def _guest(self, request: Request, fields: frames.Fields) -> Guest:
        """Return who calls: the Authorization header's key or token, and what the body adds to it."""
        in_body = frames.credentials(fields)
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        in_header = self._house.doorman.bearer(value.strip()) if scheme.lower() == "bearer" else frames.Credentials()
        return await self._house.doorman.admit(
            frames.Credentials(
                api_key=in_header.api_key,
                resume_token=in_header.resume_token or in_body.resume_token,
                user_name=in_body.user_name,
                bot=in_body.bot,
            ),
            caller_of(request),
        )


def _json(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(await endpoint(request), headers=HEADERS)

    return _told(answer)


def _told(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody is there to read it
        # Contract: errors are JSON, whatever raised them.
        except Exception as error:  # noqa: BLE001 - see above
            return _refusal(presentable(error))

    return respond


def _refusal(error: MaestroError) -> Response:
    body = {"error": type(error).__name__, "message": explain(error)}
    wait = {"Retry-After": str(math.ceil(error.retry_after.total_seconds()))} if error.retry_after else {}
    return JSONResponse(body, status_code=_status(error), headers={**HEADERS, **wait})


def _status(error: MaestroError) -> HTTPStatus:
    matching = (status for kind, status in STATUS if isinstance(error, kind))
    return next(matching, HTTPStatus.INTERNAL_SERVER_ERROR)


async def _text(request: Request, cap: int) -> str:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > cap:
            raise too_large(cap)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage("The body is not UTF-8.") from error
