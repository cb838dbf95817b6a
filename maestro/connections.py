"""Limits of the connections to one port, so that clients who send no request cannot keep others out."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from maestro.domain.proxies import TrustedProxies

log = structlog.get_logger(__name__)

BODY_SILENCE_SECONDS = 45.0
"""How long a client may send nothing in the middle of a body."""
NOTE_SECONDS = 60.0
"""How often the log says that connections are closed to make room."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections one port has at once, in all and from one address, and how long a request may take.

    An address of ``proxies``, like one of this machine, stands for many clients and has no limit of its own.
    """

    per_port: int = 8192
    per_address: int = 512
    request_seconds: float = 10.0
    proxies: TrustedProxies = field(default_factory=TrustedProxies)

    def within(self, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process with so many file descriptors.

        A process has up to two busy ports; a quarter of the descriptors is left to databases, models and platforms.
        """
        per_port = min(self.per_port, descriptors * 3 // 8)
        return replace(self, per_port=per_port, per_address=min(self.per_address, per_port // 2))

    def is_limited(self, address: str) -> bool:
        """Say whether the limit per address counts for this one."""
        try:
            local = ip_address(address).is_loopback
        except ValueError:
            return False
        return not local and not self.proxies.include(address)


class ConnectionLedger:
    """The connections of one port: all that are open, and those whose client has not sent a whole request.

    Where a limit is reached, the connection without a request that was silent longest makes room: a client that sends
    its request at once is answered, however many others only connect.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[asyncio.Transport, str] = {}
        self._counts: Counter[str] = Counter()
        self._unfinished: dict[asyncio.Transport, None] = {}
        self._noted_at = -NOTE_SECONDS

    def admit(self, transport: asyncio.Transport, address: str) -> bool:
        """Take a new connection; false when there is no room for it."""
        if self._is_full(address):
            self._forget_closed()
        if self._is_full(address) and not self._make_room(address):
            return False
        self._open[transport] = address
        self._counts[address] += 1
        return True

    def mark(self, transport: asyncio.Transport, *, unfinished: bool) -> None:
        """Take note that a client has just sent a part of a request, or a whole one."""
        self._unfinished.pop(transport, None)
        if unfinished and transport in self._open:
            self._unfinished[transport] = None

    def _is_full(self, address: str) -> bool:
        return len(self._open) >= self.limits.per_port or self._has_its_share(address)

    def _has_its_share(self, address: str) -> bool:
        return self._counts[address] >= self.limits.per_address and self.limits.is_limited(address)

    def _make_room(self, address: str) -> bool:
        """Close the connection without a request that was silent longest; of this address, where that has its share."""
        own = self._has_its_share(address)
        longest = next((each for each in self._unfinished if not own or self._open[each] == address), None)
        self._note(address if own else "", closed=longest is not None)
        if longest is None:
            return False
        self._forget(longest)
        longest.abort()
        return True

    def _forget_closed(self) -> None:
        # The descriptor is looked at, since a connection that is closing keeps it until all was written.
        for transport in [each for each in self._open if each.get_extra_info("socket").fileno() < 0]:
            self._forget(transport)

    def _forget(self, transport: asyncio.Transport) -> None:
        address = self._open.pop(transport)
        self._unfinished.pop(transport, None)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _note(self, address: str, *, closed: bool) -> None:
        now = time.monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at = now
        what = "connections without a request are closed to make room" if closed else "connections are refused"
        log.warning(what, of=address or "all addresses", limit=self.limits.per_address if address else len(self._open))


class LimitedHttp(H11Protocol):
    """HTTP/1.1 on one connection of a ledger, closed when its client does not finish a request in time."""

    def __init__(self, ledger: ConnectionLedger, **options: Any) -> None:
        super().__init__(**options)
        self._ledger = ledger
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or close at once where there is no room."""
        super().connection_made(transport)
        if self._ledger.admit(transport, self.client[0] if self.client else ""):
            self._watch()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._set_deadline(None)
        self._ledger.mark(self.transport, unfinished=False)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set the deadline of what the client has to send next; a connection that became a WebSocket has none."""
        state = self.conn.their_state if self.transport.get_protocol() is self else None
        unfinished = state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()
        self._ledger.mark(self.transport, unfinished=unfinished)
        if not unfinished:
            self._set_deadline(None)
        elif state is h11.IDLE:
            self._set_deadline(self._deadline or self.loop.call_later(self._ledger.limits.request_seconds, self._end))
        elif self.conn.our_state is not h11.DONE or self._deadline is None:
            self._set_deadline(self.loop.call_later(BODY_SILENCE_SECONDS, self._end))

    def _set_deadline(self, deadline: asyncio.TimerHandle | None) -> None:
        if self._deadline is not None and self._deadline is not deadline:
            self._deadline.cancel()
        self._deadline = deadline

    def _end(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # it is not the client who waits
            self._watch()
        else:
            self.transport.abort()
