"""Whether the process lives, whether everything it needs works, and what it counts."""

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from api.guards import OpenRoute, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.health import METRICS_TYPE, Alive, Readiness

for_everybody = APIRouter(route_class=OpenRoute, tags=["health"])
for_operators = APIRouter(route_class=PasswordRoute, tags=["health"])


@for_everybody.get("/healthz")
async def healthz() -> Alive:
    """Say that the process is alive; nothing else is looked at."""
    return Alive()


@for_operators.get("/readyz", responses={503: {"model": Readiness, "description": "Something does not work yet"}})
async def readyz(parts: Parts, response: Response) -> Readiness:
    """Say whether store, Temporal, worker and connectors do their work; 503 when one does not."""
    readiness = Readiness.of(await parts.health.checks())
    response.status_code = readiness.http_status
    return readiness


@for_operators.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: Parts) -> Response:
    """Return what this process counts and measures, in Prometheus' text format."""
    checks = await parts.health.checks()
    return Response(await asyncio.to_thread(parts.metrics.render, checks), media_type=METRICS_TYPE)
