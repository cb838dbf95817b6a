"""The page of accounts, connectors, clients and users, with the forms that change them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormAction, FormText, TextForm, form_routes, parse_object, submit
from api.dashboard.pages import redirect_to_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from api.parts import ApiParts
from connectors.platforms import platform, platforms
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.connectors import ConnectorChange, NewConnector, disabled_page
from maestro.domain.errors import MaestroError
from maestro.domain.llm.accounts import AccountChange, AccountStatus, NewAccount, account_view
from maestro.domain.llm.budgets import ClientChange, NewClient, client_view
from maestro.domain.llm.usage import UsageBy
from maestro.domain.llm.usage_views import MOST, UsageQuery
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import PairingStatus
from maestro.domain.people.views import InvitationView, PairingApproval, pairing_view, person_view
from maestro.domain.values import read
from maestro.operations.accounts import AccountOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.people import ClientOperations, PeopleOperations
from maestro.store.transaction import Transaction

PAGE = "/accounts"
LISTED = 100
"""The most refused pairings, users and channels that the page lists; the commands and the API list all."""
SECRET = "secret_"  # noqa: S105 - the prefix of form fields that hold secrets

ACTIVE, DISABLED = AccountChange(status=AccountStatus.ACTIVE), AccountChange(status=AccountStatus.DISABLED)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)
router.routes.extend(
    form_routes(
        PAGE,
        lambda request, error, **_: _render_page(request, AccountsPageState(problem=error)),
        FormAction("/enable", "accounts", AccountOperations.change, "enabled", ACTIVE),
        FormAction("/disable", "accounts", AccountOperations.change, "disabled", DISABLED),
        FormAction("/remove", "accounts", AccountOperations.remove, "removed"),
        FormAction(
            "/connectors/enable", "connectors", ConnectorOperations.change, "enabled", ConnectorChange(enabled=True)
        ),
        FormAction(
            "/connectors/disable", "connectors", ConnectorOperations.change, "disabled", ConnectorChange(enabled=False)
        ),
        FormAction("/connectors/remove", "connectors", ConnectorOperations.remove, "removed"),
        FormAction("/connectors/open-channel", "connectors", ConnectorOperations.enable_channel, "opened"),
        FormAction("/pairings/refuse", "people", PeopleOperations.refuse, "refused"),
        FormAction("/people/remove", "people", PeopleOperations.remove, "forgotten"),
        FormAction("/clients/remove", "clients", ClientOperations.remove, "removed"),
    )
)

FormFlag = Annotated[bool, Form()]


class AccountForm(TextForm):
    """The form of a provider account; the ``name`` of an existing account cannot be changed."""

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

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return the fields without surrounding blanks; blanks or commas separate the names in ``models``."""
        return {**super().fields(*left_out), "models": self.models.replace(",", " ").split()}


class ConnectorForm(BaseModel, extra="allow"):
    """The form of a connector; each secret has its own field, named ``secret_`` plus the secret's name."""

    platform: str = ""
    account: str = DEFAULT_ACCOUNT
    agent: str = ""
    options: str = "{}"

    def secrets(self) -> Mapping[str, str]:
        """Return the entered secrets by their names."""
        extra = {name: str(value).strip() for name, value in (self.model_extra or {}).items()}
        return {name.removeprefix(SECRET): text for name, text in extra.items() if name.startswith(SECRET) and text}

    def parse_options(self) -> dict[str, Any]:
        """Return the connector options as an object; raises ``InvalidEdit`` for text that is not a JSON object."""
        problem = 'options: expected a JSON object, such as {"requireMention": false}'
        return parse_object(self.options.strip() or "{}", problem)

    def without_secrets(self) -> "ConnectorForm":
        """Return the form without its secrets, to show the form again beside an error."""
        return ConnectorForm(**self.model_dump(include=set(ConnectorForm.model_fields)))


class ClientForm(TextForm):
    """The form of a client that pays for answers."""

    name: str = ""
    slug: str = ""
    plan: str = "per_task"
    daily_budget_usd: str = ""
    weight: str = "1"

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return the fields without surrounding blanks; an empty budget becomes None: no budget for this client."""
        fields = super().fields(*left_out)
        return {**fields, "daily_budget_usd": fields["daily_budget_usd"] or None}


@dataclass(frozen=True)
class AccountsPageState:
    """The entered text of the page's forms, and the result of the form that was sent.

    ``form`` names the open form: account, connector or client. With ``editing`` the form changes an existing item, else
    it adds one.
    """

    form: str = ""
    editing: bool = False
    account: AccountForm = field(default_factory=AccountForm)
    connector: ConnectorForm = field(default_factory=ConnectorForm)
    client: ClientForm = field(default_factory=ClientForm)
    problem: MaestroError | None = None
    invitation: InvitationView | None = None


@router.get("")
def show_accounts(
    request: Request, parts: Parts, edit: str = "", connector: str = "", client: str = ""
) -> HTMLResponse:
    """Show the page; ``edit`` (an account), ``connector`` or ``client`` names the item whose form is open."""
    try:
        return _render_page(request, _page_state(parts, edit, connector, client))
    except MaestroError as error:
        return _render_page(request, AccountsPageState(problem=error))


def _page_state(parts: ApiParts, edit: str, connector: str, client: str) -> AccountsPageState:
    if connector:
        name, _, account = connector.partition("/")
        view = parts.connectors.show(name, account)
        options = json.dumps(view.options, indent=2, ensure_ascii=False)
        form = ConnectorForm(platform=view.platform, account=view.account, agent=view.agent, options=options)
        return AccountsPageState("connector", editing=True, connector=form)
    if client:
        payer = parts.clients.show(client)
        budget = "" if payer.daily_budget_usd is None else f"{payer.daily_budget_usd:g}"
        client_form = ClientForm.from_view(payer, daily_budget_usd=budget, weight=f"{payer.weight:g}")
        return AccountsPageState("client", editing=True, client=client_form)
    if edit:
        known = parts.accounts.show(edit)
        account_form = AccountForm.from_view(known, models=" ".join(known.models))
        return AccountsPageState("account", editing=True, account=account_form)
    return _NO_OPEN_FORM


@router.post("/add")
def add_account(request: Request, parts: Parts, form: Annotated[AccountForm, Form()]) -> Response:
    """Add an account, and redirect to the list."""
    state = AccountsPageState("account", account=form.model_copy(update={"api_key": ""}))
    return submit_form(request, "added", lambda: parts.accounts.add(read(NewAccount, form.fields()), OPERATOR), state)


@router.post("/change")
def change_account(
    request: Request, parts: Parts, form: Annotated[AccountForm, Form()], forget_key: FormFlag = False
) -> Response:
    """Change an account, and redirect to the list; an empty key leaves the stored key, unless ``forget_key`` is set."""
    fields = form.fields("name", "type", "provider")
    if not fields["api_key"] and not forget_key:
        del fields["api_key"]
    return submit_form(
        request,
        "changed",
        lambda: parts.accounts.change(form.name, read(AccountChange, fields), OPERATOR),
        AccountsPageState("account", editing=True, account=form.model_copy(update={"api_key": ""})),
    )


@router.post("/connectors/add")
def add_connector(request: Request, parts: Parts, form: Annotated[ConnectorForm, Form()]) -> Response:
    """Add a connector, which connects at once, and redirect to the list."""

    def operation() -> None:
        names = {"platform": form.platform, "account": form.account.strip(), "agent": form.agent}
        fields = {**names, "secrets": form.secrets(), "options": form.parse_options()}
        parts.connectors.add(read(NewConnector, fields), OPERATOR)

    return submit_form(
        request, "connecting", operation, AccountsPageState("connector", connector=form.without_secrets())
    )


@router.post("/connectors/change")
def change_connector(request: Request, parts: Parts, form: Annotated[ConnectorForm, Form()]) -> Response:
    """Change a connector, and redirect to the list; an empty secret field leaves the stored secret unchanged."""

    def operation() -> None:
        before = parts.connectors.show(form.platform, form.account).options
        options = dict.fromkeys(before) | form.parse_options()
        fields = {"agent": form.agent, "secrets": form.secrets(), "options": options}
        parts.connectors.change(form.platform, form.account, read(ConnectorChange, fields), OPERATOR)

    state = AccountsPageState("connector", editing=True, connector=form.without_secrets())
    return submit_form(request, "changed", operation, state)


@router.post("/pairings/approve")
def approve_pairing(request: Request, parts: Parts, pairing: FormText, owner: FormFlag = False) -> Response:
    """Approve a pairing: give its user access, as a normal user or as an owner, and notify the user."""
    approval = PairingApproval(owner=owner)
    done = "owner" if owner else "user"
    return submit_form(request, done, lambda: parts.people.approve(pairing, OPERATOR, approval))


@router.post("/pairings/invite")
def create_invitation(request: Request, parts: Parts, owner: FormFlag = False) -> Response:
    """Create a pairing code and show it; the code is not shown again."""
    invitation = parts.people.invite(OPERATOR, PairingApproval(owner=owner))
    return _render_page(request, AccountsPageState(invitation=invitation), HTTPStatus.CREATED)


@router.post("/clients/add")
def add_client(request: Request, parts: Parts, form: Annotated[ClientForm, Form()]) -> Response:
    """Add a client, to which agents and channels can then be assigned."""
    state = AccountsPageState("client", client=form)
    return submit_form(request, "added", lambda: parts.clients.add(read(NewClient, form.fields()), OPERATOR), state)


@router.post("/clients/change")
def change_client(request: Request, parts: Parts, form: Annotated[ClientForm, Form()]) -> Response:
    """Change a client, and redirect to the list."""
    return submit_form(
        request,
        "changed",
        lambda: parts.clients.change(form.name, read(ClientChange, form.fields("name")), OPERATOR),
        AccountsPageState("client", editing=True, client=form),
    )


_NO_OPEN_FORM = AccountsPageState()


def submit_form(
    request: Request, done: str, operation: Callable[[], object], state: AccountsPageState = _NO_OPEN_FORM
) -> Response:
    """Apply the form and redirect to the page; after an error, show the page with the reason and the entered text."""
    return submit(
        operation,
        lambda _: redirect_to_page(PAGE, done=done),
        lambda error: _render_page(request, replace(state, problem=error)),
    )


def _render_page(request: Request, state: AccountsPageState, status: HTTPStatus | None = None) -> HTMLResponse:
    parts = request_parts(request)
    with parts.store.view() as tx:
        lists = _read_lists(tx)
    return render(
        request,
        "accounts.html",
        status,
        state=state,
        problem=state.problem,
        lists=lists,
        connectors=parts.connectors.list().items,
        platforms=_platform_secrets(),
        done=request.query_params.get("done", "") if not state.problem else "",
    )


@cache
def _platform_secrets() -> Mapping[str, Mapping[str, str]]:
    """Return the secrets of each installed platform with their descriptions; the result is cached."""
    return {name: platform(name).secrets for name in platforms()}


def _read_lists(tx: Transaction) -> Mapping[str, object]:
    """Read the lists of the page; ``spent`` is the cost of each provider account today."""
    limits, levels = tx.llm.accounts.read_cooldown_ends(), tx.llm.budgets.read_client_levels()
    today = tx.llm.budgets.today
    usage = tx.llm.usage.build_usage_page(UsageQuery(by=UsageBy.ACCOUNT, since=today, until=today, limit=MOST), today)
    newest = tx.users.pairings.list_pairing_page(None, LISTED)
    return {
        "accounts": [account_view(account, limits) for account in tx.llm.accounts.list_accounts()],
        "spent": {total.key or "": total.cost_usd for total in usage.items},
        "pairings": [pairing_view(row, tx.now) for row in tx.users.pairings.list_pending_pairings()],
        "refused": [pairing_view(row, tx.now) for row in newest if row.status is PairingStatus.REFUSED],
        "people": [person_view(row) for row in tx.users.pairings.list_known_users(None, LISTED)],
        "channels": disabled_page(tx.bots.channels.list_disabled_channels()[:LISTED]).items,
        "clients": [client_view(client, levels[client.name]) for client in tx.llm.budgets.list_clients()],
        "agents": [agent.slug for agent in tx.agents.list_agents() if agent.status is not AgentStatus.ARCHIVED],
    }
