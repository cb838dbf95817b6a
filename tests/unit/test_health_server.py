"""The health port of workers and connectors: three answers, for known hosts only, on a port of its own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest

from maestro.domain.errors import PortTaken
from maestro.domain.health import METRICS_TYPE, ProcessHealth
from maestro.observability.health import HealthServer, health_address
from maestro.settings import Settings
from tests.support.instance import until
from tests.support.ports import free_port

PROBLEM = "Temporal is not connected yet"


class Condition:
    """How a process is, and whether somebody asked."""

    def __init__(self, **checks: str) -> None:
        self._checks = checks
        self.asked = 0

    async def checks(self) -> Mapping[str, str]:
        self.asked += 1
        return self._checks


class FixedMetrics:
    """Says how many checks it was told."""

    def render(self, checks: Mapping[str, str]) -> bytes:
        return f"# HELP told Checks.\ntold {len(checks)}\n".encode()


def server(condition: Condition, port: int = 9091, *hosts: str) -> HealthServer:
    """Return a server for a worker."""
    settings = Settings.model_validate({"health": {"workerPort": port}})
    return HealthServer(health_address(settings, "workerPort"), hosts, ProcessHealth(condition, FixedMetrics()))


@asynccontextmanager
async def asking(condition: Condition, host: str = "localhost:9091") -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the application of a worker that also answers as ``worker``."""
    transport = httpx.ASGITransport(server(condition, 9091, "worker").create_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9091", headers={"Host": host}) as http:
        yield http


async def test_a_living_process_says_so_whatever_is_broken_and_looks_at_nothing() -> None:
    condition = Condition(store="the disk is full")
    async with asking(condition) as http:
        answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert not condition.asked


async def test_a_process_is_ready_when_every_part_is() -> None:
    async with asking(Condition(store="ok", temporal="ok", worker="ok")) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "checks": {"store": "ok", "temporal": "ok", "worker": "ok"}}
    assert answer.headers["cache-control"] == "no-store"


async def test_a_process_that_is_not_ready_names_the_part_and_its_problem() -> None:
    async with asking(Condition(store="ok", temporal=PROBLEM)) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "checks": {"store": "ok", "temporal": PROBLEM}}


async def test_metrics_are_told_in_the_text_format_with_the_checks() -> None:
    async with asking(Condition(store="ok", temporal=PROBLEM)) as http:
        answer = await http.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, METRICS_TYPE)
    assert "told 2" in answer.text


@pytest.mark.parametrize("host", ["localhost:9091", "127.0.0.1:9091", "[::1]:9091", "worker:9091"])
async def test_known_hosts_are_answered(host: str) -> None:
    async with asking(Condition(), host) as http:
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.0.2.1", ""])
async def test_a_foreign_host_is_told_what_to_set(host: str) -> None:
    async with asking(Condition(), host) as http:
        for path in ("/healthz", "/readyz", "/metrics"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (421, "UnknownHost")
            assert "webui.allowedHosts" in answer.json()["message"]


async def test_everything_else_is_refused_in_json() -> None:
    async with asking(Condition()) as http:
        nothing, changing = await http.get("/api/jobs"), await http.post("/metrics")
    assert (nothing.status_code, nothing.json()["error"]) == (404, "NotFound")
    assert "/readyz" in nothing.json()["message"]
    assert (changing.status_code, changing.json()["error"]) == (405, "MethodNotAllowed")


async def test_it_serves_on_its_port_until_it_is_told_to_stop() -> None:
    port = free_port()
    serving = asyncio.create_task(server(Condition(store="ok"), port).run())
    await until(lambda: connects(port), what="the port")
    async with httpx.AsyncClient(base_url=f"http://localhost:{port}", trust_env=False) as http:
        assert (await http.get("/readyz")).status_code == 200
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    assert not connects(port)


async def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} is in use.*health.workerPort or --health-port"):
            await server(Condition(), port).run()


async def test_connectors_have_a_port_of_their_own() -> None:
    settings = Settings.model_validate({"health": {"connectPort": 9099}})
    address = health_address(settings, "connectPort")
    assert (address.port, address.key) == (9099, "connectPort")


def connects(port: int) -> bool:
    """Say whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
