"""The forms for accounts, connectors, clients and people."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.accounts.page import (
    PAGE,
    AccountForm,
    AccountsPageState,
    ClientForm,
    ConnectorForm,
    accounts_page,
    connector_form,
    submit_form,
)
from api.guards import OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.dependencies import Parts
from maestro.domain.connectors import ConnectorChange, NewConnector
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import read
from maestro.domain.llm.account_views import AccountChange, NewAccount
from maestro.domain.llm.accounts import AccountStatus
from maestro.domain.llm.clients import ClientChange, NewClient
from maestro.domain.people.views import PairingApproval

accounts = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Name = Annotated[str, Form()]

SECRET = "secret_"  # noqa: S105 - the prefix of form fields that hold secrets

connectors = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{PAGE}/connectors")

Word = Annotated[str, Form()]
ConnectorFormData = Annotated[ConnectorForm, Form()]

people = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Flag = Annotated[bool, Form()]


@accounts.get("")
def show(request: Request, parts: Parts, edit: str = "", connector: str = "", client: str = "") -> HTMLResponse:
    """Show all lists of the page, with the form for the named item open."""
    try:
        return accounts_page(request, _opened(parts, edit, connector, client))
    except MaestroError as error:
        return accounts_page(request, AccountsPageState(problem=error))


@accounts.post("/add")
def add_account(request: Request, parts: Parts, typed: Annotated[AccountForm, Form()]) -> Response:
    """Add an account, and redirect to the list."""
    shown = AccountsPageState("account", account=_without_key(typed))
    return submit_form(
        request, shown, "added", lambda: parts.accounts.add(read(NewAccount, _account_fields(typed)), OPERATOR)
    )


@accounts.post("/change")
def change_account(
    request: Request, parts: Parts, typed: Annotated[AccountForm, Form()], forget_key: Annotated[bool, Form()] = False
) -> Response:
    """Change an account, and redirect to the list; an empty key stays unless the form asks to delete it."""

    def wish() -> None:
        fields = {
            name: value for name, value in _account_fields(typed).items() if name not in ("name", "type", "provider")
        }
        if not typed.api_key.strip() and not forget_key:
            fields.pop("api_key")
        parts.accounts.change(typed.name, read(AccountChange, fields), OPERATOR)

    return submit_form(
        request, AccountsPageState("account", editing=True, account=_without_key(typed)), "changed", wish
    )


@accounts.post("/enable")
def enable_account(request: Request, parts: Parts, name: Name) -> Response:
    """Enable an account and clear its limits."""
    status = AccountChange(status=AccountStatus.ACTIVE)
    return submit_form(request, AccountsPageState(), "enabled", lambda: parts.accounts.change(name, status, OPERATOR))


@accounts.post("/disable")
def disable_account(request: Request, parts: Parts, name: Name) -> Response:
    """Disable an account for further calls."""
    status = AccountChange(status=AccountStatus.DISABLED)
    return submit_form(request, AccountsPageState(), "disabled", lambda: parts.accounts.change(name, status, OPERATOR))


@accounts.post("/remove")
def remove_account(request: Request, parts: Parts, name: Name) -> Response:
    """Remove an account with its key."""
    return submit_form(request, AccountsPageState(), "removed", lambda: parts.accounts.remove(name, OPERATOR))


def _opened(parts: Parts, edit: str, connector: str, client: str) -> AccountsPageState:
    if connector:
        platform, _, account = connector.partition("/")
        return AccountsPageState(
            "connector", editing=True, connector=connector_form(parts.connectors.show(platform, account))
        )
    if client:
        return AccountsPageState("client", editing=True, client=_client_form(parts, client))
    return (
        AccountsPageState("account", editing=True, account=_account_form(parts, edit)) if edit else AccountsPageState()
    )


def _account_form(parts: ApiParts, name: str) -> AccountForm:
    view = parts.accounts.show(name)
    known = view.model_dump(by_alias=False, include=set(AccountForm.model_fields) - {"models"})
    return AccountForm(**{name: str(value) for name, value in known.items()}, models=" ".join(view.models))


def _client_form(parts: ApiParts, name: str) -> ClientForm:
    view = parts.clients.show(name)
    budget = "" if view.daily_budget_usd is None else f"{view.daily_budget_usd:g}"
    return ClientForm(
        name=view.name, slug=view.slug, plan=view.plan, daily_budget_usd=budget, weight=f"{view.weight:g}"
    )


def _account_fields(typed: AccountForm) -> dict[str, object]:
    """Return the fields without surrounding blanks; blanks or commas separate models."""
    found: dict[str, object] = {name: text.strip() for name, text in typed.model_dump(exclude={"models"}).items()}
    return {**found, "models": typed.models.replace(",", " ").split()}


def _without_key(typed: AccountForm) -> AccountForm:
    """Return the fields without the key, to show them again beside an error."""
    return typed.model_copy(update={"api_key": ""})


@connectors.post("/add")
def add_connector(request: Request, parts: Parts, typed: ConnectorFormData) -> Response:
    """Add a connector, which connects at once, and redirect to the list."""

    def wish() -> None:
        where = {"platform": typed.platform, "account": typed.account.strip(), "agent": typed.agent}
        new = {**where, "secrets": _secrets(typed), "options": _options(typed)}
        parts.connectors.add(read(NewConnector, new), OPERATOR)

    return submit_form(request, AccountsPageState("connector", connector=_without_secrets(typed)), "connecting", wish)


@connectors.post("/change")
def change_connector(request: Request, parts: Parts, typed: ConnectorFormData) -> Response:
    """Change a connector, and redirect to the list; an empty secret stays."""

    def wish() -> None:
        before = parts.connectors.show(typed.platform, typed.account).options
        options = dict.fromkeys(before) | _options(typed)
        wanted = {"agent": typed.agent, "secrets": _secrets(typed), "options": options}
        parts.connectors.change(typed.platform, typed.account, read(ConnectorChange, wanted), OPERATOR)

    shown = AccountsPageState("connector", editing=True, connector=_without_secrets(typed))
    return submit_form(request, shown, "changed", wish)


@connectors.post("/enable")
def enable_connector(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Enable a connector, which connects again."""
    return _switch(request, parts, (platform, account), enabled=True)


@connectors.post("/disable")
def disable_connector(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Disable a connector: it neither receives nor sends."""
    return _switch(request, parts, (platform, account), enabled=False)


@connectors.post("/remove")
def remove_connector(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Remove a connector with its secrets."""
    return submit_form(
        request, AccountsPageState(), "removed", lambda: parts.connectors.remove(platform, account, OPERATOR)
    )


@connectors.post("/open-channel")
def open_channel(request: Request, parts: Parts, platform: Word, account: Word, channel: Word) -> Response:
    """Allow sends again to a channel that its platform had refused."""
    return submit_form(
        request,
        AccountsPageState(),
        "opened",
        lambda: parts.connectors.enable_channel(platform, account, channel, OPERATOR),
    )


def _switch(request: Request, parts: Parts, which: tuple[str, str], *, enabled: bool) -> Response:
    change = ConnectorChange(enabled=enabled)
    word = "enabled" if enabled else "disabled"
    return submit_form(request, AccountsPageState(), word, lambda: parts.connectors.change(*which, change, OPERATOR))


def _secrets(typed: ConnectorForm) -> Mapping[str, str]:
    """Return the secrets of the form."""
    given = {name.removeprefix(SECRET): str(text) for name, text in _extra(typed).items() if name.startswith(SECRET)}
    return {name: text.strip() for name, text in given.items() if text.strip()}


def _options(typed: ConnectorForm) -> dict[str, Any]:
    """Return the options of the form; raises ``InvalidEdit`` for text that is not a JSON object."""
    try:
        found = json.loads(typed.options.strip() or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidEdit('options: expected a JSON object, such as {"requireMention": false}')
    return found


def _extra(typed: ConnectorForm) -> Mapping[str, object]:
    return typed.model_extra or {}


def _without_secrets(typed: ConnectorForm) -> ConnectorForm:
    """Return the fields without the secrets, to show them again beside an error."""
    return ConnectorForm(**typed.model_dump(include=set(ConnectorForm.model_fields)))


@people.post("/pairings/approve")
def approve(request: Request, parts: Parts, pairing: Word, owner: Flag = False) -> Response:
    """Give a user access, as a user or as an owner, and notify them."""
    word = "owner" if owner else "user"
    return submit_form(
        request,
        AccountsPageState(),
        word,
        lambda: parts.people.approve(pairing, OPERATOR, PairingApproval(owner=owner)),
    )


@people.post("/pairings/refuse")
def refuse(request: Request, parts: Parts, pairing: Word) -> Response:
    """Refuse a user access without a notification."""
    return submit_form(request, AccountsPageState(), "refused", lambda: parts.people.refuse(pairing, OPERATOR))


@people.post("/pairings/invite")
def invite(request: Request, parts: Parts, owner: Flag = False) -> Response:
    """Create a pairing code and show it once."""
    invitation = parts.people.invite(OPERATOR, PairingApproval(owner=owner))
    return accounts_page(request, AccountsPageState(invitation=invitation), HTTPStatus.CREATED)


@people.post("/people/remove")
def remove_person(request: Request, parts: Parts, person: Word) -> Response:
    """Remove a user's access, from the next message on."""
    return submit_form(request, AccountsPageState(), "forgotten", lambda: parts.people.remove(person, OPERATOR))


@people.post("/clients/add")
def add_client(request: Request, parts: Parts, typed: Annotated[ClientForm, Form()]) -> Response:
    """Add a client, which agents and channels may name."""
    shown = AccountsPageState("client", client=typed)
    return submit_form(
        request, shown, "added", lambda: parts.clients.add(read(NewClient, _client_fields(typed)), OPERATOR)
    )


@people.post("/clients/change")
def change_client(request: Request, parts: Parts, typed: Annotated[ClientForm, Form()]) -> Response:
    """Change a client."""
    fields = {name: value for name, value in _client_fields(typed).items() if name != "name"}
    return submit_form(
        request,
        AccountsPageState("client", editing=True, client=typed),
        "changed",
        lambda: parts.clients.change(typed.name, read(ClientChange, fields), OPERATOR),
    )


@people.post("/clients/remove")
def remove_client(request: Request, parts: Parts, name: Word) -> Response:
    """Remove a client that nothing refers to."""
    return submit_form(request, AccountsPageState(), "removed", lambda: parts.clients.remove(name, OPERATOR))


def _client_fields(typed: ClientForm) -> dict[str, object]:
    """Return the fields without surrounding blanks; an empty budget means no budget of its own."""
    found: dict[str, object] = {name: text.strip() for name, text in typed.model_dump().items()}
    return {**found, "daily_budget_usd": found["daily_budget_usd"] or None}
