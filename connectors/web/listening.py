"""The listening sockets and the HTTP server of the web connector."""

import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from maestro.domain.errors import ConfigurationError, PortTaken

PING_SECONDS = 20.0
UNREAD_SECONDS = 45
"""How long the kernel keeps unread bytes for a client before it drops the connection."""
CLOSING_SECONDS = 2
BACKLOG = 512


class Server(uvicorn.Server):
    """A uvicorn that leaves signals to the process it is part of, and says when it serves."""

    def __init__(self, config: uvicorn.Config, serving: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._serving = serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, then tell."""
        await super().startup(sockets)
        await self._serving()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: shutting down is decided elsewhere."""
        yield


def server(app: ASGIApp, max_frame_bytes: int, serving: Callable[[], Awaitable[None]]) -> Server:
    """Return a server for ``app``; a WebSocket frame over ``max_frame_bytes`` closes its socket with 1009.

    ``serving`` is awaited once, when connections are accepted.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        log_level="warning",  # at debug level the library would log frames, credentials included
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=max_frame_bytes,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,  # no zip bombs, and no memory per idle socket
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    return Server(config, serving)


def listen(host: str, port: int) -> list[socket.socket]:
    """Bind every address of ``host`` to one port (0: any free one).

    Raises ``PortTaken`` naming the port and its setting, ``ConfigurationError`` when the host cannot be bound.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            chosen = sockets[0].getsockname()[1] if sockets else port
            with contextlib.suppress(_NoSuchFamily):
                sockets.append(_bound(family, (address, chosen)))
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise ConfigurationError(f"web.host {host!r} has no address on this machine.")
    return sockets


class _NoSuchFamily(Exception):
    """The machine has no such address, for example no IPv6."""


def _addresses(host: str, port: int) -> Sequence[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"web.host {host!r} is not a name or address of this machine.") from error
    return sorted({(family, str(address[0])) for family, _, _, _, address in found})


def _bound(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    try:
        bound = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Port {address[1]} is in use; choose another with web.port or --web-port.") from error
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _NoSuchFamily from error
        raise ConfigurationError(f"web.host/web.port: cannot listen on {address[0]}:{address[1]}: {error}") from error
    bound.setblocking(False)
    with contextlib.suppress(AttributeError, OSError):  # where the system has it; accepted sockets inherit it
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    return bound
