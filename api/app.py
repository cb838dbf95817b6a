"""Assembles the API and the dashboard into one ASGI application."""

import secrets

import structlog
from fastapi import APIRouter, FastAPI

from api import errors, mcp
from api.dashboard import (
    accounts,
    assets,
    background,
    conversations,
    login,
    memory,
    overview,
    pages,
    reference,
    settings,
    skills,
    usage,
)
from api.dashboard.agents import pages as agent_pages
from api.dashboard.agents import versions as agent_versions
from api.dashboard.jobs import batches as batch_pages
from api.dashboard.jobs import job as job_pages
from api.dashboard.jobs import pages as job_list
from api.front import FrontDoor
from api.guards import RequestAccess
from api.parts import ApiParts
from api.routes import codec, jobs, knowledge, resources, service

DESCRIPTION = "The API of Maestro. Authenticate by HTTP Basic as maestro (or viewer), or by the cookie of POST /login."

ROUTERS = (
    service.health,
    service.metrics_router,
    jobs.batches,  # This router precedes jobs.jobs, so that the path "counts" is not read as a job id.
    jobs.jobs,
    jobs.questions,
    resources.agents,
    resources.tokens,
    resources.bindings,
    resources.accounts,
    resources.clients,
    resources.connectors,
    knowledge.conversations,
    knowledge.memory,
    knowledge.skills,
    resources.usage,
    service.settings,
    resources.audit,
    service.tickets,
    resources.people,
    resources.schedules,
    resources.webhooks,
    resources.endpoint,
    service.description,
    login.open_router,
    login.router,
    overview.router,
    pages.router,
    conversations.chat_router,
    agent_versions.router,
    agent_pages.router,
    conversations.router,
    memory.router,
    skills.router,
    batch_pages.router,  # This router precedes job_pages, so that the path "batches" is not read as a job id.
    job_list.router,
    job_pages.router,
    background.schedules,
    background.webhooks,
    usage.router,
    job_list.questions_router,
    usage.audit_router,
    reference.router,
    settings.router,
    accounts.router,
    assets.router,
)

log = structlog.get_logger(__name__)


def build_app(parts: ApiParts) -> FastAPI:
    """Return the ASGI application of the API and the dashboard, without opening sockets or starting tasks."""
    # FastAPI's documentation pages are off, because they load scripts from other hosts: Maestro's policy forbids that.
    # Maestro serves its own reference at /docs.
    app = FastAPI(
        title="Maestro", version=parts.version, description=DESCRIPTION, openapi_url=None, docs_url=None, redoc_url=None
    )
    app.state.parts = parts
    app.state.request_access = RequestAccess(parts.guard, parts.store, parts.clock, parts.hooks)
    app.state.assets = assets.Assets()
    app.state.start_id = secrets.token_hex(8)  # The id of this process start is part of every page's ETag.
    app.state.templates = pages.create_environment(app.state.assets)
    for router in ROUTERS:
        _add_routes(app, router)
    if parts.chat is not None:
        _add_routes(app, service.chat)
        _add_routes(app, conversations.posting)
    if parts.outside is not None:
        app.state.mcp = mcp.LazyServer(parts.outside, parts.version)
        _add_routes(app, mcp.router)
    if parts.payloads is not None:
        _add_routes(app, codec.router)
        app.add_middleware(codec.CodecOrigins, origins=tuple(parts.payloads.origins))
    errors.register_handlers(app)
    pages.show_error_pages(app)
    app.add_middleware(FrontDoor, parts=parts)
    return app


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    # FastAPI's include_router would build every route a second time, which delays the first requests.
    app.router.routes.extend(router.routes)
