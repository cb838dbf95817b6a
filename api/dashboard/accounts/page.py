"""The page of accounts, connectors, clients and users, shown after each of its forms too."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.pages import lead_back, render
from api.routes.dependencies import parts_of
from connectors.platforms import platform, platforms
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.connectors import ConnectorView, DisabledChannelView, disabled_page
from maestro.domain.errors import MaestroError
from maestro.domain.llm.account_views import AccountView, account_view
from maestro.domain.llm.clients import ClientView, client_view
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_views import MOST, UsageQuery
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import PairingStatus
from maestro.domain.people.views import InvitationView, PairingView, PersonView, pairing_view, person_view
from maestro.store.transaction import Transaction

PAGE = "/accounts"
TITLE = "Accounts and connectors – Maestro"
SHOWN = 100
"""Wishes, people and channels that the page lists; the commands and the API list the others."""


class AccountForm(BaseModel):
    """The form of an account; its ``name`` cannot change later."""

    name: str = ""
    type: str = "api_key"
    provider: str = "anthropic"
    model: str = ""
    models: str = ""
    api_key: str = ""
    base_url: str = ""
    home_dir: str = ""
    priority: str = "20"
    requests_per_minute: str = "0"
    tokens_per_minute: str = "0"
    concurrency: str = "0"


class ConnectorForm(BaseModel, extra="allow"):
    """The form of a connector; each secret is a field of its own, named ``secret_`` and its name."""

    platform: str = ""
    account: str = DEFAULT_ACCOUNT
    agent: str = ""
    options: str = "{}"


class ClientForm(BaseModel):
    """The form of a client."""

    name: str = ""
    slug: str = ""
    plan: str = "per_task"
    daily_budget_usd: str = ""
    weight: str = "1"


@dataclass(frozen=True)
class AccountsPageState:
    """The forms of the page with their texts, and the result of the one that was sent.

    ``form`` is the form that is open: an account, a connector or a client, to make or, with ``editing``, to change.
    """

    form: str = ""
    editing: bool = False
    account: AccountForm = field(default_factory=AccountForm)
    connector: ConnectorForm = field(default_factory=ConnectorForm)
    client: ClientForm = field(default_factory=ClientForm)
    problem: MaestroError | None = None
    invitation: InvitationView | None = None


@dataclass(frozen=True)
class AccountLists:
    """The page's data, read in one transaction; ``spent`` is today's cost of each account."""

    accounts: Sequence[AccountView]
    spent: Mapping[str, float | None]
    wishes: Sequence[PairingView]
    refused: Sequence[PairingView]
    people: Sequence[PersonView]
    channels: Sequence[DisabledChannelView]
    clients: Sequence[ClientView]
    agents: Sequence[str]


def accounts_page(request: Request, shown: AccountsPageState, status: HTTPStatus | None = None) -> HTMLResponse:
    """Return the page."""
    parts = parts_of(request)
    with parts.store.view() as tx:
        lists = _lists(tx)
    return render(
        request,
        "accounts.html",
        status,
        title=TITLE,
        shown=shown,
        problem=shown.problem,
        lists=lists,
        connectors=parts.connectors.list().items,
        platforms=_platforms(),
        done=request.query_params.get("done", "") if not shown.problem else "",
    )


def submit_form(request: Request, shown: AccountsPageState, word: str, operation: Callable[[], object]) -> Response:
    """Carry out the form and redirect to the page; on an error show the page with the reason and the entered text."""
    return submit(
        operation,
        lambda _: lead_back(PAGE, done=word),
        lambda error: accounts_page(request, replace(shown, problem=error)),
    )


def connector_form(view: ConnectorView) -> ConnectorForm:
    """Return the values of a connector's edit form, without its secrets."""
    options = json.dumps(view.options, indent=2, ensure_ascii=False)
    return ConnectorForm(platform=view.platform, account=view.account, agent=view.agent, options=options)


@cache
def _platforms() -> Mapping[str, Mapping[str, str]]:
    """Return the descriptions of each platform's secrets; the installed platforms are looked up once."""
    return {name: platform(name).secrets for name in platforms()}


def _lists(tx: Transaction) -> AccountLists:
    limits, levels = tx.llm.accounts.limits(), tx.llm.budgets.client_levels()
    today = tx.llm.budgets.today
    usage = tx.llm.usage.page(UsageQuery(by=UsageBy.ACCOUNT, since=today, until=today, limit=MOST), today)
    newest = tx.users.pairings.page(None, SHOWN)
    return AccountLists(
        accounts=[account_view(account, limits) for account in tx.llm.accounts.all()],
        spent={one.key or "": one.cost_usd for one in usage.items},
        wishes=[pairing_view(row, tx.now) for row in tx.users.pairings.pending()],
        refused=[pairing_view(row, tx.now) for row in newest if row.status is PairingStatus.REFUSED],
        people=[person_view(row) for row in tx.users.pairings.known_users(None, SHOWN)],
        channels=disabled_page(tx.bots.channels.disabled()[:SHOWN]).items,
        clients=[client_view(client, levels[client.name]) for client in tx.llm.budgets.clients()],
        agents=[agent.slug for agent in tx.agents.all() if agent.status is not AgentStatus.ARCHIVED],
    )
