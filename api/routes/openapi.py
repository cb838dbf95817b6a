"""The description of the API for programs."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request

from api.guards import SCHEMES, PasswordRoute

router = APIRouter(route_class=PasswordRoute, tags=["description"])


@router.get("/api/openapi.json")
async def openapi(request: Request) -> Mapping[str, Any]:
    """Return this description in OpenAPI 3.1."""
    described = request.app.openapi()
    return {**described, "components": {**described.get("components", {}), "securitySchemes": SCHEMES}}
