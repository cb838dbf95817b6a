"""Runs the HTTP server of the API and the dashboard."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib import import_module

import structlog
from starlette.types import ASGIApp

from api.parts import ApiParts, GuardSettings
from maestro.importing import collector_off
from maestro.serving import (
    ConnectionLimits,
    ListenAddress,
    Server,
    listen_on_address,
    serve_until_cancelled,
    uvicorn_config,
)

log = structlog.get_logger(__name__)


class ApiServer:
    """The HTTP server of the API and dashboard; it opens the port first, so that a taken port is noticed early."""

    def __init__(self, address: ListenAddress, limits: ConnectionLimits, parts: ApiParts) -> None:
        self._address = address
        self._limits = limits
        self._parts = parts
        self._serving = asyncio.Event()

    async def wait_until_started(self) -> None:
        """Wait until the server answers requests."""
        await self._serving.wait()

    async def run(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Serve requests until cancelled; call ``ready`` before the first request is answered.

        Raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be opened.
        """
        sockets = await asyncio.to_thread(listen_on_address, self._address)
        warn_without_password(self._parts.guard)
        with ExitStack() as bound:
            for one in sockets:
                bound.callback(one.close)
            if ready is not None:
                await ready()
            options = uvicorn_config(await asyncio.to_thread(_build_app_lazily, self._parts), self._limits)
            await serve_until_cancelled(Server(options, self._announce_start, self._close_tools), sockets)

    async def _announce_start(self) -> None:
        self._serving.set()

    def _close_tools(self) -> None:
        if self._parts.outside is not None:
            self._parts.outside.end_waits()


def warn_without_password(guard: GuardSettings) -> None:
    """Log a warning if no password is set, before the application is imported."""
    if guard.is_open:
        log.warning(
            "security: no password is set, so every user of this machine who reaches this port is the operator; "
            "set webui.password or MAESTRO_WEBUI_PASSWORD"
        )


def _build_app_lazily(parts: ApiParts) -> ASGIApp:
    """Import the application and build it.

    The late import lets ``maestro up`` answer the first message sooner: no message needs the two hundred routes, which
    take a quarter of the CPU time of all imports.
    """
    with collector_off():
        build_app: Callable[[ApiParts], ASGIApp] = import_module("api.app").build_app
    return build_app(parts)
