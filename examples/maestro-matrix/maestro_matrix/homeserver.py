"""The client of a homeserver: it makes each call once and classifies the failure of a call.

An exception is a connection that the homeserver closed: aiohttp then repeats the call. The repeated call has the same
transaction id, so the homeserver carries it out once.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
)
from mautrix.api import HTTPAPI, Method, Path
from mautrix.client import ClientAPI
from mautrix.errors import MatrixConnectionError, MatrixError
from mautrix.types import EventType, FilterID, RoomID, SyncToken, UserID
from mautrix.util.logging import TraceLogger

from maestro_matrix.errors import Unreachable, Unsure, classify_answer

Json = Mapping[str, Any]
"""A JSON object of the Matrix protocol."""

EVENT_TYPES = ("m.room.message", "m.room.encrypted", "m.room.member", "m.room.tombstone")
"""The types of events to request."""
PAGE = 50
"""The most events of one room in one answer."""
CONNECT_SECONDS = 10.0
CALL_SECONDS = 60.0
"""The timeout of a call in seconds, besides the wait of a poll; uploads have ``UPLOAD_SECONDS``."""
UPLOAD_SECONDS = 600.0


class Homeserver:
    """The client of one homeserver; every method raises a ``MatrixTrouble``.

    The first call opens the connections, and ``close`` closes them. The library would log messages of users, so it gets
    a logger without output; the connector itself reports problems to operators.
    """

    def __init__(self, address: str, token: str) -> None:
        self._address, self._token = address, token
        self._client: ClientAPI | None = None

    async def whoami(self) -> str:
        """Return the id of the token's account."""
        client = self._open()
        answer = await _call(client.api.request(Method.GET, Path.v3.account.whoami))
        with _library_errors():
            client.mxid = UserID(answer["user_id"])
        return str(client.mxid)

    async def sync(self, since: str, seconds: float) -> Json:
        """Return the events after ``since``, after at most ``seconds`` of waiting; without it, the current state."""
        only = FilterID(_only_messages(PAGE if since else 1))
        waiting = self._open().sync(SyncToken(since) or None, timeout=int(seconds * 1000), filter_id=only)
        answer = await _call(waiting, CALL_SECONDS + seconds)
        if not isinstance(answer.get("next_batch"), str):
            raise Unsure("the homeserver's answer has no next_batch")
        return answer

    async def earlier(self, room: str, start: str = "", end: str = "") -> Json:
        """Return a page of a room's events, newest first: from ``start``, or the newest event, back to ``end``."""
        how = {"dir": "b", "from": start or None, "to": end or None, "limit": str(PAGE)}
        only = json.dumps({"types": EVENT_TYPES})
        return await self._get(Path.v3.rooms[room].messages, {**how, "filter": only})

    async def event(self, room: str, event_id: str) -> Json:
        """Return one event of a room."""
        return await self._get(Path.v3.rooms[room].event[event_id])

    async def members(self, room: str) -> dict[str, str]:
        """Return the display names of a room's members by user id."""
        answer = await self._get(Path.v3.rooms[room].joined_members)
        with _library_errors():
            return {user: str(one.get("display_name") or "") for user, one in answer["joined"].items()}

    async def predecessor(self, room: str) -> str:
        """Return the id of the room that this room replaces, "" if there is none."""
        made = await self._get(Path.v3.rooms[room].state["m.room.create"])
        return str((made.get("predecessor") or {}).get("room_id") or "")

    async def join(self, room: str) -> None:
        """Join a room."""
        with _library_errors():
            async with asyncio.timeout(CALL_SECONDS):
                await self._open().join_room_by_id(RoomID(room))

    async def put(self, room: str, kind: EventType, key: str, content: Json) -> str:
        """Send an event under a transaction id and return the event's id; a known transaction id sends nothing."""
        with _library_errors():
            async with asyncio.timeout(CALL_SECONDS):
                sent = await self._open().send_message_event(RoomID(room), kind, cast("Any", content), txn_id=key)
                return str(sent)

    async def upload(self, data: bytes, filename: str, content_type: str) -> str:
        """Upload a file and return its address, ``mxc://...``."""
        with _library_errors():
            async with asyncio.timeout(UPLOAD_SECONDS):
                return str(await self._open().upload_media(data, mime_type=content_type, filename=filename))

    async def typing(self, room: str, seconds: float) -> None:
        """Show the typing indicator for so many seconds; 0 ends the indicator."""
        with _library_errors():
            async with asyncio.timeout(CALL_SECONDS):
                await self._open().set_typing(RoomID(room), timeout=int(seconds * 1000))

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.api.session.close()

    async def _get(self, path: Any, query: Mapping[str, Any] | None = None) -> Json:
        return await _call(self._open().api.request(Method.GET, path, query_params=query))

    def _open(self) -> ClientAPI:
        if self._client is None:
            session = ClientSession(
                headers={"User-Agent": HTTPAPI.default_ua},
                timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                raise_for_status=_raise_trouble,
            )
            quiet = TraceLogger("maestro_matrix", logging.CRITICAL + 1)
            api = HTTPAPI(self._address, self._token, client_session=session, default_retry_count=0, log=quiet)
            self._client = ClientAPI(api=api)
        return self._client


def _only_messages(limit: int) -> str:
    """Return the filter of a sync request: only the events of ``HEARD``, at most ``limit`` for each room."""
    nothing: Json = {"types": []}
    timeline = {"types": EVENT_TYPES, "limit": limit}
    room = {"account_data": nothing, "ephemeral": nothing, "state": nothing, "timeline": timeline}
    return json.dumps({"presence": nothing, "account_data": nothing, "room": room})


async def _call(call: Any, seconds: float = CALL_SECONDS) -> Json:
    with _library_errors():
        async with asyncio.timeout(seconds):
            answer = await call
    if not isinstance(answer, dict):
        raise Unsure("the homeserver's answer is no object")
    return answer


async def _raise_trouble(response: ClientResponse) -> None:
    """Raise the ``MatrixTrouble`` of an unsuccessful answer: the library's own errors do not contain the wait."""
    if response.ok:
        return
    try:
        answer = await response.json(content_type=None)
    except ValueError:
        answer = None
    found = answer if isinstance(answer, dict) else {}
    raise classify_answer(response.status, found, response.headers.get("Retry-After", ""))


@contextmanager
def _library_errors() -> Iterator[None]:
    """Translate the library's errors into a ``MatrixTrouble`` that quotes no messages."""
    try:
        yield
    except (ClientError, MatrixError, TimeoutError, OSError, ValueError, KeyError) as error:
        cause = error.__cause__ if isinstance(error, MatrixConnectionError) else error
        if isinstance(cause, ClientConnectorError | ConnectionTimeoutError):
            raise Unreachable(f"the homeserver cannot be reached ({type(cause).__name__})") from None
        raise Unsure(f"the homeserver's answer did not come ({type(cause).__name__})") from None
