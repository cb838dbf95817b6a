"""Readiness of a process, and the small port on which ``maestro worker`` and ``maestro connect`` report it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from maestro.domain.health import METRICS_TYPE, OK, Liveness, ProcessHealth, Readiness
from maestro.domain.network import KnownHosts
from maestro.metrics.process import ProcessMetrics
from maestro.serving import (
    ConnectionLimits,
    ListenAddress,
    Server,
    listen_on_address,
    serve_until_cancelled,
    uvicorn_config,
)
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from temporal.engine import Engine

STORE_SECONDS = 2.0
"""Seconds in which the store must answer; a write that waits for the lock of the database takes up to 30 s."""
NO_ANSWER = (
    f"the store has not answered for {STORE_SECONDS:g} s: another program holds the lock of the database, or the disk "
    "hangs. Check that disk, and which other programs use the database."
)


@dataclass(slots=True)
class EngineHealth:
    """The health checks of a process: store, Temporal, workers (of this process or others) and connectors.

    ``worker_problem`` and ``connector_problem`` return a problem, or an empty text.
    """

    store: Store
    engine: Engine
    worker_problem: Callable[[], Awaitable[str]]
    connector_problem: Callable[[], str] | None = None
    _store_check: asyncio.Task[str | None] | None = field(default=None, init=False)

    async def checks(self) -> Mapping[str, str]:
        """Return "ok" or the problem for the store, Temporal, the worker and, if there are any, the connectors."""
        store, temporal = await asyncio.gather(self.store_problem(), self.engine.find_outage())
        checks = {
            "store": store or OK,
            "temporal": temporal or OK,
            "worker": ("unknown while Temporal is not reachable" if temporal else await self.worker_problem()) or OK,
        }
        if self.connector_problem is not None:
            checks["connectors"] = self.connector_problem() or OK
        return checks

    async def store_problem(self) -> str | None:
        """Return why the store cannot be used, or None; a check that still runs is awaited again, not repeated."""
        if self._store_check is None or self._store_check.done():
            self._store_check = asyncio.create_task(asyncio.to_thread(self.store.find_problem))
        check = self._store_check
        await asyncio.wait([check], timeout=STORE_SECONDS)
        if check.done():
            return check.result()
        return self.store.write_history.problem if self.store.write_history.is_failing else NO_ANSWER


STARTING = "this process does not poll its queues yet"
STANDING_BY = "this process polls no queue: it is starting, or waits until another process that runs its connector ends"


def build_worker_check(engine: Engine, idle: str = STARTING) -> Callable[[], Awaitable[str]]:
    """Return a check of this process's workers; ``idle`` is the problem to report while no worker polls."""

    async def find_problem() -> str:
        return "" if engine.is_polling else idle

    return find_problem


def remote_worker_check(engine: Engine, queue: str, tools_queue: str = "") -> Callable[[], Awaitable[str]]:
    """Return a check that asks Temporal whether workers poll the queue of workflows and, if it has a name, of tools."""

    async def find_problem() -> str:
        if not await engine.is_polled(queue):
            return f"no worker polls the queue {queue}: start `maestro worker`"
        if tools_queue and not await engine.is_polled(tools_queue, workflows=False):
            return (
                f"no worker polls the queue {tools_queue}, so tool calls wait: start `maestro worker` with tools.here "
                "on the host that has the folders of conversations"
            )
        return ""

    return find_problem


def health_address(settings: Settings, key: Literal["workerPort", "connectPort"]) -> ListenAddress:
    """Return the address of the health port of ``maestro worker`` or ``maestro connect``; ``key`` names the port."""
    health = settings.health
    port = health.worker_port if key == "workerPort" else health.connect_port
    return ListenAddress(health.host, port, section="health", option="--health-port", key=key)


def process_metrics(store: Store, live: LiveSettings, command: str, engine: Engine) -> ProcessMetrics:
    """Return the metrics of a process; counting starts now, and this call reads the store."""
    metrics = ProcessMetrics(store, command, lambda: live.current().jobs.max_pending)
    metrics.list_slots = engine.slots.list_slots
    return metrics


@dataclass(frozen=True)
class HealthServer:
    """The server of ``/healthz``, ``/readyz`` and ``/metrics``: without a password, and only for known host names.

    ``allowed_hosts`` are further host names by which metrics collectors may reach the port.
    """

    address: ListenAddress
    allowed_hosts: Collection[str]
    vitals: ProcessHealth
    limits: ConnectionLimits | None = None

    async def run(self) -> None:
        """Serve until cancelled; raises ``PortTaken`` or ``ConfigurationError`` when the port is not available."""
        sockets = await asyncio.to_thread(listen_on_address, self.address)
        await serve_until_cancelled(Server(uvicorn_config(self.create_app(), self.limits)), sockets)

    def create_app(self) -> Starlette:
        """Return the ASGI application; this opens no socket and starts no task."""
        routes = [Route("/healthz", _healthz), Route("/readyz", self._readyz), Route("/metrics", self._metrics)]
        return Starlette(
            routes=routes,
            middleware=[Middleware(_KnownHostsOnly, hosts=KnownHosts((self.address.host, *self.allowed_hosts)))],
            exception_handlers={HTTPException: _report_unknown_path},
        )

    async def _readyz(self, _: Request) -> Response:
        """Report the checks of the process's dependencies; status 503 when one of them failed."""
        readiness = Readiness.from_checks(await self.vitals.health.checks())
        return _json_response(readiness.model_dump(), readiness.http_status)

    async def _metrics(self, _: Request) -> Response:
        checks = await self.vitals.health.checks()
        return Response(await asyncio.to_thread(self.vitals.metrics.render, checks), media_type=METRICS_TYPE)


@dataclass(frozen=True)
class _KnownHostsOnly:
    """ASGI middleware that refuses unknown host names, so that a web page cannot reach the port by DNS rebinding.

    See docs/decisions.md: exposed ports.
    """

    app: ASGIApp
    hosts: KnownHosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.hosts.accepts_hosts(Headers(scope=scope).getlist("host")):
            await self.app(scope, receive, send)
            return
        message = "I do not answer under this host name. Add it to webui.allowedHosts, or use http://localhost."
        refusal = _json_response({"error": "UnknownHost", "message": message}, HTTPStatus.MISDIRECTED_REQUEST)
        await refusal(scope, receive, send)


async def _healthz(_: Request) -> Response:
    return _json_response(Liveness().model_dump(), HTTPStatus.OK)


async def _report_unknown_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    name = "".join(filter(str.isalpha, status.phrase.title()))
    message = f"There is nothing for {request.method} at {request.url.path}; GET /healthz, /readyz or /metrics."
    return _json_response({"error": name, "message": message}, status)


def _json_response(body: Mapping[str, object], status: HTTPStatus) -> Response:
    return JSONResponse(body, status, headers={"Cache-Control": "no-store"})
