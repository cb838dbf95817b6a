"""Host names, proxies and IP addresses: the hosts that a port accepts, and the addresses that Maestro may fetch."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - only compared, no socket is bound
"""The addresses that a server can bind and a browser cannot open."""
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


def parse_origin(text: str) -> Origin:
    """Return scheme, host and port of an origin; scheme and host are empty for ``null`` and malformed ones."""
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

    This prevents DNS rebinding, where an attacker's host name leads to this machine. If the port is bound to a wildcard
    address, IP addresses are accepted too, because rebinding needs a name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Accept the given names, among them the bound host, and the names of this machine."""
        self._names = LOCAL_NAMES | {name.lower() for name in names}

    def admit(self, headers: Sequence[str]) -> bool:
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

    def origin_of(
        self, peer: RequestOrigin, forwarded_for: Sequence[str], forwarded_proto: Sequence[str]
    ) -> RequestOrigin:
        """Return the origin of a request: the last address in the chain of proxies that is not a trusted proxy.

        Each proxy appends the address of its client to ``X-Forwarded-For``, so the header is read from its end, and
        everything before the first untrusted address is ignored, because the client could have written it. The scheme
        is what the last proxy reports. If a trusted proxy sends no usable header, the proxy itself is the origin.
        """
        if not self.include(peer.address):
            return peer
        nearest = peer.address
        for text in reversed(_header_items(forwarded_for)):
            address = _forwarded_address(text)
            if address is None:
                break
            nearest = str(address)
            if not self.include(nearest):
                break
        scheme = next(reversed(_header_items(forwarded_proto)), "").lower()
        return RequestOrigin(nearest, scheme if scheme in SCHEMES else peer.scheme)

    def include(self, text: str) -> bool:
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
