"""Accounts of providers as operators see and change them, in the API and on the command line; keys are never shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import Field as ValueField
from pydantic import SecretStr

from maestro.domain.llm.accounts import AccountModel, AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.values import Page, View

REFERENCES = ("env:", "file:")
"""The prefixes of a reference to a key that is stored elsewhere."""


class AccountState(StrEnum):
    """Whether an account can be called now."""

    ACTIVE = "active"
    LIMITED = "limited"
    DISABLED = "disabled"


class LimitView(View):
    """A cool-down of one model and its end; an empty ``model`` means the whole account."""

    model: str
    until: datetime


class AccountView(View):
    """An account of a provider with its usage, its last error and its cool-downs.

    ``state`` is ``limited`` while any cool-down in ``limits`` is in force. ``last4`` has the last characters of its
    key, if the key is long enough. ``reference`` says where a key outside of the database is stored, such as
    ``env:NAME``. ``spentUsd`` does not include calls with an unknown price.
    """

    name: str
    type: AccountType
    provider: str
    model: str
    models: tuple[str, ...]
    base_url: str
    home_dir: str
    priority: int
    requests_per_minute: int
    tokens_per_minute: int
    concurrency: int
    source: AccountSource
    status: AccountStatus
    state: AccountState
    limits: tuple[LimitView, ...]
    rate_limited_until: datetime | None
    last4: str
    reference: str
    calls: int
    spent_usd: float
    last_error: str
    last_error_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class AccountPage(Page[AccountView]):
    """A page of accounts, in the order in which calls use them."""


class NewAccount(View):
    """An account to create; ``api_key`` is a key, which is stored encrypted, or ``env:NAME`` or ``file:PATH``.

    Fields that are not given have the defaults of ``llm.accounts`` in the configuration.
    """

    name: str
    type: AccountType = ValueField(
        default=AccountType.API_KEY, description="api_key: over HTTP; cli: the command claude"
    )
    provider: str = ValueField(default="anthropic", description="anthropic, openai, gemini, openrouter, ollama, ...")
    model: str = ValueField(default="", description="the account's default model; if empty, the provider's")
    models: tuple[str, ...] = ValueField(default=(), description="further models that the account may be called with")
    api_key: SecretStr = SecretStr("")
    base_url: str = ValueField(default="", description="the address of another server with the provider's protocol")
    home_dir: str = ValueField(default="", description="the folder with the login of a cli account")
    priority: int = ValueField(default=20, ge=0, le=1000, description="the order of calls, lowest first")
    requests_per_minute: int = ValueField(
        default=0, ge=0, description="the most requests per minute; 0: no limit by Maestro"
    )
    tokens_per_minute: int = ValueField(
        default=0, ge=0, description="the most tokens per minute; 0: no limit by Maestro"
    )
    concurrency: int = ValueField(default=0, ge=0, description="the most calls at once; 0: llm.concurrency")


class AccountChange(View):
    """The changes of an account; null leaves a field unchanged, an empty ``api_key`` removes the key."""

    status: AccountStatus | None = None
    model: str | None = None
    models: tuple[str, ...] | None = None
    api_key: SecretStr | None = None
    base_url: str | None = None
    home_dir: str | None = None
    priority: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


def account_view(account: ModelAccount, limited: Mapping[AccountModel, datetime]) -> AccountView:
    """Return the view of an account; ``limited`` holds the end of each cool-down, by account and model."""
    limits = tuple(
        LimitView(model=model, until=until)
        for (account_id, model), until in sorted(limited.items())
        if account_id == account.id
    )
    state = AccountState.LIMITED if limits else AccountState.ACTIVE
    columns = account.model_dump(include=set(AccountView.model_fields) - {"models", "rate_limited_until"})
    return AccountView(
        **columns,
        models=tuple(account.models.split()),
        state=AccountState.DISABLED if account.status is AccountStatus.DISABLED else state,
        limits=limits,
        rate_limited_until=max((limit.until for limit in limits), default=None),
        reference=account.secret if account.secret.startswith(REFERENCES) else "",
    )


def account_page(
    accounts: Sequence[ModelAccount], limited: Mapping[AccountModel, datetime], cursor: str | None, limit: int
) -> AccountPage:
    """Return a page of up to ``limit`` accounts, given in the order of calls.

    ``cursor`` is ``next`` of the previous page, None for the first page.
    """
    after = tuple(map(int, cursor.split("."))) if cursor else (-1, -1)
    following = [account for account in accounts if (account.priority, account.id or 0) > after]
    page = following[:limit]
    more = f"{page[-1].priority}.{page[-1].id}" if len(following) > limit else None
    return AccountPage(items=tuple(account_view(account, limited) for account in page), next=more)
