"""Makes, changes and removes accounts for operators, under the rules of the configuration (decision 22)."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic.alias_generators import to_camel

from maestro.bootstrap.models import without_login
from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.account_views import AccountChange, AccountView, NewAccount, account_view
from maestro.domain.llm.accounts import DEMO, AccountSource, AccountType, KeptKey, ModelAccount
from maestro.domain.llm.models import own_name
from maestro.settings import AccountSettings
from maestro.settings.problems import refuse, translate
from maestro.store.store import Store
from maestro.store.transaction import Transaction

Keep = Callable[[str], KeptKey]
"""Turns a key or a reference into what the store may hold of it; raises ``ConfigurationError``."""

UNSPOKEN = {"status", "api_key"}
"""What the rules of an entry of the configuration do not judge as it is."""

_KEY = re.compile(r"[!-~]*|file:[^\0-\x1f]*")


class StoreAccountControl:
    """Changes accounts in the store, where every worker sees them; an ``AccountControl``."""

    def __init__(self, store: Store, keep: Keep) -> None:
        self._store = store
        self._keep = keep

    def add(self, new: NewAccount, actor: str) -> AccountView:
        """Make an account; raises ``ConfigurationError`` for what cannot be, ``Conflict`` for a name that is taken."""
        entry = _entry(new.model_dump(by_alias=False))
        if entry.provider == DEMO:
            raise ConfigurationError("provider: the demo model answers by itself while there is no account")
        secret = self._secret(new.api_key)
        with self._store.begin() as tx:
            row = ModelAccount(
                **_columns(entry), **secret, source=AccountSource.API, created_at=tx.now, updated_at=tx.now
            )
            tx.accounts.add(row)
            tx.audit.add(actor, "account.add", new.name)
            return _view(tx, row)

    def change(self, name: str, change: AccountChange, actor: str) -> AccountView:
        """Change an account; of one that the API did not make, only the status. Raises as ``add`` does."""
        given = change.model_dump(by_alias=False, exclude_none=True)
        columns = {column: value for column, value in given.items() if column != "api_key"}
        if change.api_key is not None:
            columns |= self._secret(change.api_key)
        with self._store.begin() as tx:
            row = tx.accounts.get(name)
            if row.source is AccountSource.API and set(given) - {"status"}:
                judged = _columns(_changed(row, given))
                columns |= {column: judged[column] for column in set(given) & set(judged)}
            if columns:
                row = tx.accounts.change(name, columns)
                tx.audit.add(actor, "account.change", name, ", ".join(sorted(given)))
            return _view(tx, row)

    def remove(self, name: str, actor: str) -> None:
        """Remove an account that the API made; raises ``Conflict`` for any other."""
        with self._store.begin() as tx:
            tx.accounts.remove(name)
            tx.audit.add(actor, "account.remove", name)

    def _secret(self, api_key: SecretStr) -> Mapping[str, Any]:
        """Return the columns of a key; the errors never quote it."""
        key = api_key.get_secret_value().strip()
        if not _KEY.fullmatch(key):
            raise ConfigurationError("apiKey: expected the key itself, without blanks, or env:NAME, or file:PATH")
        kept = self._keep(key) if key else KeptKey("")
        return {"secret": kept.secret, "last4": kept.last4}


def _entry(fields: Mapping[str, Any]) -> AccountSettings:
    """Return the account as an entry of the configuration, which has the rules; errors name its keys."""
    try:
        entry = AccountSettings.model_validate({to_camel(name): value for name, value in fields.items()})
    except ValidationError as error:
        raise refuse(translate(error, (), {})) from None
    if without_login(entry.base_url) != entry.base_url:
        raise ConfigurationError(
            "baseUrl: a user and a password in it would be shown with the account; leave them out, or write "
            "the account into llm.accounts of the configuration"
        )
    return entry


def _columns(entry: AccountSettings) -> Mapping[str, Any]:
    described = set(AccountSettings.model_fields) - UNSPOKEN
    columns = entry.model_dump(by_alias=False, include=described)
    models = " ".join(own_name(entry.provider, model) for model in entry.models)
    own = {"type": AccountType(entry.type), "model": own_name(entry.provider, entry.model), "models": models}
    return {**columns, **own}


def _changed(row: ModelAccount, given: Mapping[str, Any]) -> AccountSettings:
    """Return what an account would be after a change; the key itself matters only as being there."""
    if "base_url" in given and given["base_url"] != row.base_url and row.secret and "api_key" not in given:
        raise ConfigurationError(
            "baseUrl: give the apiKey again with another address, so that no key goes where it was not meant for"
        )
    described = set(AccountSettings.model_fields) - UNSPOKEN
    before = {**row.model_dump(include=described), "models": row.models.split(), "api_key": row.secret}
    return _entry({**before, **{name: value for name, value in given.items() if name != "status"}})


def _view(tx: Transaction, row: ModelAccount) -> AccountView:
    return account_view(row, tx.accounts.limits())
