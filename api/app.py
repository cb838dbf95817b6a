"""The API and the dashboard as one ASGI application."""

import secrets

import structlog
from fastapi import APIRouter, FastAPI

from api import errors, hooks, mcp
from api.dashboard import accounts as accounts_page
from api.dashboard import agent as agent_page
from api.dashboard import agent_chat, assets, login, pages, refusals
from api.dashboard import agent_history as agent_history_page
from api.dashboard import agent_tokens as tokens_page
from api.dashboard import agents as agents_page
from api.dashboard import audit as audit_page
from api.dashboard import batches as batches_page
from api.dashboard import connectors as connectors_page
from api.dashboard import conversation as conversation_page
from api.dashboard import conversations as conversations_page
from api.dashboard import job as job_page
from api.dashboard import job_replay as job_replay_page
from api.dashboard import jobs as jobs_page
from api.dashboard import memory as memory_page
from api.dashboard import overview as overview_page
from api.dashboard import people as people_page
from api.dashboard import questions as questions_page
from api.dashboard import reference as reference_page
from api.dashboard import schedule_backfill as backfill_page
from api.dashboard import schedules as schedules_page
from api.dashboard import settings as settings_page
from api.dashboard import skills as skills_page
from api.dashboard import usage as usage_page
from api.dashboard import webhooks as webhooks_page
from api.front import FrontDoor
from api.guards import Doorman
from api.parts import ApiParts
from api.routes import (
    accounts,
    agent_tokens,
    agents,
    audit,
    bindings,
    chat,
    clients,
    connectors,
    conversations,
    health,
    jobs,
    memory,
    openapi,
    pairings,
    questions,
    replays,
    schedules,
    settings,
    skills,
    tickets,
    usage,
    webhooks,
)

DESCRIPTION = "The work of one Maestro. HTTP Basic with the user maestro (or viewer), or a login's cookie."

ROUTERS = (
    health.for_everybody,
    health.for_operators,
    replays.router,  # before the jobs: /api/jobs/counts is not the job called counts
    jobs.router,
    questions.router,
    agents.router,
    agent_tokens.router,
    bindings.router,
    accounts.router,
    clients.router,
    connectors.router,
    conversations.router,
    memory.router,
    skills.router,
    usage.router,
    settings.router,
    audit.router,
    tickets.router,
    pairings.router,
    schedules.router,
    webhooks.router,
    hooks.router,
    openapi.router,
    login.for_everybody,
    login.for_operators,
    overview_page.router,
    pages.router,
    agent_chat.pane,
    tokens_page.router,
    agents_page.router,
    agent_history_page.router,
    agent_page.router,
    conversations_page.router,
    conversation_page.router,
    memory_page.router,
    skills_page.router,
    batches_page.router,  # before that of one job: /queue/batches is not the job called batches
    jobs_page.router,
    job_page.router,
    job_replay_page.router,
    schedules_page.router,
    backfill_page.router,
    webhooks_page.router,
    usage_page.router,
    questions_page.router,
    audit_page.router,
    reference_page.router,
    settings_page.router,
    accounts_page.router,
    connectors_page.router,
    people_page.router,
    assets.router,
)

BOOT_BYTES = 8
"""Of the word by which one start of the process is told from another one."""

log = structlog.get_logger(__name__)


def build_app(parts: ApiParts) -> FastAPI:
    """Return the application; it holds no sockets and starts nothing by itself."""
    # FastAPI's own documentation pages load scripts from elsewhere, which our content policy forbids; /docs is ours.
    app = FastAPI(
        title="Maestro",
        version=parts.version,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    app.state.doorman = Doorman(parts.guard, parts.store, parts.clock, parts.hooks)
    app.state.assets = assets.Assets()
    app.state.boot = secrets.token_hex(BOOT_BYTES)
    app.state.templates = pages.environment(app.state.assets)
    for router in ROUTERS:
        _open(app, router)
    if parts.chat is not None:
        _open(app, chat.router)
        _open(app, agent_chat.posting)
    if parts.outside is not None:
        app.state.mcp = mcp.LateServer(parts.outside, parts.version)
        _open(app, mcp.router)
    errors.register(app)
    refusals.answer_people(app)
    app.add_middleware(FrontDoor, parts=parts)
    return app


def _open(app: FastAPI, router: APIRouter) -> None:
    # Not by include_router, which builds every route a second time, with the first requests waiting for it.
    app.router.routes.extend(router.routes)
