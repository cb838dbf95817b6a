"""Accounts at providers of models: their state, and how an operator changes them (decision 22)."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.llm.account_views import (
    AccountChange,
    AccountPage,
    AccountView,
    NewAccount,
    account_page,
    account_view,
)

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["accounts"], prefix="/api/accounts")

Cursor = Annotated[str | None, Query(pattern=r"^\d{1,9}\.\d{1,18}$")]


@router.get("")
def list_accounts(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: Cursor = None
) -> AccountPage:
    """List the accounts, those asked first at the head, with their state, limits, spend and last error."""
    with parts.store.view() as tx:
        return account_page(tx.accounts.all(), tx.accounts.limits(), cursor, limit)


@router.post("", status_code=HTTPStatus.CREATED)
def add_account(parts: Parts, new: NewAccount) -> AccountView:
    """Make an account, which is asked from the next call on; its key is stored encrypted and never returned."""
    return parts.accounts.add(new, OPERATOR)


@router.get("/{name:path}")
def show_account(parts: Parts, name: str) -> AccountView:
    """Return an account."""
    with parts.store.view() as tx:
        return account_view(tx.accounts.get(name), tx.accounts.limits())


@router.patch("/{name:path}")
def change_account(parts: Parts, name: str, change: AccountChange) -> AccountView:
    """Change an account; of one from configuration or environment only the status, 409 for more."""
    return parts.accounts.change(name, change, OPERATOR)


@router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
def remove_account(parts: Parts, name: str) -> None:
    """Remove an account that was made here; 409 for one from configuration or environment."""
    parts.accounts.remove(name, OPERATOR)
