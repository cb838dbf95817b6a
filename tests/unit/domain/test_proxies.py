"""Who really asks: only what proxies of ours say counts."""

import pytest

from maestro.domain.network import RequestOrigin, TrustedProxies

PROXIES = TrustedProxies(["10.0.0.5", "192.168.0.0/16", "2001:db8::/32"])


def asked(peer: str, forwarded: list[str], proto: list[str] | None = None) -> RequestOrigin:
    """Ask over http."""
    return PROXIES.find_origin(RequestOrigin(peer, "http"), forwarded, proto or [])


@pytest.mark.parametrize("peer", ["203.0.113.9", "10.0.0.6", "127.0.0.1", "2001:db9::1", "", "testclient"])
def test_a_stranger_is_not_believed(peer: str) -> None:
    assert asked(peer, ["198.51.100.7"], ["https"]) == RequestOrigin(peer, "http")
    assert TrustedProxies().find_origin(RequestOrigin(peer, "http"), ["198.51.100.7"], ["https"]) == RequestOrigin(
        peer, "http"
    )


@pytest.mark.parametrize("peer", ["10.0.0.5", "192.168.7.7", "2001:db8::9", "::ffff:10.0.0.5"])
def test_a_proxy_of_ours_is_believed(peer: str) -> None:
    assert asked(peer, ["198.51.100.7"], ["https"]) == RequestOrigin("198.51.100.7", "https")


def test_what_a_client_wrote_itself_stands_before_what_our_proxy_added() -> None:
    assert asked("10.0.0.5", ["127.0.0.1, 10.0.0.5, 198.51.100.7"]).address == "198.51.100.7"
    assert asked("10.0.0.5", ["127.0.0.1", "198.51.100.7"]).address == "198.51.100.7", "several headers are one"


def test_our_proxies_may_stand_in_a_row() -> None:
    assert asked("10.0.0.5", ["203.0.113.9, 198.51.100.7, 192.168.0.2, 2001:db8::1"]).address == "198.51.100.7"
    assert asked("10.0.0.5", ["192.168.0.3, 192.168.0.2"]).address == "192.168.0.3", "one of ours asks for itself"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("198.51.100.7:443", "198.51.100.7"),
        ("[2001:db9::7]:443", "2001:db9::7"),
        ("2001:DB9::7", "2001:db9::7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("unknown", "10.0.0.5"),
        ("", "10.0.0.5"),
        ("203.0.113.9, not an address", "10.0.0.5"),
        ("203.0.113.9, [2001:db9::7", "2001:db9::7"),
    ],
)
def test_an_address_is_read_as_proxies_write_it(written: str, read: str) -> None:
    assert asked("10.0.0.5", [written]).address == read


@pytest.mark.parametrize(
    ("said", "scheme"),
    [(["https"], "https"), (["HTTPS"], "https"), (["http, https"], "https"), (["ftp"], "http"), ([], "http")],
)
def test_the_scheme_is_what_the_nearest_proxy_says(said: list[str], scheme: str) -> None:
    assert asked("10.0.0.5", [], said).scheme == scheme
    assert PROXIES.find_origin(RequestOrigin("10.0.0.5", "https"), [], ["http"]).scheme == "http"
