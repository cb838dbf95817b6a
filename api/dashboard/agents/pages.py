"""The pages of agents: the list, the form for a new agent, and one agent with its channels and latest actions."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormRow, FormText, edit_reason, submit
from api.dashboard.pages import redirect_to_page, refusal_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from maestro.domain.agents.agent import Agent, AgentStatus, BusyMode, MemoryScope, Permission
from maestro.domain.agents.edits import AgentChange, AgentFields, BoundChannel, NewAgent
from maestro.domain.agents.views import AgentDetail
from maestro.domain.errors import MaestroError
from maestro.domain.llm.usage import Period, UsageBy, UsageRequest
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.values import read

OWN = "own"
"""The form value that selects the agent's own list instead of the installation's setting."""
LISTS = {"tools": "tools_of", "skills": "skills_of", "allow_users": "allow_users_of"}
"""The list fields of an agent, each with the form field that says whether the agent has its own list."""
TEXT_FIELDS = ("role", "description", "model", "client")
LINES = {name: field for name, field in AgentFields.model_fields.items() if field.title}
"""The agent fields that the form shows as one line of text each, in this order."""

AGENTS_PAGE = "/agents"
AGENT_PAGE = "/agent"
PAGE_SIZE = 50
HERE = "agents"
EDITS = 5
NOTICES = {
    "made": "The agent was created. It answers from the next message on.",
    "saved": "The agent was saved. The change applies from the next message on.",
    "active": "The agent is active: it answers from the next message on.",
    "paused": "The agent is paused: it answers nothing until it is active again.",
    "archived": "The agent is archived: it no longer answers, and its channels were unbound.",
    "bound": "The channel is bound to this agent from the next message on.",
    "freed": "The channel was unbound.",
    "rolled": "The agent was rolled back to that version. It applies from the next message on.",
}
"""Notices after a completed form; the page's address holds only their keys, so that it cannot inject a text."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


class AgentForm(BaseModel, extra="allow"):
    """The form of an agent, as entered; the operation validates it. The fields in ``LINES`` are extra fields."""

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
        """Return the entered text of a field in ``LINES``."""
        return str((self.model_extra or {}).get(name, ""))

    def fields(self) -> dict[str, object]:
        """Return the agent's fields except the status; an empty field stands for the installation's setting."""
        return {
            **{name: getattr(self, name).strip() for name in TEXT_FIELDS},
            **{name: self.line(name).strip() for name in LINES},
            "quirks": [line.strip() for line in self.quirks.splitlines() if line.strip()],
            # Browsers send line ends as CR LF, which would change every line of the prompt at each save.
            "system_prompt": self.system_prompt.replace("\r\n", "\n").strip(),
            "fallbacks": self.fallbacks.split(),
            **{name: getattr(self, name).split() if getattr(self, of) == OWN else None for name, of in LISTS.items()},
            "memory_scope": self.memory_scope or None,
            "daily_budget_usd": self.daily_budget_usd.strip() or None,
        }


def form_of_agent(agent: AgentDetail) -> AgentForm:
    """Return the form that edits an agent, filled with the agent's present values."""
    lists = {name: getattr(agent, name) for name in LISTS}
    return AgentForm(
        slug=agent.slug,
        **{name: getattr(agent, name) for name in (*TEXT_FIELDS, *LINES)},
        quirks="\n".join(agent.quirks),
        system_prompt=agent.system_prompt,
        fallbacks=" ".join(agent.fallbacks),
        **{name: "\n".join(value or ()) for name, value in lists.items()},
        **{LISTS[name]: "" if value is None else OWN for name, value in lists.items()},
        memory_scope=agent.memory_scope or "",
        daily_budget_usd="" if agent.daily_budget_usd is None else f"{agent.daily_budget_usd:.15g}",
        version=str(agent.version),
    )


@router.get(AGENTS_PAGE)
def show_agents(request: Request, parts: Parts, q: str = "", status: str = "", cursor: str = "") -> HTMLResponse:
    """List the agents by slug; without a status filter, archived agents are left out."""
    with parts.store.view() as tx:
        every = tx.agents.list_agents()
        matching = [agent for agent in every if _matches_filter(agent, q.strip(), status) and agent.slug > cursor]
        today = Period(tx.now.date(), tx.now.date())
        costs = tx.llm.usage.list_sums(UsageRequest(UsageBy.AGENT, today), 10_000)
        jobs, bindings = tx.system.figures.count_jobs_of_agents(today.start_time), tx.agents.list_bindings()
    listed = matching[:PAGE_SIZE]
    return render(
        request,
        "agents.html",
        agents=listed,
        channels={
            agent.id: [f"{one.platform}/{one.channel}" for one in bindings if one.agent_id == agent.id]
            for agent in listed
        },
        jobs={agent.id: jobs.get(agent.id or 0, (0, 0)) for agent in listed},
        costs={total.key: total.cost_usd for total in costs},
        following=listed[-1].slug if len(matching) > PAGE_SIZE else None,
        first=not cursor,
        filters={"q": q, "status": status},
        states=tuple(AgentStatus),
        none_at_all=not every,
    )


@router.get(f"{AGENTS_PAGE}/new")
def show_new_agent(request: Request) -> HTMLResponse:
    """Show the form for a new agent."""
    return _new_form(request, AgentForm())


@router.post(AGENTS_PAGE)
def add_agent(request: Request, parts: Parts, form: Annotated[AgentForm, Form()]) -> Response:
    """Create an agent and redirect to its page; an error is shown above the form."""
    return submit(
        lambda: parts.agents.add(
            read(NewAgent, {**form.fields(), "slug": form.slug.strip()}), OPERATOR, edit_reason(form.reason)
        ),
        lambda agent: redirect_to_page(f"{AGENT_PAGE}/{agent.slug}", done="made"),
        lambda error: _new_form(request, form, error),
    )


def _new_form(request: Request, form: AgentForm, problem: MaestroError | None = None) -> HTMLResponse:
    return render(
        request,
        "agent-new.html",
        form=form,
        clients=[client.name for client in request_parts(request).clients.list().items],
        scopes=tuple(MemoryScope),
        lines=LINES,
        problem=problem,
    )


def _matches_filter(agent: Agent, q: str, status: str) -> bool:
    texts = (agent.slug, agent.name, agent.role, agent.description, agent.model)
    has_status = agent.status == status if status else agent.status is not AgentStatus.ARCHIVED
    return has_status and (not q or any(q.casefold() in text.casefold() for text in texts))


class ChannelForm(BaseModel):
    """The form of a channel to bind."""

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


@router.get(f"{AGENT_PAGE}/{{slug}}")
def show_agent(request: Request, slug: str) -> HTMLResponse:
    """Show the page of an agent."""
    return _render_page(request, slug)


@router.post(f"{AGENT_PAGE}/{{slug}}")
def change_agent(request: Request, parts: Parts, slug: str, form: Annotated[AgentForm, Form()]) -> Response:
    """Change an agent and redirect to it; an error is shown above the form with the entered text."""
    fields = {**form.fields(), "version": form.version or None, "force": form.force}
    return submit(
        lambda: parts.agents.change(slug, read(AgentChange, fields), OPERATOR, edit_reason(form.reason)),
        lambda _: redirect_to_page(f"{AGENT_PAGE}/{slug}", done="saved"),
        lambda error: _render_page(request, slug, error, form),
    )


@router.post(f"{AGENT_PAGE}/{{slug}}/status")
def change_agent_status(
    request: Request,
    slug: str,
    status: Annotated[AgentStatus, Form()],
    reason: FormText = "",
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Pause, resume or archive an agent, and redirect to its page."""
    change = AgentChange(status=status, force=force)
    return submit(
        lambda: request_parts(request).agents.change(slug, change, OPERATOR, edit_reason(reason)),
        lambda _: redirect_to_page(f"{AGENT_PAGE}/{slug}", done=status),
        lambda error: _render_page(request, slug, error),
    )


@router.post(f"{AGENT_PAGE}/{{slug}}/purge")
def purge_agent(request: Request, parts: Parts, slug: str, force: Annotated[bool, Form()] = False) -> Response:
    """Delete an agent permanently, and redirect to the list."""
    return submit(
        lambda: parts.agents.remove(slug, OPERATOR, purge=True, force=force),
        lambda _: redirect_to_page(AGENTS_PAGE),
        lambda error: _render_page(request, slug, error),
    )


@router.post(f"{AGENT_PAGE}/{{slug}}/channels")
def bind_channel(request: Request, parts: Parts, slug: str, channel: Annotated[ChannelForm, Form()]) -> Response:
    """Bind a channel to an agent, and redirect to the agent's page."""
    return submit(
        lambda: parts.bindings.add(read(BoundChannel, {**channel.fields(), "agent": slug}), OPERATOR),
        lambda _: redirect_to_page(f"{AGENT_PAGE}/{slug}", done="bound"),
        lambda error: _render_page(request, slug, error, channel=channel),
    )


@router.post(f"{AGENT_PAGE}/{{slug}}/channels/remove")
def unbind_channel(request: Request, parts: Parts, slug: str, number: FormRow) -> Response:
    """Remove the binding of a channel to an agent, and redirect to the agent's page."""
    return submit(
        lambda: parts.bindings.remove(number, OPERATOR),
        lambda _: redirect_to_page(f"{AGENT_PAGE}/{slug}", done="freed"),
        lambda error: _render_page(request, slug, error),
    )


def _render_page(
    request: Request,
    slug: str,
    problem: MaestroError | None = None,
    form: AgentForm | None = None,
    channel: ChannelForm | None = None,
) -> HTMLResponse:
    parts = request_parts(request)
    try:
        agent = parts.agents.show(slug)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    with parts.store.view() as tx:
        actions = tx.jobs.actions.list_latest_actions(tx.agents.get(agent.id), 10)
    return render(
        request,
        "agent.html",
        agent=agent,
        form=form or form_of_agent(agent),
        edits=parts.agents.versions(slug, EDITS),
        actions=actions,
        clients=[client.name for client in parts.clients.list().items],
        channel=channel or ChannelForm(),
        problem=problem,
        notice=NOTICES.get(request.query_params.get("done", ""), ""),
        scopes=tuple(MemoryScope),
        lines=LINES,
        permissions=tuple(Permission),
        modes=tuple(BusyMode),
    )
