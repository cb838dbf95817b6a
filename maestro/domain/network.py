"""Host names, proxies and addresses: what a port answers to, and what may be fetched."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
DEFAULT_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]
"""Scheme, host and port."""

Network = IPv4Network | IPv6Network
SCHEMES = ("http", "https")

_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_IPV4_BITS = 0xFFFF_FFFF

# Public by its number, but inside an Azure machine it is the platform's own service, which hands out credentials.
_AZURE_WIRE_SERVER = IPv4Address("168.63.129.16")

# Special by IANA's registry, but only the newest Pythons know. In the first, Oracle's cloud hands out credentials.
_SPECIAL_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_DOCUMENTATION = IPv6Network("3fff::/20")

_NAME = re.compile(r"(?=.{1,253}$)(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?", re.IGNORECASE)

# What URL parsers take for an IPv4 address: the last label is a number, in whatever base (WHATWG URL, section 3.5).
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


def parse_origin(text: str) -> Origin:
    """Return the parts of an origin; empty ones for ``null`` and everything malformed."""
    try:
        parts = urlsplit(text.lower())
        return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def host_name(header: str) -> str:
    """Return the name in a Host header without its port; empty when it is malformed."""
    if any(character in header for character in "/?#@\\"):
        return ""
    return parse_origin(f"http://{header}")[1]


def is_address(host: str) -> bool:
    """Say whether a host is a plain address, which no DNS server can point elsewhere."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class KnownHosts:
    """The names under which a port answers (docs/decisions.md: exposed ports).

    A name that an attacker's DNS points at this machine (DNS rebinding) is not among them. Where one of them is a
    wildcard address, plain addresses pass too: rebinding needs a name.
    """

    names: frozenset[str]
    any_address: bool

    @classmethod
    def of(cls, names: Iterable[str]) -> "KnownHosts":
        """Return the given names, the bound host among them, and those of this machine."""
        given = frozenset(name.lower() for name in names)
        return cls(LOCAL_NAMES | given, bool(given & WILDCARDS))

    def admit(self, headers: Sequence[str]) -> bool:
        """Say whether a request with these Host headers may pass; it has to have exactly one."""
        if len(headers) != 1:
            return False
        host = host_name(headers[0])
        return host in self.names or (self.any_address and is_address(host))


@dataclass(frozen=True)
class RequestOrigin:
    """From which address a request comes, and under which scheme its sender sees us."""

    address: str
    scheme: str


@dataclass(frozen=True)
class TrustedProxies:
    """The proxies that are ours; what anybody else says of itself counts for nothing."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> "TrustedProxies":
        """Return those of these addresses and networks; raises ``ValueError`` for anything else."""
        return cls(tuple(ip_network(name) for name in names))

    def origin_of(
        self, peer: RequestOrigin, forwarded_for: Sequence[str], forwarded_proto: Sequence[str]
    ) -> RequestOrigin:
        """Return who asks: the nearest address that is none of our proxies.

        Each proxy adds, at the end, whom it was asked by, so that only what stands behind the last stranger was written
        by a proxy of ours; the scheme is what the proxy next to us says. A proxy that asks for itself, or says nothing
        that makes sense, is who asks.
        """
        if not self.include(peer.address):
            return peer
        scheme = _last(forwarded_proto).lower()
        return RequestOrigin(
            self._nearest(peer.address, _items(forwarded_for)), scheme if scheme in SCHEMES else peer.scheme
        )

    def _nearest(self, peer: str, chain: Sequence[str]) -> str:
        nearest = peer
        for text in reversed(chain):
            address = _address(text)
            if address is None:
                break
            nearest = str(address)
            if not self.include(nearest):
                break
        return nearest

    def include(self, text: str) -> bool:
        """Say whether an address is one of these proxies."""
        address = _address(text) if self.networks else None
        return address is not None and any(address in network for network in self.networks)


def _items(headers: Sequence[str]) -> Sequence[str]:
    return [item.strip() for header in headers for item in header.split(",")]


def _last(headers: Sequence[str]) -> str:
    items = _items(headers)
    return items[-1] if items else ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address as proxies write it: with a port perhaps, in brackets or mapped into IPv6."""
    bare = text.rpartition(":")[0] if text.count(":") == 1 else text
    if text.startswith("["):
        bare = text[1:].partition("]")[0]
    try:
        found = ip_address(bare)
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


def is_public(text: str) -> bool:
    """Say whether an address belongs to the public internet.

    An IPv4 address inside an IPv6 one (6to4, NAT64) counts as what it leads to; mapped, zoned and Teredo ones never do.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _is_public_v4(address)
    if address in _NAT64:
        return address.scope_id is None and _is_public_v4(IPv4Address(int(address) & _IPV4_BITS))
    if address.sixtofour is not None and not _is_public_v4(address.sixtofour):
        return False
    plain = address.scope_id is None and address.teredo is None and address not in _DOCUMENTATION
    return plain and address in _UNICAST and address.is_global


def is_plain_host(host: str) -> bool:
    """Say whether a host, without brackets, is a name or an address as people write it.

    Other spellings of an address (decimal, octal, hexadecimal, shortened, mapped, with a zone) serve only to hide it.
    """
    if ":" in host:
        return _is_plain_v6(host)
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) is None:
        return _NAME.fullmatch(host) is not None
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


def _is_public_v4(address: IPv4Address) -> bool:
    if address.is_multicast or address.is_reserved or any(address in network for network in _SPECIAL_V4):
        return False
    return address.is_global and address != _AZURE_WIRE_SERVER


def _is_plain_v6(host: str) -> bool:
    try:
        address = IPv6Address(host)
    except ValueError:
        return False
    return address.scope_id is None and address.ipv4_mapped is None
