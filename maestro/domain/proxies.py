"""Who really asks, where a proxy passes requests on: what is believed of ``X-Forwarded-For`` and ``-Proto``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
SCHEMES = ("http", "https")


@dataclass(frozen=True)
class Asked:
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

    def asked(self, peer: Asked, forwarded_for: Sequence[str], forwarded_proto: Sequence[str]) -> Asked:
        """Return who asks: the nearest address that is none of our proxies.

        Each proxy adds, at the end, whom it was asked by, so that only what stands behind the last stranger was written
        by a proxy of ours; the scheme is what the proxy next to us says. A proxy that asks for itself, or says nothing
        that makes sense, is who asks.
        """
        if not self.include(peer.address):
            return peer
        scheme = _last(forwarded_proto).lower()
        return Asked(self._nearest(peer.address, _items(forwarded_for)), scheme if scheme in SCHEMES else peer.scheme)

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
