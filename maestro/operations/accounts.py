"""The operations on provider accounts: the keys, subscriptions and addresses by which models are called."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, SecretStr

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import (
    DEMO,
    AccountChange,
    AccountPage,
    AccountSource,
    AccountView,
    ModelAccount,
    NewAccount,
    StoredKey,
    account_view,
)
from maestro.operations.inputs import LIMIT, EncryptSecret, Limit
from maestro.store.store import Store
from maestro.store.transaction import Transaction

AccountCursor = Annotated[str | None, Field(pattern=r"^\d{1,9}\.\d{1,18}$")]
AccountColumns = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function that validates an account's fields and returns them as columns; raises ``ConfigurationError``."""

_KEY = re.compile(r"[!-~]*|file:[^\0-\x1f]*")


class AccountOperations:
    """The operations on provider accounts; an unknown account name raises ``NotFound``."""

    def __init__(self, store: Store, encrypt: EncryptSecret, columns: AccountColumns) -> None:
        self._store = store
        self._encrypt = encrypt
        self._columns = columns

    def list(self, limit: Limit = LIMIT, cursor: AccountCursor = None) -> AccountPage:
        """List the provider accounts in the order in which calls try them, with state, limits, spend and last error."""
        with self._store.view() as tx:
            accounts, limited = tx.llm.accounts.list_accounts(), tx.llm.accounts.read_cooldown_ends()
        after = tuple(map(int, cursor.split("."))) if cursor else (-1, -1)
        following = [account for account in accounts if (account.priority, account.id or 0) > after]
        page = following[:limit]
        more = f"{page[-1].priority}.{page[-1].id}" if len(following) > limit else None
        return AccountPage(items=tuple(account_view(account, limited) for account in page), next=more)

    def show(self, name: str) -> AccountView:
        """Return the provider account with this name."""
        with self._store.view() as tx:
            return _account_view(tx, tx.llm.accounts.get_account(name))

    def add(self, new: NewAccount, actor: str) -> AccountView:
        """Add a provider account for all later model calls; its key is stored encrypted and never returned."""
        columns = self._columns(new.model_dump(by_alias=False))
        if columns["provider"] == DEMO:
            raise ConfigurationError("provider: the demo model answers by itself while there is no account")
        secret = self._key_columns(new.api_key)
        with self._store.begin() as tx:
            row = ModelAccount(**columns, **secret, source=AccountSource.API, created_at=tx.now, updated_at=tx.now)
            tx.llm.accounts.add_account(row)
            tx.system.audit.add_entry(actor, "account.add", new.name)
            return _account_view(tx, row)

    def change(self, name: str, change: AccountChange, actor: str) -> AccountView:
        """Change an account; 409 for any field but the status of an account from the configuration or environment."""
        given = change.model_dump(by_alias=False, exclude_none=True)
        columns = {column: value for column, value in given.items() if column != "api_key"}
        if change.api_key is not None:
            columns |= self._key_columns(change.api_key)
        with self._store.begin() as tx:
            row = tx.llm.accounts.get_account(name)
            if row.source is AccountSource.API and set(given) - {"status"}:
                checked = self._columns(_changed_fields(row, given))
                columns |= {column: checked[column] for column in set(given) & set(checked)}
            if columns:
                row = tx.llm.accounts.change_account(name, columns)
                tx.system.audit.add_entry(actor, "account.change", name, ", ".join(sorted(given)))
            return _account_view(tx, row)

    def remove(self, name: str, actor: str) -> None:
        """Remove a provider account that an operator added; 409 for one from the configuration or environment."""
        with self._store.begin() as tx:
            tx.llm.accounts.remove_account(name)
            tx.system.audit.add_entry(actor, "account.remove", name)

    def _key_columns(self, api_key: SecretStr) -> Mapping[str, Any]:
        """Return the columns that store an API key; raises ``ConfigurationError``, which never quotes the key."""
        key = api_key.get_secret_value().strip()
        if not _KEY.fullmatch(key):
            raise ConfigurationError("apiKey: expected the key itself, without blanks, or env:NAME, or file:PATH")
        stored = self._encrypt(key) if key else StoredKey("")
        return {"secret": stored.secret, "last4": stored.last4}


def _changed_fields(row: ModelAccount, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an account's fields after a change, to validate them; ``api_key`` only tells whether there is a key."""
    if "base_url" in given and given["base_url"] != row.base_url and row.secret and "api_key" not in given:
        raise ConfigurationError(
            "baseUrl: give the apiKey again with another address, so that the old key is not sent to the new server"
        )
    described = set(NewAccount.model_fields) - {"api_key"}
    before = {**row.model_dump(include=described), "models": row.models.split(), "api_key": row.secret}
    return {**before, **{name: value for name, value in given.items() if name != "status"}}


def _account_view(tx: Transaction, row: ModelAccount) -> AccountView:
    return account_view(row, tx.llm.accounts.read_cooldown_ends())
