"""The list of agents with what each does today, and the form that makes another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.agent_form import Typed
from api.dashboard.pages import lead_back, render
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus, MemoryScope
from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import MaestroError
from maestro.domain.llm.usage import Period, UsageBy, UsageWish
from maestro.domain.reading import read
from maestro.store.transaction import Transaction

PAGE = "/agents"
ONE = "/agent"
TITLE = "Agents – Maestro"
SHOWN = 50
MOST_COSTS = 10_000

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@dataclass(frozen=True)
class Line:
    """An agent with its channels, the jobs it was given today, how many of them failed, and what they cost."""

    agent: Agent
    channels: Sequence[str]
    jobs: int
    failed: int
    cost_usd: float | None


@router.get("")
def show(request: Request, parts: Parts, q: str = "", status: str = "", cursor: str = "") -> HTMLResponse:
    """List the agents by slug; without a filter all but those in the archive."""
    with parts.store.view() as tx:
        everybody = tx.agents.all()
        found = [agent for agent in everybody if _fits(agent, q.strip(), status) and agent.slug > cursor]
        lines = _lines(tx, found[:SHOWN])
    return render(
        request,
        "agents.html",
        title=TITLE,
        lines=lines,
        following=lines[-1].agent.slug if len(found) > SHOWN else None,
        first=not cursor,
        typed={"q": q, "status": status},
        states=[state.value for state in AgentStatus],
        said="",
        none_at_all=not everybody,
    )


@router.get("/new")
def ask(request: Request) -> HTMLResponse:
    """Show the form for an agent that is to be made."""
    return _form(request, Typed())


@router.post("")
def make(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> Response:
    """Make an agent, and lead to its page; what cannot be made is said above the form."""
    try:
        new = read(NewAgent, typed.new())
        with parts.store.begin() as tx:
            agent = tx.agents.create(new, OPERATOR, typed.reason.strip()[:500])
    except MaestroError as error:
        return _form(request, typed, str(error), status_of(error))
    return lead_back(f"{ONE}/{agent.slug}", done="made")


def _form(request: Request, typed: Typed, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    with parts_of(request).store.view() as tx:
        clients = [client.name for client in tx.budgets.clients()]
    return render(
        request,
        "agent-new.html",
        status,
        title="Make an agent – Maestro",
        typed=typed,
        clients=clients,
        scopes=[scope.value for scope in MemoryScope],
        problem=problem,
    )


def _fits(agent: Agent, q: str, status: str) -> bool:
    texts = (agent.slug, agent.name, agent.role, agent.description, agent.model)
    wanted = agent.status == status if status else agent.status is not AgentStatus.ARCHIVED
    return wanted and (not q or any(q.casefold() in text.casefold() for text in texts))


def _lines(tx: Transaction, agents: Sequence[Agent]) -> Sequence[Line]:
    today = Period(tx.now.date(), tx.now.date())
    costs = {one.key: one.cost_usd for one in tx.usage.sums(UsageWish(UsageBy.AGENT, today), MOST_COSTS)}
    jobs, channels = tx.figures.jobs_of_agents(today.begins), _channels(tx.agents.bindings())
    return [
        Line(
            agent,
            channels.get(agent.id or 0, ()),
            *jobs.get(agent.id or 0, (0, 0)),
            cost_usd=costs.get(agent.slug),
        )
        for agent in agents
    ]


def _channels(bindings: Sequence[AgentChannel]) -> Mapping[int, Sequence[str]]:
    found: dict[int, list[str]] = {}
    for one in bindings:
        found.setdefault(one.agent_id, []).append(f"{one.platform}/{one.channel}")
    return found
