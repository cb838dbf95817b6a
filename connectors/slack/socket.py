"""Socket Mode: one connection to Slack, mended whenever it breaks; what comes is acknowledged once we have it."""

import asyncio
import contextlib
import time
from typing import Protocol

from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from connectors.pace import pauses
from connectors.slack.api import called, quiet
from connectors.slack.config import APP_TOKEN
from connectors.slack.ears import Ears
from connectors.slack.errors import Busy, SlackTrouble, refused_account
from connectors.slack.receive import Event

LOOK_SECONDS = 0.25
"""How often we look whether the connection holds: of one that was cut the library tells nobody."""
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""How long Slack may take to say goodbye."""
REFRESH_SECONDS = 30.0
"""How long the library may take to replace a connection that Slack is about to close."""
HELLO = "hello"


class Watcher(Protocol):
    """Who is told how the connection is doing."""

    def listening(self) -> None:
        """Hear that events come in from now on; those before may be lost."""
        ...

    async def connected(self) -> None:
        """Hear that the connection stands."""
        ...

    async def broken(self, why: str) -> None:
        """Hear that there is none."""
        ...


class Socket:
    """Keeps a connection for as long as it runs.

    The library replaces a connection when Slack asks for it. Any other that ends is given up for a new one with an
    address of its own, because the library tries an address for ever, and one is good for half a minute.
    """

    def __init__(self, web: AsyncWebClient, app_token: str, ears: Ears, watcher: Watcher) -> None:
        self._web = web
        self._app_token = app_token
        self._ears = ears
        self._watcher = watcher
        self._pauses = pauses()

    async def run(self) -> None:
        """Listen until cancelled; raises ``AccountRefused``."""
        while True:
            try:
                opened = await called(self._web.apps_connections_open(app_token=self._app_token))
            except SlackTrouble as trouble:
                await self._wait(trouble)
            else:
                await self._listen(str(opened["url"]))
                await self._watcher.broken("the connection was lost")
                await asyncio.sleep(next(self._pauses))

    async def _wait(self, trouble: SlackTrouble) -> None:
        refused = refused_account(trouble, APP_TOKEN)
        if refused is not None:
            raise refused
        await self._watcher.broken(str(trouble))
        pause = next(self._pauses)
        await asyncio.sleep(max(pause, trouble.after.total_seconds()) if isinstance(trouble, Busy) else pause)

    async def _listen(self, address: str) -> None:
        """Listen at an address and return when nothing comes from there any more."""
        client = self._client(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect()  # type: ignore[no-untyped-call]
            await self._lost(client)
        except TimeoutError:
            return
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.disconnect()  # type: ignore[no-untyped-call]
            await client.close()  # type: ignore[no-untyped-call]

    async def _lost(self, client: SocketModeClient) -> None:
        seen = time.monotonic()
        while True:
            if await client.is_connected():
                seen = time.monotonic()
            elif not client.connect_operation_lock.locked() or time.monotonic() - seen > REFRESH_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _client(self, address: str) -> SocketModeClient:
        client = SocketModeClient(self._app_token, logger=quiet(), web_client=self._web, auto_reconnect_enabled=False)
        client.proxy = self._web.proxy
        client.wss_uri = address
        client.message_listeners.append(self._greeted)
        client.socket_mode_request_listeners.append(self._asked)
        return client

    async def _greeted(self, _: AsyncBaseSocketModeClient, message: Event, __: str | None) -> None:
        if message.get("type") == HELLO:
            self._watcher.listening()
            self._pauses = pauses()
            await self._watcher.connected()

    async def _asked(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Take in what came and acknowledge it: only what is in the inbox (docs/invariants.md: durable before ack)."""
        said = await self._ears.hear(request.type, request.payload)
        if said is not None:
            payload = {"text": said} if said else None
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))
