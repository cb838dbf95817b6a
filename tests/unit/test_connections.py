"""Clients that only connect keep nobody out, and cost no more descriptors than a port may have."""

import asyncio
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from websockets.sync.client import connect

from maestro.domain.network import TrustedProxies
from maestro.serving import (
    ConnectionLimits,
    ListenAddress,
    Server,
    listen_on_address,
    serve_until_cancelled,
    uvicorn_config,
)
from tests.support.limited_server import REQUEST_SECONDS

FILES = 1024
ATTACKERS = 1100
UNFINISHED = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@contextmanager
def _server() -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "tests.support.limited_server", str(FILES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port, files = map(int, server.stdout.readline().split())
            yield port, files
        finally:
            server.kill()


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * ATTACKERS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _attack(port: int, stack: ExitStack) -> list[socket.socket]:
    sockets = []
    for _ in range(ATTACKERS):
        sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
        sockets[-1].sendall(UNFINISHED)
    return sockets


def _is_closed(attacker: socket.socket) -> bool:
    attacker.settimeout(10)
    try:
        return attacker.recv(1) == b""
    except ConnectionResetError:
        return True


def _read_until(client: socket.socket, ending: bytes) -> None:
    read = b""
    while ending not in read:
        read += client.recv(4096) or pytest.fail(f"closed after {read!r}")


def test_a_proper_request_is_answered_beside_1100_connections_with_unfinished_headers() -> None:
    with _server() as (port, files), ExitStack() as stack:
        assert files == FILES  # the soft limit was half of it
        address = f"http://127.0.0.1:{port}/"
        with connect(f"ws://127.0.0.1:{port}/socket") as chat, httpx.Client(timeout=5) as client:
            attackers = _attack(port, stack)
            assert client.get(address).text == "hello 0"
            assert httpx.get(address, timeout=5).text == "hello 0"

            before = time.monotonic()
            assert all(_is_closed(attacker) for attacker in attackers)
            assert time.monotonic() - before < 5 + REQUEST_SECONDS

            chat.send("still here")
            assert chat.recv(timeout=5) == "still here"


def test_a_connection_goes_on_as_long_as_its_client_finishes_its_requests() -> None:
    with _server() as (port, _), socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for _ in range(2):
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            time.sleep(REQUEST_SECONDS / 2)
            client.sendall(b"\r\n")
            _read_until(client, b"hello 0")
        # A body may take longer than the head.
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1")
        time.sleep(REQUEST_SECONDS * 1.5)
        client.sendall(b"2")
        _read_until(client, b"hello 2")

        client.sendall(UNFINISHED)
        assert _is_closed(client)


async def test_a_connection_that_is_accepted_in_the_moment_of_the_shutdown_is_closed() -> None:
    """Its client would otherwise send every later request to a server that has ended, and be told 404."""
    loop = asyncio.get_running_loop()
    client, accepted = socket.socketpair()
    options = uvicorn_config(Starlette())
    opening: list[asyncio.Task[object]] = []

    def accept() -> None:
        protocol: Callable[..., Any] = options.http_protocol_class
        begin = partial(protocol, config=options, server_state=server.server_state, app_state={})
        opening.append(loop.create_task(loop.connect_accepted_socket(begin, accepted)))

    server = Server(options, closing=accept)
    serving = asyncio.create_task(
        serve_until_cancelled(server, listen_on_address(ListenAddress("127.0.0.1", 0, "test", "--port")))
    )
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    serving.cancel()
    await asyncio.wait([serving])

    assert len(opening) == 1
    answer = b""
    with client, suppress(ConnectionError):
        client.setblocking(False)
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await loop.sock_recv(client, 100)
    assert answer == b""


def test_limits_leave_descriptors_to_the_rest_of_the_process() -> None:
    limits = ConnectionLimits()

    assert (limits.for_descriptors(1024).per_port, limits.for_descriptors(1024).per_address) == (384, 192)
    assert (limits.for_descriptors(65_536).per_port, limits.for_descriptors(65_536).per_address) == (8192, 512)


def test_an_address_that_stands_for_many_clients_has_no_limit_of_its_own() -> None:
    limits = ConnectionLimits(proxies=TrustedProxies(["10.0.0.0/8"]))

    assert [limits.is_limited(address) for address in ("203.0.113.7", "2001:db8::1")] == [True, True]
    assert [limits.is_limited(address) for address in ("127.0.0.1", "::1", "10.1.2.3", "")] == [False] * 4
