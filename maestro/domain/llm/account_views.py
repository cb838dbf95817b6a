"""Accounts as operators see and change them, on the API and on the command line alike; a key is never shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import Field, SecretStr

from maestro.domain.llm.accounts import AccountModel, AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.values import View

REFERENCES = ("env:", "file:")
"""How a key begins that stands elsewhere and is only referred to."""


class AccountState(StrEnum):
    """Whether an account can be asked now."""

    ACTIVE = "active"
    LIMITED = "limited"
    DISABLED = "disabled"


class LimitView(View):
    """Until when a model is left alone; an empty one means the whole account."""

    model: str
    until: datetime


class AccountView(View):
    """An account and what became of it.

    ``state`` is ``limited`` while any of its ``limits`` holds. ``last4`` are the last characters of a key long enough,
    ``reference`` is where the key stands instead, such as ``env:NAME``. ``spent_usd`` leaves out unknown prices.
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


class AccountPage(View):
    """Accounts, those asked first at the head; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[AccountView, ...]
    next: str | None


class NewAccount(View):
    """An account to make; ``api_key`` is a key, which is stored encrypted, or ``env:NAME`` or ``file:PATH``.

    What is left out is as in ``llm.accounts`` of the configuration.
    """

    name: str
    type: AccountType = Field(default=AccountType.API_KEY, description="api_key: over HTTP; cli: the command claude")
    provider: str = Field(default="anthropic", description="anthropic, openai, gemini, openrouter, ollama, ...")
    model: str = Field(default="", description="its model; without it, the provider's default")
    models: tuple[str, ...] = Field(default=(), description="another model it may be asked for")
    api_key: SecretStr = SecretStr("")
    base_url: str = Field(default="", description="another server that speaks the provider's protocol")
    home_dir: str = Field(default="", description="of a cli account, the folder with its login")
    priority: int = Field(default=20, description="the order of asking, lowest first")
    requests_per_minute: int = Field(default=0, description="requests it may take a minute; 0: no limit of ours")
    tokens_per_minute: int = Field(default=0, description="tokens it may take a minute; 0: no limit of ours")
    concurrency: int = Field(default=0, description="calls at once; 0: as llm.concurrency says")


class AccountChange(View):
    """What is to be changed of an account; what is null stays. An empty ``api_key`` takes the key away."""

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
    """Show an account; ``limited`` says until when accounts and models of theirs are left alone now."""
    limits = [(model, until) for (owner, model), until in sorted(limited.items()) if owner == account.id]
    state = AccountState.LIMITED if limits else AccountState.ACTIVE
    shown = account.model_dump(include=set(AccountView.model_fields) - {"models", "rate_limited_until"})
    return AccountView(
        **shown,
        models=tuple(account.models.split()),
        state=AccountState.DISABLED if account.status is AccountStatus.DISABLED else state,
        limits=tuple(LimitView(model=model, until=until) for model, until in limits),
        rate_limited_until=max((until for _, until in limits), default=None),
        reference=account.secret if account.secret.startswith(REFERENCES) else "",
    )


def account_page(
    accounts: Sequence[ModelAccount], limited: Mapping[AccountModel, datetime], cursor: str | None, limit: int
) -> AccountPage:
    """Show up to ``limit`` accounts, which are sorted as they are asked; the cursor is the page before's ``next``."""
    after = tuple(map(int, cursor.split("."))) if cursor else (-1, -1)
    following = [account for account in accounts if (account.priority, account.id or 0) > after]
    page = following[:limit]
    more = f"{page[-1].priority}.{page[-1].id}" if len(following) > limit else None
    return AccountPage(items=tuple(account_view(account, limited) for account in page), next=more)
