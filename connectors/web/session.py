"""A WebSocket session from its first frame to its close: intake before acknowledgement, and errors for the client."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

import structlog
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect
from ulid import ULID

from connectors.base import ConnectorContext, IdentityRole
from connectors.web import frames
from connectors.web.config import MAX_CLIENT_ID, PLATFORM, WebConfig
from connectors.web.frames import ClientMessage, Fields, SocketHub, SocketQueue, TooSlow
from connectors.web.identity import ResumeTokens, WebAuthenticator, WebUser
from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError, Unauthorized
from maestro.domain.messages import AcceptedMessage, Address, ControlWord, IncomingMessage
from maestro.domain.network import TooManyAttempts

log = structlog.get_logger(__name__)

CLOSE_PATIENCE = 5.0
"""The longest wait in seconds for a client to accept the last frame and the close."""
REPLAY_PAGE = 100
"""The most deliveries in memory at once while missed deliveries are replayed to a returning client."""


class CloseCode(IntEnum):
    """Close codes of a WebSocket."""

    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    LATER = 1013
    INTERNAL = 1011


class ChannelTaken(Forbidden):
    """The channel belongs to another user (docs/decisions.md: web identity)."""

    public = "The channel belongs to another user."


class TooLarge(InvalidMessage):
    """The body or file exceeds the limit; the message names the limit."""

    public = "Too large."


class UnsupportedMedia(InvalidMessage):
    """The content type, or the file's real type, is not accepted."""

    public = "This kind of content is not supported."


class ShuttingDown(Backlogged):
    """The connector is shutting down; nothing was stored, and the client may send the message again."""

    public = "Maestro is restarting."


class InternalError(MaestroError):
    """An unexpected failure: the log has the details, and the client learns only that the request was not at fault."""

    public = "An internal error occurred. Maestro's log has the details; try again in a moment."


def error_text(error: MaestroError) -> str:
    """Return the text of an error for the client; internal details stay in the log."""
    if isinstance(error, ShuttingDown):
        return "Maestro is restarting; try again in a moment. Nothing was stored."
    if error.retryable:
        return "Maestro is busy; try again in a moment. Nothing was stored."
    if isinstance(error, (InvalidMessage, Forbidden, Unauthorized, TooManyAttempts)):
        return str(error) or error.public
    return error.public


def to_client_error(error: Exception) -> MaestroError:
    """Return a ``MaestroError`` unchanged; log any other error and return an ``InternalError`` for the client."""
    if isinstance(error, MaestroError):
        return error
    log.error("the web connector failed", error=type(error).__name__, exc_info=error)
    return InternalError()


def close_code(error: MaestroError) -> CloseCode:
    """Return the WebSocket close code for an error."""
    if error.retryable or isinstance(error, TooManyAttempts):
        return CloseCode.LATER
    if isinstance(error, Forbidden):
        return CloseCode.FORBIDDEN
    if isinstance(error, (InvalidMessage, Unauthorized)):
        return CloseCode.UNAUTHORIZED
    return CloseCode.INTERNAL


class WebIntake:
    """The intake of messages from authenticated users, shared by WebSockets and HTTP."""

    def __init__(self, context: ConnectorContext, clock: Callable[[], datetime]) -> None:
        self._context = context
        self._clock = clock
        self._open = True
        self._unwritten: dict[str, str] = {}
        """The user id that opened each new channel; the store gets the channel's row with the first message."""

    def stop_accepting(self) -> None:
        """Refuse further messages; acknowledged messages stay stored."""
        self._open = False

    async def open_channel(self, web_user: WebUser, channel: str) -> Address:
        """Return the address of the user's channel, a new channel if ``channel`` is empty; raises ``ChannelTaken``."""
        address = Address(platform=PLATFORM, channel=channel or f"web-{ULID()}")
        if not web_user.may_open(address.channel):
            raise ChannelTaken("This channel is for the dashboard only.")
        if channel:
            await self._claim_channel(web_user, address)
        else:
            self._unwritten[address.channel] = web_user.identity.user_id
        return address

    def release_channel(self, address: Address) -> None:
        """Forget a new channel that has no messages."""
        self._unwritten.pop(address.channel, None)

    async def accept_message(self, web_user: WebUser, address: Address, frame: ClientMessage) -> AcceptedMessage:
        """Store a message; raises the errors of ``ConnectorContext.accept``, and ``ShuttingDown`` during a drain."""
        if not self._open:
            raise ShuttingDown
        user = web_user.identity
        files = await self._context.uploads(user.user_id, frame.attachments) if frame.attachments else ()
        if address.channel in self._unwritten:
            await self._claim_channel(web_user, address)
        message = IncomingMessage(
            # The user's id is a part of the message id, because two users may choose the same clientId.
            id=f"{user.user_id}:{frame.client_id or ULID()}",
            address=address,
            user_id=user.user_id,
            user_name=user.user_name,
            content=frame.content,
            sent_at=self._clock(),
            attachments=files,
            is_direct=True,
            is_owner=user.role is IdentityRole.OWNER,
            from_bot=web_user.bot,
        )
        return await self._context.accept(message)

    async def _claim_channel(self, web_user: WebUser, address: Address) -> None:
        """Make the user the owner of the channel; raises ``ChannelTaken``."""
        user = web_user.identity.user_id
        opener = self._unwritten.get(address.channel, user)
        if opener != user or not await self._context.open_channel(address, user):
            raise ChannelTaken("The channel belongs to another user.")
        self.release_channel(address)


@dataclass(frozen=True)
class WebServices:
    """The services that all sessions of the connector share."""

    config: WebConfig
    context: ConnectorContext
    tokens: ResumeTokens
    authenticator: WebAuthenticator
    intake: WebIntake
    hub: SocketHub


class WebSession:
    """The WebSocket connection of a client; frames are handled one after another."""

    def __init__(self, services: WebServices, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket

    async def serve_client(self) -> None:
        """Authenticate the client, then handle frames until either side closes the connection."""
        await self._socket.accept()
        try:
            web_user, address, auth = await self._authenticate_client()
        except WebSocketDisconnect:
            return
        # The client gets an error frame for every failure, even a failure of a library.
        except Exception as error:  # noqa: BLE001 - see above
            await self._close_with_error(to_client_error(error))
            return
        try:
            await self._exchange_frames(web_user, address, auth)
        finally:
            self._services.intake.release_channel(address)

    async def _authenticate_client(self) -> tuple[WebUser, Address, frames.AuthFrame]:
        try:
            async with asyncio.timeout(self._services.config.auth_timeout):
                fields = frames.decode_object(await self._receive_text())
        except TimeoutError as error:
            raise Unauthorized("No auth frame arrived in time.") from error
        if fields.get("type") != "auth":
            raise Unauthorized('Send {"type": "auth"} first.')
        auth = frames.read_auth(fields)
        web_user = await self._services.authenticator.authenticate_user(auth.credentials, client_address(self._socket))
        address = await self._services.intake.open_channel(web_user, auth.channel)
        return web_user, address, auth

    async def _close_with_error(self, error: MaestroError) -> None:
        await self._close_socket(
            close_code(error), error.public, frames.error_frame(type(error).__name__, error_text(error))
        )

    async def _close_socket(self, code: CloseCode, reason: str, last_frame: Fields | None = None) -> None:
        with contextlib.suppress(TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(CLOSE_PATIENCE):
                if last_frame is not None:
                    await self._socket.send_json(last_frame)
                await self._socket.close(code, reason)

    async def _exchange_frames(self, web_user: WebUser, address: Address, auth: frames.AuthFrame) -> None:
        queue = SocketQueue(self._services.config.queue_limit, auth.last_id or 0)
        try:
            # The queue is subscribed before the missed deliveries are read, so that no delivery is lost in between.
            with self._services.hub.subscribe(address.channel, queue):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(queue.write_to_socket(self._socket.send_text))
                    tasks.create_task(queue.wait_until_full())
                    tasks.create_task(self._answer_all(web_user, address, auth, queue))
        except* WebSocketDisconnect:
            pass
        except* TooSlow:
            await self._close_socket(CloseCode.LATER, "too slow; reconnect with lastId")
        except* MaestroError as errors:
            # The missed deliveries could not be read; the client gets them when it reconnects with lastId.
            await self._close_with_error(next(error for error in errors.exceptions if isinstance(error, MaestroError)))

    async def _answer_all(
        self, web_user: WebUser, address: Address, auth: frames.AuthFrame, queue: SocketQueue
    ) -> None:
        tokens = self._services.tokens
        queue.put_frame(
            {
                "type": "auth_ok",
                "clientId": str(ULID()),
                "channelId": address.channel,
                "userId": web_user.identity.user_id,
                "resumeToken": tokens.issue_token(web_user),
                # The instance identifies the data folder: when it changes, a client's lastId is meaningless.
                "instance": tokens.installation_id,
            }
        )
        await self._resume_channel(address, auth.last_id, queue)
        while True:
            text = await self._receive_text()
            queue.put_frame(await self._answer_frame(web_user, address, text))

    async def _resume_channel(self, address: Address, last_id: int | None, queue: SocketQueue) -> None:
        if last_id is None:
            queue.replay_missed(())
            return
        try:
            await self._replay_missed(address, last_id, queue)
        # Any error is converted to one that the client may see before its socket is closed.
        except Exception as error:
            raise to_client_error(error) from error

    async def _replay_missed(self, address: Address, last_id: int, queue: SocketQueue) -> None:
        context = self._services.context
        newest = await context.newest_delivery()
        if last_id > newest:
            # An id above the newest means that an older store was restored, and the client saw none of this store.
            queue.cursor = 0
            queue.replay_missed(self._services.hub.list_recent(address.channel, 0))
            queue.put_frame({"type": "resumed", "lastId": max(queue.cursor, newest)})
            return
        page = await context.sent_since(address, queue.cursor, REPLAY_PAGE)
        while len(page) == REPLAY_PAGE:
            await queue.replay_missed_page(page)
            page = await context.sent_since(address, queue.cursor, REPLAY_PAGE)
        # The last page, uncommitted deliveries and live deliveries held back during the replay are merged in one step.
        queue.replay_missed((*page, *self._services.hub.list_recent(address.channel, queue.cursor)))
        queue.put_frame({"type": "resumed", "lastId": queue.cursor})

    async def _answer_frame(self, web_user: WebUser, address: Address, text: str | None) -> Fields:
        fields: Fields = {}
        try:
            fields = frames.decode_object(text)
            return await self._handle_frame(web_user, address, fields)
        # The client gets an error frame for every failure; the session continues with the next frame.
        except Exception as error:  # noqa: BLE001 - see above
            problem = to_client_error(error)
            return frames.error_frame(type(problem).__name__, error_text(problem), _client_id(fields))

    async def _handle_frame(self, web_user: WebUser, address: Address, fields: Fields) -> Fields:
        match fields.get("type"):
            case "message" | "stop" as kind:
                # See docs/decisions.md: control words.
                stop = ClientMessage(client_id="", content=ControlWord.STOP)
                message = frames.read_message(fields) if kind == "message" else stop
                accepted = await self._services.intake.accept_message(web_user, address, message)
                return frames.ack_frame(accepted.message_id, duplicate=accepted.duplicate, client=message.client_id)
            case "ping":
                return {"type": "pong"}
            case "auth":
                raise InvalidMessage("This connection is already authenticated.")
            case _:
                raise InvalidMessage("Unknown frame type; use message, stop or ping.")

    async def _receive_text(self) -> str | None:
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1005))
        text = event.get("text")
        return text if isinstance(text, str) else None


def client_address(connection: HTTPConnection) -> str:
    """Return the network address of the client, "" if unknown."""
    return connection.client.host if connection.client else ""


def _client_id(fields: Mapping[str, object]) -> str:
    """Return the clientId in a failed frame, so that the client knows which message failed; "" without one."""
    client = fields.get("clientId")
    return frames.clean_text(client) if isinstance(client, str) and len(client) <= MAX_CLIENT_ID else ""
