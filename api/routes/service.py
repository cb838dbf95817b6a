"""REST routes of health, metrics, settings, API description, tickets (docs/decisions.md: web identity) and chat."""

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request
from fastapi.responses import PlainTextResponse
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter
from starlette.responses import Response

from api.errors import InvalidRequest
from api.guards import OPERATOR, SCHEMES, OpenRoute, Parts, PasswordRoute, require_chat
from connectors.base import IdentityRole
from maestro.domain.agent_chat import HUMAN, Post
from maestro.domain.health import METRICS_TYPE, Liveness, Readiness
from maestro.domain.settings.live import SettingsPage
from maestro.domain.values import Value

health = APIRouter(route_class=OpenRoute, tags=["health"])
metrics_router = APIRouter(route_class=PasswordRoute, tags=["health"])

description = APIRouter(route_class=PasswordRoute, tags=["description"])

VERSION = "version"

settings = APIRouter(route_class=PasswordRoute, tags=["settings"], prefix="/api/settings")

SettingValues = Annotated[
    dict[str, JsonValue],
    Body(
        examples=[{"chat.limits.maxMessageChars": 8192}],
        description="new values by key; null resets a key. With `version`, the version of the settings that the caller "
        "read, the response is 409 if the settings have changed since then.",
    ),
]

LIFETIME = timedelta(seconds=60)

tickets = APIRouter(route_class=PasswordRoute, tags=["web"])

_POSTS = TypeAdapter(Sequence[Post])

chat = APIRouter(route_class=PasswordRoute, tags=["chat"], prefix="/api/chat")


@health.get("/healthz")
async def healthz() -> Liveness:
    """Report that the process is alive, without checking anything else."""
    return Liveness()


@metrics_router.get("/readyz", responses={503: {"model": Readiness, "description": "A part of Maestro does not work"}})
async def readyz(parts: Parts, response: Response) -> Readiness:
    """Report whether store, Temporal, worker and connectors work; 503 if one of them does not."""
    readiness = Readiness.from_checks(await parts.health.checks())
    response.status_code = readiness.http_status
    return readiness


@metrics_router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: Parts) -> Response:
    """Return the metrics of this process in Prometheus' text format."""
    checks = await parts.health.checks()
    return Response(await asyncio.to_thread(parts.metrics.render, checks), media_type=METRICS_TYPE)


@description.get("/api/openapi.json")
async def openapi(request: Request) -> Mapping[str, Any]:
    """Return the OpenAPI 3.1 document of this API."""
    described = request.app.openapi()
    return {**described, "components": {**described.get("components", {}), "securitySchemes": SCHEMES}}


@settings.get("")
def show_settings(parts: Parts, response: Response) -> SettingsPage:
    """List every setting with its value and origin, and whether it can be changed while Maestro runs."""
    return _add_version_tag(parts.settings.page(), response)


@settings.patch("")
def change_settings(
    parts: Parts, response: Response, changes: SettingValues, if_match: Annotated[str | None, Header()] = None
) -> SettingsPage:
    """Change settings while Maestro runs, all or none; every process applies them within a second.

    400 for an invalid value, 409 for a setting that needs a restart.
    """
    values = {key: value for key, value in changes.items() if key != VERSION}
    version = _parse_version(changes.get(VERSION) if VERSION in changes else if_match)
    return _add_version_tag(parts.settings.change(values, version, OPERATOR), response)


def _parse_version(version: JsonValue) -> int | None:
    """Return the version of the settings that the caller read, None without one; raises ``InvalidRequest``."""
    if version is None or version == "*":
        return None
    number = re.fullmatch(r'(?:W/)?"?(\d{1,18})"?', str(version)) if not isinstance(version, bool) else None
    if number is None:
        raise InvalidRequest("version: expected the number that GET /api/settings returned")
    return int(number[1])


def _add_version_tag(page: SettingsPage, response: Response) -> SettingsPage:
    response.headers["ETag"] = f'"{page.version}"'
    return page


class Ticket(Value):
    """A ticket that authenticates one web socket connection; it is valid for 60 seconds."""

    ticket: str


@tickets.post("/api/web/tickets")
def add_ticket(parts: Parts) -> Ticket:
    """Create a ticket, which a client sends in the auth frame of a web socket."""
    ticket = secrets.token_urlsafe(32)
    with parts.store.begin() as tx:
        tx.users.add_ticket(ticket, (OPERATOR, OPERATOR, IdentityRole.OWNER), LIFETIME)
    return Ticket(ticket=ticket)


class NewPost(Value):
    """A person's new post in the agent chat; other fields are ignored, and the author is always ``@human``."""

    model_config = ConfigDict(extra="ignore")

    text: str


class PostedView(Value):
    """The id of the new post."""

    id: int
    success: bool


class ChatQuery(Value):
    """Which posts to list: the newest ``limit`` posts, or all posts of the session."""

    limit: int | None = Field(default=None, ge=1, le=100_000)


@chat.post("")
def post(parts: Parts, new: NewPost) -> PostedView:
    """Add a post as @human to the agent chat; 400 for an empty text."""
    return PostedView(id=require_chat(parts).service.add_post(HUMAN, new.text), success=True)


@chat.get("", response_model=list[Post])
def list_posts(request: Request, parts: Parts, query: Annotated[ChatQuery, Query()]) -> Response:
    """List the posts of the open session, oldest first; 304 if If-None-Match shows that there is no new post."""
    service = require_chat(parts).service
    tag = f'"{service.read_version()}-{query.limit or "all"}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(_POSTS.dump_json(service.list_posts(query.limit)), media_type="application/json", headers=headers)
