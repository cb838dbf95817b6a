"""Whether the process lives, and whether everything it needs works."""

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Response

from api.guards import OpenRoute, PasswordRoute
from api.parts import OK
from api.routes.surroundings import Parts
from maestro.domain.values import Value

for_everybody = APIRouter(route_class=OpenRoute, tags=["health"])
for_operators = APIRouter(route_class=PasswordRoute, tags=["health"])


class Alive(Value):
    """The process answers."""

    status: str = OK


class Readiness(Value):
    """Each part with ``"ok"`` or its problem; ``status`` is ``"ok"`` when all are."""

    status: str
    checks: Mapping[str, str]


@for_everybody.get("/healthz")
async def healthz() -> Alive:
    """Say that the process is alive; nothing else is looked at."""
    return Alive()


@for_operators.get("/readyz", responses={503: {"model": Readiness, "description": "Something does not work yet"}})
async def readyz(parts: Parts, response: Response) -> Readiness:
    """Say whether store, Temporal and worker do their work; 503 when one does not."""
    checks = await parts.health.checks()
    ready = all(state == OK for state in checks.values())
    response.status_code = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Readiness(status=OK if ready else "not ready", checks=checks)
