"""The small port on which ``maestro worker`` and ``maestro connect`` say how they are."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from maestro.bootstrap.live import LiveSettings
from maestro.connections import ConnectionLimits
from maestro.domain.health import METRICS_TYPE, Alive, Readiness, Vitals
from maestro.domain.hosts import KnownHosts
from maestro.domain.values import Value
from maestro.metrics.process import ProcessMetrics
from maestro.serving import Place, Server, config, listen, serve_until_cancelled
from maestro.settings import Settings
from maestro.store.store import Store


def worker_place(settings: Settings) -> Place:
    """Return where ``maestro worker`` says how it is."""
    return _place(settings, settings.health.worker_port, "workerPort")


def connect_place(settings: Settings) -> Place:
    """Return where ``maestro connect`` says how it is."""
    return _place(settings, settings.health.connect_port, "connectPort")


def process_metrics(store: Store, live: LiveSettings, command: str) -> ProcessMetrics:
    """Return what a process counts, from now on; this reads the store."""
    return ProcessMetrics(store, command, lambda: live.current().jobs.max_pending)


class HealthServer:
    """Answers ``/healthz``, ``/readyz`` and ``/metrics``, without a password and to known hosts only."""

    def __init__(
        self, place: Place, allowed_hosts: Iterable[str], vitals: Vitals, limits: ConnectionLimits | None = None
    ) -> None:
        """``allowed_hosts`` are names by which collectors may reach the port besides its host and loopback."""
        self._place = place
        self._hosts = KnownHosts.of((place.host, *allowed_hosts))
        self._vitals = vitals
        self._limits = limits

    async def run(self) -> None:
        """Serve until cancelled; raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be had."""
        sockets = await asyncio.to_thread(listen, self._place)
        await serve_until_cancelled(Server(config(self.app(), self._limits)), sockets)

    def app(self) -> Starlette:
        """Return the application; it holds no sockets and starts nothing by itself."""
        routes = [Route("/healthz", _alive), Route("/readyz", self._ready), Route("/metrics", self._measured)]
        return Starlette(
            routes=routes,
            middleware=[Middleware(_KnownHostsOnly, hosts=self._hosts)],
            exception_handlers={HTTPException: _nothing_else},
        )

    async def _ready(self, _: Request) -> Response:
        """Say whether everything that the process needs works; 503 when something does not."""
        readiness = Readiness.of(await self._vitals.health.checks())
        return _json(readiness, readiness.http_status)

    async def _measured(self, _: Request) -> Response:
        """Return what the process counts and measures."""
        checks = await self._vitals.health.checks()
        return Response(await asyncio.to_thread(self._vitals.metrics.render, checks), media_type=METRICS_TYPE)


class _KnownHostsOnly:
    """ASGI middleware: a web page must not reach a loopback service by DNS rebinding.

    See docs/decisions.md: exposed ports.
    """

    def __init__(self, app: ASGIApp, hosts: KnownHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        known = scope["type"] != "http" or self._hosts.admit(Headers(scope=scope).getlist("host"))
        refusal = _error(
            HTTPStatus.MISDIRECTED_REQUEST,
            "UnknownHost",
            "I do not answer under this host name. Add it to webui.allowedHosts, or use http://localhost.",
        )
        await (self._app if known else refusal)(scope, receive, send)


class _Problem(Value):
    """What a failed request answers, as everywhere in Maestro."""

    error: str
    message: str


async def _alive(_: Request) -> Response:
    """Say that the process is alive; nothing else is looked at."""
    return _json(Alive(), HTTPStatus.OK)


async def _nothing_else(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    name = "".join(filter(str.isalpha, status.phrase.title()))
    message = f"There is nothing for {request.method} at {request.url.path}; GET /healthz, /readyz or /metrics."
    return _error(status, name, message)


def _error(status: HTTPStatus, name: str, message: str) -> Response:
    return _json(_Problem(error=name, message=message), status)


def _json(body: Value, status: HTTPStatus) -> Response:
    return JSONResponse(body.model_dump(), status, headers={"Cache-Control": "no-store"})


def _place(settings: Settings, port: int, key: str) -> Place:
    return Place(settings.health.host, port, section="health", option="--health-port", key=key)
