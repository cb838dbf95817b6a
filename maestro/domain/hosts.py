"""Host names and origins as browsers send them: what a Host or Origin header names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
DEFAULT_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]
"""Scheme, host and port."""


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
