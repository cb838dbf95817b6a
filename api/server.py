"""Serves the API and the dashboard on their port."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib import import_module

import structlog
from starlette.types import ASGIApp

from api.parts import ApiParts, GuardSettings
from maestro.importing import collector_off
from maestro.serving import ConnectionLimits, ListenAddress, Server, listen, serve_until_cancelled, uvicorn_config

log = structlog.get_logger(__name__)


async def do_not_wait() -> None:
    """Wait for nothing."""


class ApiServer:
    """Listens from the start: a taken port is known before anything else begins, and a request waits to be served."""

    def __init__(self, address: ListenAddress, limits: ConnectionLimits, parts: ApiParts) -> None:
        self._address = address
        self._limits = limits
        self._parts = parts
        self._serving = asyncio.Event()

    async def started(self) -> None:
        """Return once requests are answered."""
        await self._serving.wait()

    async def run(self, turn: Callable[[], Awaitable[None]] = do_not_wait) -> None:
        """Serve until cancelled, once ``turn`` has returned.

        Raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be had.
        """
        sockets = await asyncio.to_thread(listen, self._address)
        warn_if_open(self._parts.guard)
        with ExitStack() as bound:
            for one in sockets:
                bound.callback(one.close)
            await turn()
            options = uvicorn_config(await asyncio.to_thread(_build_app_lazily, self._parts), self._limits)
            await serve_until_cancelled(Server(options, self._announce, self._close), sockets)

    async def _announce(self) -> None:
        self._serving.set()

    def _close(self) -> None:
        if self._parts.outside is not None:
            self._parts.outside.close()


def warn_if_open(guard: GuardSettings) -> None:
    """Warn at the start, before the application is imported, that no password is set."""
    if guard.is_open:
        log.warning(
            "security: no password is set, so everybody who reaches this port from this machine is the operator; "
            "set webui.password or MAESTRO_WEBUI_PASSWORD"
        )


def _build_app_lazily(parts: ApiParts) -> ASGIApp:
    """Import the application and build it.

    Imported by name in a function because its two hundred routes take a quarter of the CPU time of all that
    ``maestro up`` imports of its own, and no message needs them: the first one is answered that much sooner.
    """
    with collector_off():
        build_app: Callable[[ApiParts], ASGIApp] = import_module("api.app").build_app
    return build_app(parts)
