"""Host names, proxies and IP addresses, and the throttle of password and key guesses by network address."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Lock
from urllib.parse import urlsplit

from maestro.domain.errors import MaestroError

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - these addresses are compared, never bound
"""The addresses that a server can bind and a browser cannot open."""
CODEC_PATH = "/api/codec"
"""The prefix of the paths that pages of Temporal's Web UI may call (``api.routes.codec``)."""

DEFAULT_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]
"""The scheme, host and port of a web page."""

SCHEMES = ("http", "https")

_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")

# A public address at which every machine in Azure reaches a service that returns credentials.
_AZURE_WIRE_SERVER = IPv4Address("168.63.129.16")

# Reserved networks that older Python versions call public. Oracle's cloud returns credentials in the first one.
_SPECIAL_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_DOCUMENTATION = IPv6Network("3fff::/20")

_NAME = re.compile(r"(?=.{1,253}$)(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?", re.IGNORECASE)

# URL parsers read a host as IPv4 if its last label is a number in any base (WHATWG URL, section 3.5).
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

FREE_ATTEMPTS = 5
"""The number of wrong guesses from one address that leads to the first lock."""
FIRST_LOCK = timedelta(seconds=10)
LONGEST_LOCK = timedelta(minutes=15)
ANSWER_INTERVAL = timedelta(seconds=0.25)
"""The time between two answers to an address with too many wrong guesses."""
LONGEST_DELAY = timedelta(seconds=3)
"""The longest delay of an answer: clients of the web connector give up after 5 seconds."""
FORGOTTEN_AFTER = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_PER_MINUTE = 100
"""The most wrong guesses of all addresses that are recorded in a minute: each costs a database write."""


def parse_origin(text: str) -> Origin:
    """Return scheme, host and port of an origin; scheme and host are empty for ``null`` and a malformed origin."""
    try:
        parts = urlsplit(text.lower())
        return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def host_name(header: str) -> str:
    """Return the name in a Host header without its port, empty if the header is malformed."""
    if any(character in header for character in "/?#@\\"):
        return ""
    return parse_origin(f"http://{header}")[1]


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse a text as an IP address; return None if the text is not one."""
    try:
        return ip_address(text)
    except ValueError:
        return None


class KnownHosts:
    """The host names that a port accepts in requests (docs/decisions.md: exposed ports).

    This prevents DNS rebinding, where an attacker's host name leads to this machine. A port that is bound to a wildcard
    address also accepts every IP address, because rebinding needs a name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Accept the given names, among them the bound host, and the names of this machine."""
        self._names = LOCAL_NAMES | {name.lower() for name in names}

    def accepts_hosts(self, headers: Sequence[str]) -> bool:
        """Return whether a request with these Host headers is accepted; exactly one is required."""
        if len(headers) != 1:
            return False
        host = host_name(headers[0])
        return host in self._names or (bool(self._names & WILDCARDS) and parse_address(host) is not None)


@dataclass(frozen=True)
class RequestOrigin:
    """The client address of a request, and the scheme (http or https) that the client used."""

    address: str
    scheme: str


class TrustedProxies:
    """The operator's reverse proxies; forwarding headers of other senders are ignored."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Trust these addresses and networks; raises ``ValueError`` for any other text."""
        self._networks = tuple(ip_network(network) for network in networks)

    def find_origin(
        self, peer: RequestOrigin, forwarded_for: Sequence[str], forwarded_proto: Sequence[str]
    ) -> RequestOrigin:
        """Return the origin of a request: the last address in the chain of proxies that is not a trusted proxy.

        Each proxy appends the address of its client to ``X-Forwarded-For``, so the header is read from its end, and
        everything before the first untrusted address is ignored, because the client could have written it. The scheme
        is what the last proxy reports. If a trusted proxy sends no usable header, the proxy itself is the origin.
        """
        if not self.is_trusted(peer.address):
            return peer
        nearest = peer.address
        for text in reversed(_header_items(forwarded_for)):
            address = _forwarded_address(text)
            if address is None:
                break
            nearest = str(address)
            if not self.is_trusted(nearest):
                break
        scheme = next(reversed(_header_items(forwarded_proto)), "").lower()
        return RequestOrigin(nearest, scheme if scheme in SCHEMES else peer.scheme)

    def is_trusted(self, text: str) -> bool:
        """Return whether an address belongs to a trusted proxy."""
        address = _forwarded_address(text) if self._networks else None
        return address is not None and any(address in network for network in self._networks)


def _header_items(headers: Sequence[str]) -> Sequence[str]:
    return [item.strip() for header in headers for item in header.split(",")]


def _forwarded_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address in a forwarding header, with or without port and brackets; None if it is not valid.

    An IPv4 address that is mapped into IPv6 is returned as IPv4.
    """
    bare = text.rpartition(":")[0] if text.count(":") == 1 else text
    if text.startswith("["):
        bare = text[1:].partition("]")[0]
    address = parse_address(bare)
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def is_public(text: str) -> bool:
    """Return whether an IP address belongs to the public internet.

    For an IPv4 address embedded in IPv6 (6to4, NAT64), the IPv4 address decides. Mapped, zoned and Teredo addresses are
    never public.
    """
    address = parse_address(text)
    if address is None or isinstance(address, IPv4Address):
        return address is not None and _is_public_v4(address)
    if address in _NAT64:
        return address.scope_id is None and _is_public_v4(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.sixtofour is not None and not _is_public_v4(address.sixtofour):
        return False
    plain = address.scope_id is None and address.teredo is None and address not in _DOCUMENTATION
    return plain and address in _UNICAST and address.is_global


def is_plain_host(host: str) -> bool:
    """Return whether a host, given without brackets, is a name or an IP address in its usual form.

    Other forms of an address (decimal, octal, hexadecimal, shortened, mapped, with a zone) are rejected: attackers use
    these forms to hide an address.
    """
    address = parse_address(host)
    if isinstance(address, IPv6Address):
        return address.scope_id is None and address.ipv4_mapped is None
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) is None:
        return _NAME.fullmatch(host) is not None
    return str(address) == host


def _is_public_v4(address: IPv4Address) -> bool:
    if address.is_multicast or address.is_reserved or any(address in network for network in _SPECIAL_V4):
        return False
    return address.is_global and address != _AZURE_WIRE_SERVER


class TooManyAttempts(MaestroError):
    """Too many wrong passwords or keys; ``retry_after`` is the wait before the next attempt."""

    public = "Too many attempts."


@dataclass
class _Guesses:
    count: int
    last: datetime
    locked_until: datetime
    next_answer: datetime


class Throttle:
    """A counter of wrong passwords or keys by network address; many threads may use one counter.

    A correct password is never refused: otherwise guesses from the same address, or from many addresses, would lock its
    owner out. But if a correct password were answered at once, an attacker could guess as fast as connections are
    made. So after a few wrong guesses every answer to that address is delayed by up to ``LONGEST_DELAY``, also for the
    correct password.
    """

    def __init__(self, clock: Callable[[], datetime], noun: str) -> None:
        """Start without guesses; ``noun`` is the plural noun for messages, such as "passwords"."""
        self._clock = clock
        self._noun = noun
        self._lock = Lock()
        self._guesses: dict[str, _Guesses] = {}
        self._recent: deque[datetime] = deque()

    def answer_delay(self, address: str) -> timedelta:
        """Return the delay before the next answer to this address, whether its guess is right or wrong."""
        now = self._clock()
        with self._lock:
            guesses = self._recent_guesses(_guesser_network(address), now)
            if guesses is None or guesses.count < FREE_ATTEMPTS:
                return timedelta()
            guesses.next_answer = min(max(guesses.next_answer, now) + ANSWER_INTERVAL, now + LONGEST_DELAY)
            return guesses.next_answer - now

    def record_failure(self, address: str) -> None:
        """Count a wrong guess; raises ``TooManyAttempts`` if the guess should not be recorded in the audit log.

        From the fifth wrong guess of an address on, each wrong guess locks the address, for twice as long each time.
        Guesses above the limit for all addresses together still count for their addresses: otherwise answers to these
        addresses would never be delayed.
        """
        now, network = self._clock(), _guesser_network(address)
        with self._lock:
            guesses = self._recent_guesses(network, now)
            if guesses is not None and guesses.locked_until > now:
                raise self._too_many_attempts(guesses.locked_until - now)
            count = guesses.count + 1 if guesses else 1
            self._guesses.pop(network, None)
            next_answer = guesses.next_answer if guesses else now
            doublings = min(count - FREE_ATTEMPTS, 32)  # 2**32 is beyond LONGEST_LOCK and does not overflow
            lock: timedelta = min(FIRST_LOCK * 2**doublings, LONGEST_LOCK) if doublings >= 0 else timedelta()
            self._guesses[network] = _Guesses(count, now, now + lock, next_answer)
            if len(self._guesses) > 10_000:
                # The dictionary is ordered by the last guess, so its first address has the oldest guess.
                del self._guesses[next(iter(self._guesses))]
            while self._recent and now - self._recent[0] >= MINUTE:
                self._recent.popleft()
            if len(self._recent) >= MOST_PER_MINUTE:
                raise self._too_many_attempts(self._recent[0] + MINUTE - now)
            self._recent.append(now)

    def _recent_guesses(self, network: str, now: datetime) -> _Guesses | None:
        guesses = self._guesses.get(network)
        return guesses if guesses and now - guesses.last < FORGOTTEN_AFTER else None

    def _too_many_attempts(self, wait: timedelta) -> TooManyAttempts:
        error = TooManyAttempts(f"Too many wrong {self._noun}; wait before the next attempt.")
        error.retry_after = wait
        return error


def _guesser_network(address: str) -> str:
    """Return the network that one attacker controls: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = parse_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return address
