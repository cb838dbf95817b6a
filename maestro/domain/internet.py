"""Which hosts and addresses a program may ask on behalf of somebody it need not trust."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
