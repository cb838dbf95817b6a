"""Accounts at model providers: who they are, when they may be asked, and which one a call goes to.

See docs/decisions.md: failover.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.llm.models import own_name, provider_of

DEMO = "demo"
"""The provider, account and model that answer while there is no account (docs/decisions.md: demo model)."""

WHOLE_ACCOUNT = ""
"""The model of a limit that holds for every model of an account, such as a used-up quota."""

QUOTA_WAIT = timedelta(hours=1)
"""How long an account without credit is left alone when nobody says until when."""


class AccountType(StrEnum):
    """How an account is used: over HTTP with a key, or through the command of a subscription."""

    API_KEY = "api_key"
    CLI = "cli"


class AccountStatus(StrEnum):
    """What people decided, or a refused key; only a person makes a disabled account active again."""

    ACTIVE = "active"
    DISABLED = "disabled"


class AccountSource(StrEnum):
    """Where an account comes from; what the configuration or the environment no longer names is removed."""

    CONFIGURATION = "configuration"
    ENVIRONMENT = "environment"
    API = "api"


class ModelAccount(SQLModel, table=True):
    """A row of ``accounts``; every worker sees its state here.

    ``model`` is its own default, ``models`` are others it may be asked for, separated by blanks; without any it takes
    every model of its provider. ``secret`` is the encrypted key or a reference such as ``env:NAME``, and only for
    accounts that the API made. ``rate_limited_until`` is the latest of its limits, for people; what counts is
    ``account_limits``. ``spent_usd`` leaves out calls whose price is unknown.
    """

    __tablename__ = "accounts"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    type: AccountType = Field(default=AccountType.API_KEY, sa_type=text_of(AccountType))
    provider: str
    model: str
    models: str = ""
    base_url: str = ""
    home_dir: str = ""
    priority: int = 20
    status: AccountStatus = Field(default=AccountStatus.ACTIVE, sa_type=text_of(AccountStatus))
    source: AccountSource = Field(sa_type=text_of(AccountSource))
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

    def takes(self, model: str) -> bool:
        """Say whether it can be asked for this model of its provider."""
        return not self.models or self.names(model)

    def names(self, model: str) -> bool:
        """Say whether the model is its default or one of those it lists."""
        return model == self.model or model in self.models.split()

    def own_name(self, model: str) -> str:
        """Return a model's name as its provider knows it; what it lists it knows by just that name."""
        return model if self.names(model) else own_name(self.provider, model)


class AccountLimit(SQLModel, table=True):
    """Until when one model of an account is left alone; ``strikes`` counts the limits since the last success."""

    __tablename__ = "account_limits"

    account_id: int = Field(primary_key=True, foreign_key="accounts.id")
    model: str = Field(primary_key=True)
    strikes: int = 0
    limited_at: datetime = Field(sa_type=UtcDateTime)
    limited_until: datetime = Field(sa_type=UtcDateTime)

    def holds(self, now: datetime) -> bool:
        """Say whether it still counts; a limit that begins in the future is one of a clock that was set back."""
        return self.limited_at <= now < self.limited_until


@dataclass(frozen=True)
class StoredKey:
    """A key as the store may hold it: encrypted, or a reference; ``last4`` is its end, empty where that is too much."""

    secret: str
    last4: str = ""


AccountModel = tuple[int, str]
"""The id of an account and one of its models, or ``WHOLE_ACCOUNT``."""


@dataclass(frozen=True)
class AccountChoice:
    """An account and the model to ask it for, which is a name of its own provider (docs/decisions.md: failover)."""

    account: ModelAccount
    model: str

    @property
    def keys(self) -> tuple[AccountModel, AccountModel]:
        """What a limit of the whole account and one of this model are known by."""
        account_id = self.account.id or 0
        return (account_id, WHOLE_ACCOUNT), (account_id, self.model)


def choose_account(
    accounts: Sequence[ModelAccount],
    wanted: Sequence[str],
    limited: Mapping[AccountModel, datetime],
    tried: Collection[AccountModel] = (),
    underway: Mapping[int, int] = MappingProxyType({}),
) -> AccountChoice | None:
    """Return whom to ask: the wanted model's provider first, then its fallbacks in order, then anybody.

    ``wanted`` are ``provider/model`` or names that imply a provider, ``limited`` says until when an account, or one of
    its models, is left alone, ``tried`` which have failed this call already, ``underway`` how many calls each account,
    by its id, is busy with. Within a provider the lowest priority wins, then who was asked least. Somebody else is
    asked for a model of their own; who has a wanted model is not asked for another one instead.
    """

    def used(account: ModelAccount) -> tuple[int, int, int]:
        account_id = account.id or 0
        return account.priority, account.calls + underway.get(account_id, 0), account_id

    ordered = [account for account in sorted(accounts, key=used) if account.status is AccountStatus.ACTIVE]
    return next((one for one in _preferred(ordered, wanted) if _free(one, limited, tried)), None)


def able_accounts(accounts: Sequence[ModelAccount], wanted: Sequence[str]) -> list[ModelAccount]:
    """Return those that can be asked for a wanted model itself: none of them would answer with another one."""
    return [account for account in accounts if any(can_serve(account, model) for model in filter(None, wanted))]


def can_serve(account: ModelAccount, model: str) -> bool:
    """Say whether an account is of the wanted model's provider and takes it, or names a model of just that name."""
    if account.names(model):
        return True
    return account.provider == provider_of(model) and account.takes(account.own_name(model))


def candidates(accounts: Sequence[ModelAccount], wanted: Sequence[str]) -> list[AccountChoice]:
    """Return everybody who may be asked for this sooner or later, and for which model."""
    return _preferred([account for account in accounts if account.status is AccountStatus.ACTIVE], wanted)


def soonest(
    accounts: Sequence[ModelAccount],
    wanted: Sequence[str],
    limited: Mapping[AccountModel, datetime],
    unfit: Collection[AccountModel] = (),
) -> datetime | None:
    """Return when the first of the accounts may be asked again, None when none of them only waits.

    Nobody waits for what is ``unfit``.
    """
    fit = (one for one in candidates(accounts, wanted) if not any(key in unfit for key in one.keys))
    return min((until for one in fit if (until := _until(one, limited))), default=None)


def cool_down(strikes: int, asked: timedelta | None, ladder: Sequence[timedelta]) -> timedelta:
    """Return how long to leave a limited model alone: what was asked, or the ladder's step if that is longer.

    ``strikes`` counts the limits in a row, this one included.
    """
    step = ladder[min(strikes, len(ladder)) - 1]
    return max(step, asked or step)


def _preferred(ordered: Sequence[ModelAccount], wanted: Sequence[str]) -> list[AccountChoice]:
    """Return every pair of account and model that may be asked, best first; an account may occur for several models."""
    named = [
        AccountChoice(account, account.own_name(model))
        for model in filter(None, wanted)
        for account in ordered
        if can_serve(account, model)
    ]
    having = {choice.account.name for choice in named}
    return [*named, *(AccountChoice(account, account.model) for account in ordered if account.name not in having)]


def _free(choice: AccountChoice, limited: Mapping[AccountModel, datetime], tried: Collection[AccountModel]) -> bool:
    return _until(choice, limited) is None and not any(key in tried for key in choice.keys)


def _until(choice: AccountChoice, limited: Mapping[AccountModel, datetime]) -> datetime | None:
    return max((limited[key] for key in choice.keys if key in limited), default=None)
