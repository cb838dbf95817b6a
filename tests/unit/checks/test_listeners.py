"""Which process listens on a port."""

import os
import socket

import pytest

from maestro.diagnostics.ports import PROC, find_listener

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="this system has no /proc")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_our_own_port_is_ours(family: socket.AddressFamily, host: str) -> None:
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    with listening:
        found = find_listener(listening.getsockname()[1])
        assert found is not None
        assert found.pid == os.getpid()
        assert f"process {os.getpid()}" in str(found)


def test_a_free_port_and_one_that_is_only_bound_are_nobodys() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert find_listener(bound.getsockname()[1]) is None
