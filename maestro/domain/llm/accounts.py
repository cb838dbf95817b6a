"""Accounts of providers, their cool-downs, and the choice of the account for a call (docs/decisions.md: failover)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from pydantic import Field as ValueField
from pydantic import SecretStr
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.llm.models import api_name, provider_name
from maestro.domain.values import Page, View

DEMO = "demo"
"""The provider, account and model that answer if no account is configured (docs/decisions.md: demo model)."""

WHOLE_ACCOUNT = ""
"""The model name of a cool-down for a whole account, for example after the account's quota is used up."""

QUOTA_WAIT = timedelta(hours=1)
"""The cool-down of an account without credit if the provider does not say how long to wait."""

REFERENCES = ("env:", "file:")
"""The prefixes of a reference to a key in the environment or in a file."""


class AccountType(StrEnum):
    """The way to call an account: over HTTP with a key, or through the command line program of a subscription."""

    API_KEY = "api_key"
    CLI = "cli"


class AccountStatus(StrEnum):
    """Whether an account is in use; a refused key disables it until an operator activates it again."""

    ACTIVE = "active"
    DISABLED = "disabled"


class AccountSource(StrEnum):
    """The origin of an account; an account that is removed from configuration or environment is deleted."""

    CONFIGURATION = "configuration"
    ENVIRONMENT = "environment"
    API = "api"


class ModelAccount(SQLModel, table=True):
    """A row of ``accounts``: an account of a provider, with the state that all workers share.

    ``model`` is the default model, ``models`` are further models, separated by white space; without any, the account
    serves every model of its provider. ``secret`` is the encrypted key or a reference such as ``env:NAME``, and only
    set for accounts created through the API. ``rate_limited_until`` is the latest end of the account's cool-downs, for
    display only; the rows of ``account_limits`` decide. ``spent_usd`` does not include calls with an unknown price.
    """

    __tablename__ = "accounts"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    type: AccountType = Field(default=AccountType.API_KEY, sa_type=enum_column_type(AccountType))
    provider: str
    model: str
    models: str = ""
    base_url: str = ""
    home_dir: str = ""
    priority: int = 20
    status: AccountStatus = Field(default=AccountStatus.ACTIVE, sa_type=enum_column_type(AccountStatus))
    source: AccountSource = Field(sa_type=enum_column_type(AccountSource))
    fingerprint: str = ""
    secret: str = ""
    last4: str = ""
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0
    calls: int = 0
    spent_usd: float = 0.0
    rate_limited_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_error: str = ""
    last_error_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    def lists_model(self, model: str) -> bool:
        """Return whether the model is the account's default model or one of its further models."""
        return model == self.model or model in self.models.split()

    def api_name(self, model: str) -> str:
        """Return the provider's name of a model; a model that the account lists keeps its name."""
        return model if self.lists_model(model) else api_name(self.provider, model)


class AccountLimit(SQLModel, table=True):
    """The cool-down of one model of an account; ``strikes`` counts the rate limits since the last successful call."""

    __tablename__ = "account_limits"

    account_id: int = Field(primary_key=True, foreign_key="accounts.id")
    model: str = Field(primary_key=True)
    strikes: int = 0
    limited_at: datetime = Field(sa_type=UtcDateTime)
    limited_until: datetime = Field(sa_type=UtcDateTime)

    def is_in_force(self, now: datetime) -> bool:
        """Return whether the cool-down is in force.

        A cool-down that begins in the future is ignored, because the clock was set back after the cool-down began.
        """
        return self.limited_at <= now < self.limited_until


@dataclass(frozen=True)
class StoredKey:
    """A key as it is stored: encrypted, or a reference; ``last4`` are its last characters, empty for a short key."""

    secret: str
    last4: str = ""


def last4(secret: str) -> str:
    """Return the last characters of a secret for display, empty for a secret that is too short to show any."""
    return secret[-4:] if len(secret) >= 16 else ""


AccountModel = tuple[int, str]
"""The id of an account and one of its models, or ``WHOLE_ACCOUNT``."""


@dataclass(frozen=True)
class AccountChoice:
    """An account, and the provider's name of the model to call (docs/decisions.md: failover)."""

    account: ModelAccount
    model: str

    @property
    def keys(self) -> tuple[AccountModel, AccountModel]:
        """The keys by which the cool-downs of the whole account and of this model are found."""
        account_id = self.account.id or 0
        return (account_id, WHOLE_ACCOUNT), (account_id, self.model)

    def cool_down_end(self, limited: Mapping[AccountModel, datetime]) -> datetime | None:
        """Return when both the account and the model are out of cool-down, None without a cool-down."""
        return max((limited[key] for key in self.keys if key in limited), default=None)


def choose_account(
    accounts: Sequence[ModelAccount],
    models: Sequence[str],
    limited: Mapping[AccountModel, datetime],
    tried: Collection[AccountModel] = (),
    underway: Mapping[int, int] = MappingProxyType({}),
) -> AccountChoice | None:
    """Return the account to call, None if no active account is free; accounts for the first model are preferred.

    ``models`` are the requested model and its fallbacks, as ``provider/model`` or names that imply a provider.
    ``limited`` holds the end of each cool-down, ``tried`` the accounts and models that failed in this call.
    ``underway`` is the number of calls in progress by account id. Among the accounts for one model, the lowest priority
    comes first, then the fewest calls.
    """

    def rank(account: ModelAccount) -> tuple[int, int, int]:
        account_id = account.id or 0
        return account.priority, account.calls + underway.get(account_id, 0), account_id

    ranked = list_candidates(sorted(accounts, key=rank), models)
    return next((choice for choice in ranked if not any(key in limited or key in tried for key in choice.keys)), None)


def accounts_for_models(accounts: Sequence[ModelAccount], models: Sequence[str]) -> list[ModelAccount]:
    """Return the accounts that can serve at least one of the models itself, without a substitute model."""
    return [account for account in accounts if any(can_serve(account, model) for model in filter(None, models))]


def can_serve(account: ModelAccount, model: str) -> bool:
    """Return whether an account serves a model: the account lists it, or serves every model of its provider."""
    if account.lists_model(model):
        return True
    is_accepted = not account.models or account.lists_model(account.api_name(model))
    return account.provider == provider_name(model) and is_accepted


def list_candidates(accounts: Sequence[ModelAccount], models: Sequence[str]) -> list[AccountChoice]:
    """Return the active accounts, each with the model to call; accounts that serve the first model come first.

    An account may occur with several of the models. An account that serves none of them comes last, with its default
    model.
    """
    active = [account for account in accounts if account.status is AccountStatus.ACTIVE]
    able = [
        AccountChoice(account, account.api_name(model))
        for model in filter(None, models)
        for account in active
        if can_serve(account, model)
    ]
    serving = {choice.account.name for choice in able}
    return [*able, *(AccountChoice(account, account.model) for account in active if account.name not in serving)]


def first_recovery(
    accounts: Sequence[ModelAccount],
    models: Sequence[str],
    limited: Mapping[AccountModel, datetime],
    unfit: Collection[AccountModel] = (),
) -> datetime | None:
    """Return the earliest end of a cool-down among the accounts for a call, None without a cool-down.

    Accounts and models in ``unfit`` do not count.
    """
    fit = (choice for choice in list_candidates(accounts, models) if not any(key in unfit for key in choice.keys))
    return min(filter(None, (choice.cool_down_end(limited) for choice in fit)), default=None)


def cool_down_length(strikes: int, retry_after: timedelta | None, ladder: Sequence[timedelta]) -> timedelta:
    """Return the length of a cool-down: the ``ladder`` step, or the provider's requested wait if that is longer.

    ``strikes`` counts the rate limits in a row, the latest included. ``retry_after`` is None if the provider requested
    no wait. ``ladder`` holds the length for each number of strikes.
    """
    step = ladder[min(strikes, len(ladder)) - 1]
    return max(step, retry_after or step)


class AccountState(StrEnum):
    """Whether an account can be called now."""

    ACTIVE = "active"
    LIMITED = "limited"
    DISABLED = "disabled"


class LimitView(View):
    """A cool-down of one model of an account and its end; an empty ``model`` means the whole account."""

    model: str
    until: datetime


class AccountView(View):
    """An account of a provider with its usage, its last error and its cool-downs.

    ``state`` is ``limited`` while a cool-down in ``limits`` is in force. ``last4`` are the last characters of the key,
    if the key is long enough. ``reference`` says where the key is stored if it is not in the database, such as
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
    """A page of accounts, in the order in which Maestro tries them."""


class NewAccount(View):
    """An account to create; ``api_key`` is a key, which is stored encrypted, or ``env:NAME`` or ``file:PATH``.

    A field that is not given gets the default of ``llm.accounts`` in the configuration.
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
    return AccountView.from_row(
        account,
        models=tuple(account.models.split()),
        state=AccountState.DISABLED if account.status is AccountStatus.DISABLED else state,
        limits=limits,
        rate_limited_until=max((limit.until for limit in limits), default=None),
        reference=account.secret if account.secret.startswith(REFERENCES) else "",
    )
