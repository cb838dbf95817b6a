"""The pages of agents: the list, a new agent, and one agent with its channels and latest actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormRow, reason_of, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Parts, parts_of
from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus, BusyMode, MemoryScope, Permission
from maestro.domain.agents.edits import AgentChange, AgentFields, BoundChannel, NewAgent
from maestro.domain.agents.views import AgentDetail
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read
from maestro.domain.llm.usage import Period, UsageBy, UsageRequest
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.store.transaction import Transaction

OWN = "own"
"""What is chosen where an agent has a list of its own, and not what everybody has."""
LISTS = {"tools": "tools_of", "skills": "skills_of", "allow_users": "allow_users_of"}
"""The lists that an agent may have of its own, with the choice beside each."""
WORDS = ("role", "description", "model", "client")
LINES = {name: field for name, field in AgentFields.model_fields.items() if field.title}
"""The fields that are a line of text in the form, in their order."""

AGENTS_PAGE = "/agents"
AGENT_PAGE = "/agent"
TITLE = "Agents – Maestro"
SHOWN = 50
MOST_COSTS = 10_000

list_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=AGENTS_PAGE)

HERE = "agents"
EDITS = 5
ACTIONS = 10
DONE = {
    "made": "The agent is made, and answers from the next message on.",
    "saved": "It is saved, and counts from the next message on.",
    "active": "It is active: it answers from the next message on.",
    "paused": "It is paused: it answers nothing until it is active again.",
    "archived": "It is archived: it answers no more, and its channels are free.",
    "bound": "The channel is its own from the next message on.",
    "freed": "The channel is free.",
    "rolled": "It is as it was in that version, from the next message on.",
}
"""What was done, by the word that stands in the address: no text of an address is shown."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=AGENT_PAGE)


class AgentForm(BaseModel, extra="allow"):
    """The texts of the form; the input of the operation checks them. Fields of ``LINES`` are not declared here."""

    slug: str = ""
    role: str = "assistant"
    description: str = ""
    quirks: str = ""
    system_prompt: str = ""
    model: str = ""
    fallbacks: str = ""
    tools_of: str = ""
    tools: str = ""
    skills_of: str = ""
    skills: str = ""
    allow_users_of: str = ""
    allow_users: str = ""
    memory_scope: str = ""
    client: str = ""
    daily_budget_usd: str = ""
    version: str = ""
    reason: str = ""
    force: bool = False

    def line(self, name: str) -> str:
        """Return the text of a field of ``LINES``."""
        return str((self.model_extra or {}).get(name, ""))

    def fields(self) -> dict[str, object]:
        """Return the fields of an agent except its status; an empty field means the common setting."""
        return {
            **{name: getattr(self, name).strip() for name in WORDS},
            **{name: self.line(name).strip() for name in LINES},
            "quirks": [line.strip() for line in self.quirks.splitlines() if line.strip()],
            # Browsers send line ends as CR LF; without this, each save would change every line of the prompt.
            "system_prompt": self.system_prompt.replace("\r\n", "\n").strip(),
            "fallbacks": self.fallbacks.split(),
            **{name: self._list(name) for name in LISTS},
            "memory_scope": self.memory_scope or None,
            "daily_budget_usd": self.daily_budget_usd.strip() or None,
        }

    def change(self) -> dict[str, object]:
        """Return the fields with the version that the form was made for."""
        return {**self.fields(), "version": self.version or None, "force": self.force}

    def new(self) -> dict[str, object]:
        """Return the fields with the slug of the new agent."""
        return {**self.fields(), "slug": self.slug.strip()}

    def _list(self, name: str) -> list[str] | None:
        return getattr(self, name).split() if getattr(self, LISTS[name]) == OWN else None


def form_of_agent(agent: AgentDetail) -> AgentForm:
    """Return the values of the form that changes an agent."""
    lists = {name: getattr(agent, name) for name in LISTS}
    return AgentForm(
        slug=agent.slug,
        **{name: getattr(agent, name) for name in (*WORDS, *LINES)},
        quirks="\n".join(agent.quirks),
        system_prompt=agent.system_prompt,
        fallbacks=" ".join(agent.fallbacks),
        **{name: "\n".join(value or ()) for name, value in lists.items()},
        **{LISTS[name]: "" if value is None else OWN for name, value in lists.items()},
        memory_scope=agent.memory_scope or "",
        daily_budget_usd="" if agent.daily_budget_usd is None else f"{agent.daily_budget_usd:.15g}",
        version=str(agent.version),
    )


@dataclass(frozen=True)
class AgentListEntry:
    """An agent with its channels, today's jobs, their failures, and their cost."""

    agent: Agent
    channels: Sequence[str]
    jobs: int
    failed: int
    cost_usd: float | None


@list_router.get("")
def show_list(request: Request, parts: Parts, q: str = "", status: str = "", cursor: str = "") -> HTMLResponse:
    """List the agents by slug; without a filter all that are not archived."""
    with parts.store.view() as tx:
        everybody = tx.agents.all()
        found = [agent for agent in everybody if _fits(agent, q.strip(), status) and agent.slug > cursor]
        lines = _entries(tx, found[:SHOWN])
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


@list_router.get("/new")
def ask(request: Request) -> HTMLResponse:
    """Show the form for a new agent."""
    return _new_form(request, AgentForm())


@list_router.post("")
def make(request: Request, parts: Parts, typed: Annotated[AgentForm, Form()]) -> Response:
    """Create an agent and redirect to its page; an error is shown above the form."""
    return submit(
        lambda: parts.agents.add(read(NewAgent, typed.new()), OPERATOR, reason_of(typed.reason)),
        lambda agent: lead_back(f"{AGENT_PAGE}/{agent.slug}", done="made"),
        lambda error: _new_form(request, typed, error),
    )


def _new_form(request: Request, typed: AgentForm, problem: MaestroError | None = None) -> HTMLResponse:
    clients = [client.name for client in parts_of(request).clients.list().items]
    return render(
        request,
        "agent-new.html",
        title="Make an agent – Maestro",
        typed=typed,
        clients=clients,
        scopes=[scope.value for scope in MemoryScope],
        lines=LINES,
        problem=problem,
    )


def _fits(agent: Agent, q: str, status: str) -> bool:
    texts = (agent.slug, agent.name, agent.role, agent.description, agent.model)
    wanted = agent.status == status if status else agent.status is not AgentStatus.ARCHIVED
    return wanted and (not q or any(q.casefold() in text.casefold() for text in texts))


def _entries(tx: Transaction, agents: Sequence[Agent]) -> Sequence[AgentListEntry]:
    today = Period(tx.now.date(), tx.now.date())
    costs = {one.key: one.cost_usd for one in tx.llm.usage.sums(UsageRequest(UsageBy.AGENT, today), MOST_COSTS)}
    jobs, channels = tx.system.figures.jobs_of_agents(today.begins), _channels(tx.agents.bindings())
    return [
        AgentListEntry(
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


class ChannelForm(BaseModel):
    """The form of a channel."""

    platform: str = "web"
    account: str = DEFAULT_ACCOUNT
    channel: str = ""
    permission: str = Permission.FULL
    busy: str = ""
    key_by_user: bool = False
    allow_bots: bool = False
    client: str = ""

    def fields(self) -> dict[str, object]:
        """Return the fields without surrounding blanks."""
        texts = {name: text.strip() for name, text in self.model_dump().items() if isinstance(text, str)}
        return {**self.model_dump(), **texts, "busy": texts["busy"] or None}


@dataclass(frozen=True)
class _AgentPageState:
    """The entered text of the forms and the result of the one that was sent."""

    typed: AgentForm | None = None
    channel: ChannelForm = field(default_factory=ChannelForm)
    problem: MaestroError | None = None
    done: str = ""


@router.get("/{slug}")
def show(request: Request, slug: str, done: str = "") -> HTMLResponse:
    """Show an agent."""
    return _page(request, slug, _AgentPageState(done=done))


@router.post("/{slug}")
def change(request: Request, parts: Parts, slug: str, typed: Annotated[AgentForm, Form()]) -> Response:
    """Change an agent and redirect to it; an error is shown above the form with the entered text."""
    return _submit(
        request,
        slug,
        lambda: parts.agents.change(slug, read(AgentChange, typed.change()), OPERATOR, reason_of(typed.reason)),
        _AgentPageState(typed, done="saved"),
    )


@router.post("/{slug}/status")
def change_status(
    request: Request,
    slug: str,
    status: Annotated[AgentStatus, Form()],
    reason: Annotated[str, Form()] = "",
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Pause, resume or archive an agent."""
    wanted = AgentChange(status=status, force=force)
    return _submit(
        request,
        slug,
        lambda: parts_of(request).agents.change(slug, wanted, OPERATOR, reason_of(reason)),
        _AgentPageState(done=status),
    )


@router.post("/{slug}/purge")
def purge(request: Request, parts: Parts, slug: str, force: Annotated[bool, Form()] = False) -> Response:
    """Delete an agent permanently, and redirect to the list."""
    return submit(
        lambda: parts.agents.remove(slug, OPERATOR, purge=True, force=force),
        lambda _: lead_back(AGENTS_PAGE),
        lambda error: _page(request, slug, _AgentPageState(problem=error)),
    )


@router.post("/{slug}/channels")
def bind(request: Request, parts: Parts, slug: str, channel: Annotated[ChannelForm, Form()]) -> Response:
    """Bind a channel to an agent."""
    return _submit(
        request,
        slug,
        lambda: parts.bindings.add(read(BoundChannel, {**channel.fields(), "agent": slug}), OPERATOR),
        _AgentPageState(channel=channel, done="bound"),
    )


@router.post("/{slug}/channels/remove")
def free(request: Request, parts: Parts, slug: str, number: FormRow) -> Response:
    """Remove the binding of a channel."""
    return _submit(request, slug, lambda: parts.bindings.remove(number, OPERATOR), _AgentPageState(done="freed"))


def _submit(request: Request, slug: str, operation: Callable[[], object], shown: _AgentPageState) -> Response:
    return submit(
        operation,
        lambda _: lead_back(f"{AGENT_PAGE}/{slug}", done=shown.done),
        lambda error: _page(request, slug, replace(shown, problem=error)),
    )


def _page(request: Request, slug: str, shown: _AgentPageState) -> HTMLResponse:
    parts = parts_of(request)
    try:
        agent = parts.agents.show(slug)
    except MaestroError as error:
        return refused(request, HERE, error)
    with parts.store.view() as tx:
        actions = tx.jobs.actions.latest(tx.agents.get(agent.id), ACTIONS)
    return render(
        request,
        "agent.html",
        title=f"{slug} – Maestro",
        agent=agent,
        typed=shown.typed or form_of_agent(agent),
        edits=parts.agents.versions(slug, EDITS),
        actions=actions,
        clients=[client.name for client in parts.clients.list().items],
        channel=shown.channel,
        problem=shown.problem,
        said=DONE.get(shown.done, ""),
        scopes=[scope.value for scope in MemoryScope],
        lines=LINES,
        permissions=[one.value for one in Permission],
        modes=[mode.value for mode in BusyMode],
    )
