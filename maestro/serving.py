"""Listening sockets and the HTTP server around them, for the dashboard, the web connector and the health ports."""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from maestro.connections import ConnectionLedger, ConnectionLimits, LimitedHttp
from maestro.domain.errors import ConfigurationError, PortTaken

UNREAD_SECONDS = 45
"""How long the kernel keeps unread bytes for a client before it drops the connection."""
CLOSING_SECONDS = 2
BACKLOG = 512
ACCEPTED_AT_ONCE = 64
"""Connections accepted before those that exceed a limit are closed; the descriptors for them must be free."""
MOST_DESCRIPTORS = 65_536
"""The soft limit asked for at start; some systems set the hard limit to a thousand million."""


class Server(uvicorn.Server):
    """A uvicorn that leaves signals to the process it is part of, and says when it serves and when it ends."""

    def __init__(
        self,
        config: uvicorn.Config,
        serving: Callable[[], Awaitable[None]] | None = None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """``closing`` is called before requests that are being answered are given their last moments."""
        super().__init__(config)
        self._serving = serving
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, then tell."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(BACKLOG)  # asyncio has set the kernel's queue to the number that it accepts at once
        if self._serving is not None:
            await self._serving()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell, then end."""
        self._closing()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: shutting down is decided elsewhere."""
        yield


@dataclass(frozen=True)
class Place:
    """Where a server listens, and the names of the settings that say so; port 0 is any free one."""

    host: str
    port: int
    section: str
    option: str
    key: str = "port"
    """The port's own key in the section."""


def raise_descriptor_limit() -> None:
    """Let this process open as many files and sockets as the system allows it; many allow 1,024 unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it; the limits follow the number in force
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def config(app: ASGIApp, limits: ConnectionLimits | None = None, **options: Any) -> uvicorn.Config:
    """Return how an application is served on one port; ``options`` are uvicorn's own."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    within = (limits or ConnectionLimits()).within(descriptors if descriptors > 0 else MOST_DESCRIPTORS)
    return uvicorn.Config(
        app,
        http=partial(LimitedHttp, ConnectionLedger(within)),  # type: ignore[arg-type]  # called like a class
        backlog=ACCEPTED_AT_ONCE,
        lifespan="off",
        log_config=None,
        log_level="warning",  # at debug level the library would log frames, credentials included
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        **options,
    )


async def serve_until_cancelled(server: Server, sockets: list[socket.socket]) -> None:
    """Serve; when cancelled, close in good order before returning."""
    task = asyncio.create_task(server.serve(sockets))
    try:
        await asyncio.shield(task)
    finally:
        server.should_exit = True  # sockets are closed with 1012, "service restart": clients come back
        with contextlib.suppress(asyncio.CancelledError):
            await task


def listen(place: Place) -> list[socket.socket]:
    """Bind every address of the host to one port.

    Raises ``PortTaken`` naming the port and its setting, ``ConfigurationError`` when the host cannot be bound.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(place):
            chosen = sockets[0].getsockname()[1] if sockets else place.port
            with contextlib.suppress(_NoSuchFamily):
                sockets.append(_bound(family, (address, chosen), place))
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise ConfigurationError(f"{place.section}.host {place.host!r} has no address on this machine.")
    return sockets


class _NoSuchFamily(Exception):
    """The machine has no such address, for example no IPv6."""


def _addresses(place: Place) -> Sequence[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(
            f"{place.section}.host {place.host!r} is not a name or address of this machine."
        ) from error
    return sorted({(family, str(address[0])) for family, _, _, _, address in found})


def _bound(family: socket.AddressFamily, address: tuple[str, int], place: Place) -> socket.socket:
    try:
        bound = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {address[1]} is in use; choose another with {place.section}.{place.key} or {place.option}."
            ) from error
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _NoSuchFamily from error
        raise ConfigurationError(
            f"{place.section}.host/{place.section}.{place.key}: cannot listen on {address[0]}:{address[1]}: {error}"
        ) from error
    bound.setblocking(False)
    with contextlib.suppress(AttributeError, OSError):  # where the system has it; accepted sockets inherit it
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    return bound
