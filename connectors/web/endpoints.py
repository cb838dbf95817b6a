"""The HTTP endpoints of the web connector: messages, uploads, downloads of files from agents, and health."""

import asyncio
import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from connectors.base import Upload
from connectors.web import frames
from connectors.web.config import PLATFORM
from connectors.web.identity import WebUser
from connectors.web.session import TooLarge, UnsupportedMedia, WebServices, client_address, error_text, to_client_error
from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError, NotFound, StoreBusy, Unauthorized
from maestro.domain.media import HEAD_BYTES, TEXT, detect_type, is_markup, is_text
from maestro.domain.messages import Address, OutgoingMessage
from maestro.domain.network import TooManyAttempts

ENVELOPE = 16 * 1024
"""The most bytes of a multipart body besides the file itself."""
MAX_FILENAME = 200
PREFIX = "maestro-upload-"
BLOCK = 64 * 1024

FILE_HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

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


class _CountedBody:
    """A request body that counts its bytes; raises ``TooLarge`` above the sum of ``cap`` and ``envelope`` bytes."""

    def __init__(self, request: Request, cap: int, envelope: int = 0) -> None:
        self._receive = request.receive
        self._left = cap + envelope
        self._cap = cap

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large_error(self._cap)
        return message


def too_large_error(max_bytes: int) -> TooLarge:
    """Return the error for a body over the limit ``max_bytes``, in bytes."""
    return TooLarge(f"Too large; the limit is {max_bytes} bytes.")


async def receive_file(request: Request, max_bytes: int, folder: Path | None) -> Upload:
    """Stream the only file of a multipart body to disk.

    Raises ``TooLarge`` over ``max_bytes`` bytes, ``UnsupportedMedia`` for a type that is not accepted,
    ``InvalidMessage`` for a body without a file. The caller owns the returned file and moves or deletes it.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise UnsupportedMedia("Send the file as multipart/form-data.")
    counted = Request(request.scope, _CountedBody(request, max_bytes, ENVELOPE))
    parser = MultiPartParser(counted.headers, counted.stream(), max_files=1, max_fields=8, max_part_size=ENVELOPE)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidMessage(f"The upload is malformed: {error.message}") from error
    part = next((value for value in form.values() if isinstance(value, UploadFile)), None)
    if part is None:
        raise InvalidMessage("The upload contains no file.")
    try:
        if (part.size or 0) > max_bytes:
            raise too_large_error(max_bytes)
        return await asyncio.to_thread(store_upload, part.file, part.filename or "", folder)
    finally:
        await part.close()


def store_upload(source: BinaryIO, name: str, folder: Path | None) -> Upload:
    """Check the bytes of an upload and copy them to a file in ``folder``; raises ``UnsupportedMedia``."""
    content_type = detect_upload_type(source)
    source.seek(0)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    with os.fdopen(handle, "wb") as target:
        shutil.copyfileobj(source, target)
        size = target.tell()
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    filename = "".join(character for character in last if character.isprintable()).strip()[:MAX_FILENAME] or "file"
    return Upload(path=Path(path), filename=filename, content_type=content_type, size=size)


def delete_stale_uploads(folder: Path, until: float) -> None:
    """Delete unfinished uploads of a killed process last changed before ``until``, in seconds since 1970."""
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # An upload that could not be deleted is harmless.
            if path.stat().st_mtime <= until:
                path.unlink()


def detect_upload_type(source: BinaryIO) -> str:
    """Return the content type of a file by its bytes; raises ``UnsupportedMedia`` for markup and unknown types."""
    head = source.read(HEAD_BYTES)
    known = detect_type(head)
    if known:
        return known
    if is_markup(head):
        raise UnsupportedMedia("HTML, SVG and XML files are not accepted.")
    source.seek(0)
    if is_text(iter(lambda: source.read(BLOCK), b"")):
        return TEXT
    raise UnsupportedMedia("This kind of file is not accepted; send an image, audio, video, PDF or plain text.")


async def find_file(services: WebServices, web_user: WebUser, channel: str, delivery: int) -> OutgoingMessage:
    """Return the delivery of a requested file.

    Raises ``NotFound``, also if the channel belongs to another user, so that no user learns of other users' files.
    """
    address = Address(platform=PLATFORM, channel=channel)
    if web_user.may_open(channel):
        # The delivery may not be committed yet, so deliveries in memory are searched as well.
        sent = [
            *services.hub.list_recent(channel, delivery - 1),
            *await services.context.sent_since(address, delivery - 1, 1),
        ]
        message = next((chunk for chunk in sent if chunk.id == delivery and chunk.filename), None)
        if message is not None and await services.context.open_channel(address, web_user.identity.user_id):
            return message
    raise NotFound("There is no file with this id in your channels.")


async def file_response(services: WebServices, message: OutgoingMessage) -> Response:
    """Return the file as a download; raises ``NotFound`` when the file was deleted."""
    if message.path is None:
        return Response(message.content.encode(), headers=_file_headers(message), media_type="text/markdown")
    try:
        path = await services.context.fetch_file(message)
    except NotFound:
        raise NotFound("The file was deleted from Maestro's storage.") from None
    return FileResponse(
        path, headers=_file_headers(message), media_type=message.content_type or "application/octet-stream"
    )


def _file_headers(message: OutgoingMessage) -> dict[str, str]:
    name = quote(message.filename, safe="")
    return {**FILE_HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}


class Endpoints:
    """The endpoints ``POST /api/message``, ``POST /api/upload``, ``GET /api/file`` and ``GET /health``."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        """Return the HTTP routes of the web connector."""
        return [
            Route("/api/message", _json_endpoint(self.post_message), methods=["POST"]),
            Route("/api/upload", _json_endpoint(self.post_upload), methods=["POST"]),
            Route(frames.FILE_PATH, _answer_errors(self.get_file), methods=["GET"]),
            Route("/health", _json_endpoint(self.get_health), methods=["GET"]),
        ]

    async def post_message(self, request: Request) -> Mapping[str, object]:
        """Store one message of a user; the answer goes to the WebSockets of the channel, now or when they reconnect."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMedia("Send JSON with Content-Type: application/json.")
        fields = frames.decode_object(await _read_text(request, self._services.config.max_frame_bytes))
        message = frames.read_message(fields)
        channel = frames.read_channel(fields)
        web_user = await self._web_user(request, fields)
        address = await self._services.intake.open_channel(web_user, channel)
        try:
            accepted = await self._services.intake.accept_message(web_user, address, message)
        finally:
            self._services.intake.release_channel(address)
        return {
            "ok": True,
            "messageId": accepted.message_id,
            "channelId": address.channel,
            "duplicate": accepted.duplicate,
            "resumeToken": self._services.tokens.issue_token(web_user),
        }

    async def post_upload(self, request: Request) -> Mapping[str, object]:
        """Store one file for this user; later messages may name the file's id in ``attachments``."""
        web_user = await self._web_user(request, {})
        upload = await receive_file(request, self._services.config.max_upload_bytes, self._services.config.upload_dir)
        try:
            stored = await self._services.context.keep_upload(web_user.identity.user_id, upload)
        finally:
            await asyncio.to_thread(upload.path.unlink, missing_ok=True)
        return {
            "id": stored.id,
            "filename": stored.filename,
            "contentType": stored.content_type,
            "size": stored.size,
            "resumeToken": self._services.tokens.issue_token(web_user),
        }

    async def get_file(self, request: Request) -> Response:
        """Return a file that was sent to a channel of this user."""
        web_user = await self._web_user(request, {})
        channel, number = request.path_params["channel"], request.path_params["delivery"]
        is_valid = frames.CHANNEL.fullmatch(channel) and frames.NUMBER.fullmatch(number)
        if not is_valid or int(number) > frames.MAX_ID:
            raise NotFound("There is no file with this id in your channels.")
        message = await find_file(self._services, web_user, channel, int(number))
        return await file_response(self._services, message)

    async def get_health(self, _request: Request) -> Mapping[str, object]:
        """Report that the web connector is running, and its number of authenticated sockets."""
        return {"status": "ok", "clients": self._services.hub.client_count}

    async def _web_user(self, request: Request, fields: frames.Fields) -> WebUser:
        """Return the user of a request, authenticated by the Authorization header and the credentials in the body."""
        in_body = frames.read_credentials(fields)
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        authenticator, is_bearer = self._services.authenticator, scheme.lower() == "bearer"
        in_header = authenticator.read_bearer(value.strip()) if is_bearer else frames.WebCredentials()
        credentials = frames.WebCredentials(
            api_key=in_header.api_key,
            resume_token=in_header.resume_token or in_body.resume_token,
            user_name=in_body.user_name,
            bot=in_body.bot,
        )
        return await authenticator.authenticate_user(credentials, client_address(request))


def _json_endpoint(
    endpoint: Callable[[Request], Awaitable[Mapping[str, object]]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(await endpoint(request), headers=HEADERS)

    return _answer_errors(answer)


def _answer_errors(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # The client has disconnected.
        # The API answers every error as JSON, even an error of a library.
        except Exception as error:  # noqa: BLE001 - see above
            problem = to_client_error(error)
            body = {"error": type(problem).__name__, "message": error_text(problem)}
            wait = {"Retry-After": str(math.ceil(problem.retry_after.total_seconds()))} if problem.retry_after else {}
            matching = (status for kind, status in STATUS if isinstance(problem, kind))
            status = next(matching, HTTPStatus.INTERNAL_SERVER_ERROR)
            return JSONResponse(body, status_code=status, headers={**HEADERS, **wait})

    return respond


async def _read_text(request: Request, max_bytes: int) -> str:
    body = await Request(request.scope, _CountedBody(request, max_bytes)).body()
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage("The body is not UTF-8.") from error
