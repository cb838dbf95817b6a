"""The page of accounts and connectors, and its forms for accounts at providers of models."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.accounts_sheet import PAGE, Shown, TypedAccount, TypedClient, done, sheet, typed_connector
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.surroundings import Parts
from maestro.domain.errors import MaestroError
from maestro.domain.llm.account_views import AccountChange, NewAccount
from maestro.domain.llm.accounts import AccountStatus
from maestro.domain.reading import read

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Name = Annotated[str, Form()]


@router.get("")
def show(request: Request, parts: Parts, edit: str = "", connector: str = "", client: str = "") -> HTMLResponse:
    """Show everything, with the form open that changes what is named."""
    try:
        return sheet(request, _opened(parts, edit, connector, client))
    except MaestroError as error:
        return sheet(request, Shown(problem=str(error)), status_of(error))


@router.post("/add")
def add(request: Request, parts: Parts, typed: Annotated[TypedAccount, Form()]) -> Response:
    """Make an account, and lead back to the list."""
    shown = Shown("account", account=_without_key(typed))
    return done(request, shown, "added", lambda: parts.accounts.add(read(NewAccount, _fields(typed)), OPERATOR))


@router.post("/change")
def change(
    request: Request, parts: Parts, typed: Annotated[TypedAccount, Form()], forget_key: Annotated[bool, Form()] = False
) -> Response:
    """Change an account, and lead back to the list; a key that is left empty stays, unless it is to be forgotten."""

    def wish() -> None:
        fields = {name: value for name, value in _fields(typed).items() if name not in ("name", "type", "provider")}
        if not typed.api_key.strip() and not forget_key:
            fields.pop("api_key")
        parts.accounts.change(typed.name, read(AccountChange, fields), OPERATOR)

    return done(request, Shown("account", editing=True, account=_without_key(typed)), "changed", wish)


@router.post("/enable")
def enable(request: Request, parts: Parts, name: Name) -> Response:
    """Let an account be asked, from now on: what limited it is forgotten."""
    status = AccountChange(status=AccountStatus.ACTIVE)
    return done(request, Shown(), "enabled", lambda: parts.accounts.change(name, status, OPERATOR))


@router.post("/disable")
def disable(request: Request, parts: Parts, name: Name) -> Response:
    """Ask an account nothing more."""
    status = AccountChange(status=AccountStatus.DISABLED)
    return done(request, Shown(), "disabled", lambda: parts.accounts.change(name, status, OPERATOR))


@router.post("/remove")
def remove(request: Request, parts: Parts, name: Name) -> Response:
    """Remove an account with its key."""
    return done(request, Shown(), "removed", lambda: parts.accounts.remove(name, OPERATOR))


def _opened(parts: Parts, edit: str, connector: str, client: str) -> Shown:
    if connector:
        platform, _, account = connector.partition("/")
        return Shown("connector", editing=True, connector=typed_connector(parts.connectors.show(platform, account)))
    if client:
        return Shown("client", editing=True, client=_typed_client(parts, client))
    return Shown("account", editing=True, account=_typed(parts, edit)) if edit else Shown()


def _typed(parts: ApiParts, name: str) -> TypedAccount:
    view = parts.accounts.show(name)
    known = view.model_dump(by_alias=False, include=set(TypedAccount.model_fields) - {"models"})
    return TypedAccount(**{name: str(value) for name, value in known.items()}, models=" ".join(view.models))


def _typed_client(parts: ApiParts, name: str) -> TypedClient:
    view = parts.clients.show(name)
    budget = "" if view.daily_budget_usd is None else f"{view.daily_budget_usd:g}"
    return TypedClient(
        name=view.name, slug=view.slug, plan=view.plan, daily_budget_usd=budget, weight=f"{view.weight:g}"
    )


def _fields(typed: TypedAccount) -> dict[str, object]:
    """Return what was typed, without the blanks around it; models stand apart from each other by blanks or commas."""
    found: dict[str, object] = {name: text.strip() for name, text in typed.model_dump(exclude={"models"}).items()}
    return {**found, "models": typed.models.replace(",", " ").split()}


def _without_key(typed: TypedAccount) -> TypedAccount:
    """Return what may stand in the page that says what is wrong."""
    return typed.model_copy(update={"api_key": ""})
