"""The page of one agent: all that can be edited of it, its channels, and what its answers did lately."""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.agent_form import Typed, typed_of
from api.dashboard.agents import ONE
from api.dashboard.agents import PAGE as LIST
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus, BusyMode, MemoryScope, Permission
from maestro.domain.agents.edits import MAX_REASON, AgentChange, NewBinding
from maestro.domain.agents.views import version_page
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.reading import read
from maestro.store.transaction import Transaction

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

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=ONE)

RowId = Annotated[int, Form(ge=1, le=LARGEST)]


class TypedChannel(BaseModel):
    """What stands in the form of a channel."""

    platform: str = "web"
    account: str = DEFAULT_ACCOUNT
    channel: str = ""
    permission: str = Permission.FULL
    busy: str = ""
    key_by_user: bool = False
    allow_bots: bool = False
    client: str = ""

    def fields(self) -> dict[str, object]:
        """Return what was typed, without the blanks around it."""
        texts = {name: text.strip() for name, text in self.model_dump().items() if isinstance(text, str)}
        return {**self.model_dump(), **texts, "busy": texts["busy"] or None}


@dataclass(frozen=True)
class _Shown:
    """What was typed, and what came of it."""

    typed: Typed | None = None
    channel: TypedChannel = field(default_factory=TypedChannel)
    problem: MaestroError | None = None
    done: str = ""


@router.get("/{slug}")
def show(request: Request, slug: str, done: str = "") -> HTMLResponse:
    """Show an agent."""
    return _page(request, slug, _Shown(done=done))


@router.post("/{slug}")
def change(request: Request, slug: str, typed: Annotated[Typed, Form()]) -> Response:
    """Change an agent, and lead back to it; what cannot be is said above the form, with what was typed."""

    def wish(tx: Transaction) -> None:
        wanted = read(AgentChange, typed.change())
        tx.agents.change(tx.agents.named(slug), wanted, OPERATOR, typed.reason.strip()[:MAX_REASON])

    return _done(request, slug, wish, _Shown(typed, done="saved"))


@router.post("/{slug}/status")
def change_status(
    request: Request,
    slug: str,
    status: Annotated[AgentStatus, Form()],
    reason: Annotated[str, Form()] = "",
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Pause an agent, let it answer again, or archive it."""

    def wish(tx: Transaction) -> None:
        wanted = AgentChange(status=status, force=force)
        tx.agents.change(tx.agents.named(slug), wanted, OPERATOR, reason.strip()[:MAX_REASON])

    return _done(request, slug, wish, _Shown(done=status))


@router.post("/{slug}/purge")
def purge(request: Request, parts: Parts, slug: str, force: Annotated[bool, Form()] = False) -> Response:
    """Take an agent away for good, and lead back to the list."""
    try:
        with parts.store.begin() as tx:
            tx.agents.purge(tx.agents.named(slug), OPERATOR, force=force)
    except MaestroError as error:
        return _page(request, slug, _Shown(problem=error))
    return lead_back(LIST)


@router.post("/{slug}/channels")
def bind(request: Request, slug: str, channel: Annotated[TypedChannel, Form()]) -> Response:
    """Give a channel to an agent."""

    def wish(tx: Transaction) -> None:
        tx.agents.bind_channel(tx.agents.named(slug), read(NewBinding, channel.fields()), OPERATOR)

    return _done(request, slug, wish, _Shown(channel=channel, done="bound"))


@router.post("/{slug}/channels/remove")
def free(request: Request, slug: str, number: RowId) -> Response:
    """Free a channel."""
    return _done(
        request, slug, lambda tx: tx.agents.unbind_channel(tx.agents.channel(number), OPERATOR), _Shown(done="freed")
    )


def _done(request: Request, slug: str, wish: Callable[[Transaction], None], shown: _Shown) -> Response:
    try:
        with parts_of(request).store.begin() as tx:
            wish(tx)
    except MaestroError as error:
        return _page(request, slug, _Shown(shown.typed, shown.channel, problem=error))
    return lead_back(f"{ONE}/{slug}", done=shown.done)


def _page(request: Request, slug: str, shown: _Shown) -> HTMLResponse:
    try:
        with parts_of(request).store.view() as tx:
            agent = tx.agents.named(slug)
            detail = tx.agents.detail(agent)
            values = {
                "agent": detail,
                "typed": shown.typed or typed_of(detail),
                "edits": version_page(tx.versions.of(agent, None, EDITS + 1), EDITS),
                "actions": tx.actions.lately(agent, ACTIONS),
                "clients": [client.name for client in tx.budgets.clients()],
            }
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "agent.html",
        status_of(shown.problem) if shown.problem is not None else HTTPStatus.OK,
        title=f"{slug} – Maestro",
        channel=shown.channel,
        problem=str(shown.problem or ""),
        said=DONE.get(shown.done, ""),
        scopes=[scope.value for scope in MemoryScope],
        permissions=[one.value for one in Permission],
        modes=[mode.value for mode in BusyMode],
        **values,
    )
