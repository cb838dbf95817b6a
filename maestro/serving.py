"""The HTTP server: its listening sockets, and the limits of the connections to one port."""

import asyncio
import contextlib
import errno
import resource
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from maestro.domain.errors import ConfigurationError, PortTaken
from maestro.domain.network import TrustedProxies

log = structlog.get_logger(__name__)

BODY_SILENCE_SECONDS = 45.0
"""Seconds that a client may send nothing in the middle of a request's body; then its connection is closed."""
NOTE_SECONDS = 60.0
"""The least seconds between two log lines about connections that are refused or closed at a limit."""

UNREAD_SECONDS = 45
"""Seconds that the kernel waits for a client to receive sent bytes, before it drops the connection."""
BACKLOG = 512
ACCEPTED_AT_ONCE = 64
"""The most connections accepted in one step, before those beyond a limit are closed; each needs a file descriptor."""
MOST_DESCRIPTORS = 65_536
"""The most file descriptors requested at start; some systems would allow a thousand million."""


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of one port: connections in total and per client address, and seconds for sending a request.

    Loopback and the addresses of ``proxies`` have no limit per address, because each stands for many clients.
    """

    per_port: int = 8192
    per_address: int = 512
    request_seconds: float = 10.0
    proxies: TrustedProxies = field(default_factory=TrustedProxies)

    def for_descriptors(self, descriptors: int) -> "ConnectionLimits":
        """Return these limits, lowered to fit a process with this number of file descriptors.

        Each of up to two busy ports gets three eighths of the descriptors; a quarter remains for databases, models and
        platforms.
        """
        per_port = min(self.per_port, descriptors * 3 // 8)
        return replace(self, per_port=per_port, per_address=min(self.per_address, per_port // 2))

    def is_limited(self, address: str) -> bool:
        """Return whether the limit per address applies to this address."""
        try:
            local = ip_address(address).is_loopback
        except ValueError:
            return False
        return not local and not self.proxies.is_trusted(address)


class ConnectionLedger:
    """The open connections of one port, and which of them have not sent a complete request.

    At a limit, the connection that was silent longest without a complete request is closed. A client that sends its
    request at once is therefore answered despite many idle connections.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[asyncio.Transport, str] = {}
        self._counts: Counter[str] = Counter()
        self._unfinished: dict[asyncio.Transport, None] = {}
        self._noted_at = -NOTE_SECONDS

    def admit_connection(self, transport: asyncio.Transport, address: str) -> bool:
        """Record a new connection; return false if the port or address is full and no idle connection can be closed."""
        if self._is_full(address):
            # A connection that is closing still counts, because it keeps its descriptor until all data is written.
            for each in [each for each in self._open if each.get_extra_info("socket").fileno() < 0]:
                self._forget_connection(each)
        if self._is_full(address) and not self._make_room(address):
            return False
        self._open[transport] = address
        self._counts[address] += 1
        return True

    def record_request_part(self, transport: asyncio.Transport, *, unfinished: bool) -> None:
        """Record that a client has just sent data; ``unfinished`` says whether its request is still incomplete."""
        self._unfinished.pop(transport, None)
        if unfinished and transport in self._open:
            self._unfinished[transport] = None

    def _is_full(self, address: str) -> bool:
        return len(self._open) >= self.limits.per_port or self._is_address_full(address)

    def _is_address_full(self, address: str) -> bool:
        return self._counts[address] >= self.limits.per_address and self.limits.is_limited(address)

    def _make_room(self, address: str) -> bool:
        """Close the connection silent longest without a request; if ``address`` is full, only one of this address."""
        own = self._is_address_full(address)
        longest = next((each for each in self._unfinished if not own or self._open[each] == address), None)
        now = time.monotonic()
        if now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            closing = "connections without a request are closed to make room"
            log.warning(
                "connections are refused" if longest is None else closing,
                of=address if own and address else "all addresses",
                limit=self.limits.per_address if own and address else len(self._open),
            )
        if longest is None:
            return False
        self._forget_connection(longest)
        longest.abort()
        return True

    def _forget_connection(self, transport: asyncio.Transport) -> None:
        address = self._open.pop(transport)
        self._unfinished.pop(transport, None)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class LimitedHttp(H11Protocol):
    """An HTTP/1.1 connection that a ledger counts; it is closed when its client does not send a request in time."""

    def __init__(self, ledger: ConnectionLedger, **options: Any) -> None:
        super().__init__(**options)
        self._ledger = ledger
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the connection, or close it at once if a limit is reached."""
        super().connection_made(transport)
        if self._ledger.admit_connection(transport, self.client[0] if self.client else ""):
            self._watch_client()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes and set the next deadline."""
        super().data_received(data)
        self._watch_client()

    def on_response_complete(self) -> None:
        """Set the deadline of the next request."""
        super().on_response_complete()
        self._watch_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline and update the ledger."""
        self._set_deadline(None)
        self._ledger.record_request_part(self.transport, unfinished=False)
        super().connection_lost(exc)

    def _watch_client(self) -> None:
        """Set the deadline for the client's next bytes; a WebSocket has none."""
        state = self.conn.their_state if self.transport.get_protocol() is self else None
        unfinished = state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()
        self._ledger.record_request_part(self.transport, unfinished=unfinished)
        if not unfinished:
            self._set_deadline(None)
        elif state is h11.IDLE:
            self._set_deadline(
                self._deadline or self.loop.call_later(self._ledger.limits.request_seconds, self._end_request)
            )
        elif self.conn.our_state is not h11.DONE or self._deadline is None:
            self._set_deadline(self.loop.call_later(BODY_SILENCE_SECONDS, self._end_request))

    def _set_deadline(self, deadline: asyncio.TimerHandle | None) -> None:
        if self._deadline is not None and self._deadline is not deadline:
            self._deadline.cancel()
        self._deadline = deadline

    def _end_request(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # While reading is paused, Maestro is slow, not the client.
            self._watch_client()
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its process, and reports when it starts and stops serving."""

    def __init__(
        self,
        config: uvicorn.Config,
        serving: Callable[[], Awaitable[None]] | None = None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """``serving`` is called when requests are accepted, ``closing`` before the grace period of running requests."""
        super().__init__(config)
        self._serving = serving
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then call ``serving``; if that fails, close the port, because uvicorn would leave it open."""
        await super().startup(sockets)
        for bound in sockets or ():
            # asyncio uses one number for the kernel's queue and the accepts per wake-up, so its length is set here.
            bound.listen(BACKLOG)
        if self._serving is not None:
            try:
                await self._serving()
            except BaseException:
                await self.shutdown(sockets)
                raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call ``closing``, then shut down.

        A connection that was accepted in the moment of the shutdown is not told of it. uvicorn would serve such a
        client for as long as the process runs, although another process has taken the port over.
        """
        self._closing()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: the process decides when to shut down."""
        yield


@dataclass(frozen=True)
class ListenAddress:
    """The address of a server, and the names of its settings for error messages; port 0 means any free port."""

    host: str
    port: int
    section: str
    option: str
    key: str = "port"
    """The settings key of the port in the section."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the system's hard limit; many systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A sandbox may forbid a higher limit; the connection limits then follow the lower limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def uvicorn_config(app: ASGIApp, limits: ConnectionLimits | None = None, **options: Any) -> uvicorn.Config:
    """Return the uvicorn configuration of an application on one port; ``options`` are passed to uvicorn."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    within = (limits or ConnectionLimits()).for_descriptors(descriptors if descriptors > 0 else MOST_DESCRIPTORS)
    return uvicorn.Config(
        app,
        http=partial(LimitedHttp, ConnectionLedger(within)),  # type: ignore[arg-type]  # called like a class
        backlog=ACCEPTED_AT_ONCE,
        lifespan="off",
        log_config=None,
        log_level="warning",  # at debug level uvicorn logs frames, credentials included
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        **options,
    )


async def serve_until_cancelled(server: Server, sockets: list[socket.socket]) -> None:
    """Serve; when cancelled, shut down gracefully before returning."""
    task = asyncio.create_task(server.serve(sockets))
    try:
        await asyncio.shield(task)
    finally:
        server.should_exit = True  # uvicorn closes WebSockets with 1012 ("service restart"), so that clients reconnect.
        with contextlib.suppress(asyncio.CancelledError):
            await task


def listen_on_address(server: ListenAddress) -> list[socket.socket]:
    """Open listening sockets on every address of the host, all with the same port.

    Raises ``PortTaken`` with the port and its setting, ``ConfigurationError`` when the host cannot be bound.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in resolve_address(server):
            chosen = sockets[0].getsockname()[1] if sockets else server.port
            bound = bind_socket(family, (address, chosen), server)
            sockets += [bound] if bound is not None else []
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise ConfigurationError(f"{server.section}.host {server.host!r} has no address on this machine.")
    return sockets


def resolve_address(server: ListenAddress) -> Sequence[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(
            f"{server.section}.host {server.host!r} is not a name or address of this machine."
        ) from error
    return sorted({(family, str(address[0])) for family, _, _, _, address in found})


def bind_socket(family: socket.AddressFamily, address: tuple[str, int], server: ListenAddress) -> socket.socket | None:
    """Return a listening socket; None on a machine without this address or address family, for example IPv6."""
    try:
        bound = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {address[1]} is in use; choose another with {server.section}.{server.key} or {server.option}."
            ) from error
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise ConfigurationError(
            f"{server.section}.host/{server.section}.{server.key}: cannot listen on {address[0]}:{address[1]}: {error}"
        ) from error
    bound.setblocking(False)
    with contextlib.suppress(AttributeError, OSError):  # Only some systems have this option.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    return bound
