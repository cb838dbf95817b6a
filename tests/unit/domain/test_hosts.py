"""Which names a port answers to: its own, and no other that somebody's DNS points at this machine."""

import pytest

from maestro.domain.network import KnownHosts


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "maestro.lan:8080"])
def test_own_names_are_known(host: str) -> None:
    assert KnownHosts(["Maestro.lan"]).accepts_hosts([host])


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil@localhost", "192.0.2.1", ""])
def test_others_are_not(host: str) -> None:
    assert not KnownHosts(["maestro.lan"]).accepts_hosts([host])


@pytest.mark.parametrize("headers", [[], ["localhost", "localhost"]])
def test_a_request_has_exactly_one_host(headers: list[str]) -> None:
    assert not KnownHosts(()).accepts_hosts(headers)


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
def test_a_wildcard_bind_knows_every_address_and_no_name(bound: str) -> None:
    hosts = KnownHosts([bound])
    assert hosts.accepts_hosts(["192.0.2.1:9091"])
    assert hosts.accepts_hosts(["[2001:db8::1]:9091"])
    assert not hosts.accepts_hosts(["evil.example"])
