"""Accounts in a store, and a model that fails for those it is told, for tests of who is asked."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import SecretStr

from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.llm.calls import LLMFailure, RateLimited
from maestro.domain.llm.models import ModelTable
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.settings.llm import BudgetSettings
from maestro.llm.accounts import AccountBook, WindowOf
from maestro.llm.middleware.failover import Failover
from maestro.llm.middleware.replay import CallReader, Keep, ReplayGuard
from maestro.llm.protocols import Account, LLMClient
from maestro.store.store import Store
from tests.support.answer_spool import answer_spool
from tests.support.llm_requests import response_of

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LADDER = (timedelta(minutes=1), timedelta(minutes=5))
WINDOWS = ModelTable().context_window
SPEC = {"claude": "anthropic/claude-haiku-4-5", "gpt": "openai/gpt-4o-mini", "local": "ollama/llama3.1"}

Outcome = Exception | None
Asked = tuple[str, str]


class Clock:
    """A clock that a test sets."""

    now = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


class Model:
    """Fails for the accounts it is told, each time a failure of its own, and notes who was asked for what."""

    def __init__(self, failures: Mapping[str, Callable[[], Exception]], after: Callable[[], None] = lambda: None):
        self.failures = dict(failures)
        self.asked: list[Asked] = []
        self._after = after

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer or fail."""
        self.asked.append((request.account, request.model))
        self._after()
        if request.account in self.failures:
            raise self.failures[request.account]()
        return response_of(f"from {request.account}")


def limited(seconds: float | None = None) -> Callable[[], Exception]:
    """Return what makes a 429."""
    return lambda: RateLimited("limited", timedelta(seconds=seconds) if seconds is not None else None)


def failing(kind: type[LLMFailure]) -> Callable[[], Exception]:
    """Return what makes a failure of this kind."""
    return lambda: kind("failed") if kind is not RateLimited else RateLimited("limited")


def row(name: str, **values: object) -> ModelAccount:
    """A configured account."""
    provider, _, model = SPEC.get(name, "openai/m").partition("/")
    account = ModelAccount(
        name=name,
        provider=provider,
        model=model,
        priority=list(SPEC).index(name) if name in SPEC else 50,
        source=AccountSource.CONFIGURATION,
        created_at=START,
        updated_at=START,
    )
    for column, value in values.items():
        setattr(account, column, value)
    return account


def own(*rows: ModelAccount) -> list[Account]:
    """What this process knows of the accounts."""
    return [Account(one.name, one.provider, one.model, one.type, SecretStr("sk-1")) for one in rows]


def book(store: Store, rows: Sequence[ModelAccount], reveal: Callable[[str], SecretStr] = SecretStr) -> AccountBook:
    """Enter the accounts and return the book of a process that has all their keys."""
    with store.begin() as tx:
        tx.llm.accounts.set_configured([one for one in rows if one.source is AccountSource.CONFIGURATION])
    return AccountBook(store, own(*rows), reveal, lambda: LADDER)


def failover(store: Store, model: Model, *names: str, seconds: float = 100.0) -> Failover:
    """Return the middleware over accounts of these names, in this order."""
    return failover_of(store, model, book(store, [row(name) for name in names]), seconds=seconds)


def failover_of(
    store: Store, model: LLMClient, accounts: AccountBook, window: WindowOf = WINDOWS, seconds: float = 100.0
) -> Failover:
    """Return the middleware over the accounts of a book."""
    return Failover(model, reader(store, accounts), accounts, lambda: timedelta(seconds=seconds), window)


def replay_guard(store: Store, inner: LLMClient, keep: Keep = lambda *_: None) -> ReplayGuard:
    """Return the outermost middleware, in a process that has no keys."""
    return ReplayGuard(inner, store, reader(store), answer_spool(store, keep))


def reader(
    store: Store, accounts: AccountBook | None = None, budgets: BudgetSettings | None = None, *, chat: bool = True
) -> CallReader:
    """Return what reads the snapshots of calls; without a book, in a process that has no keys."""
    known = accounts or AccountBook(store, [], SecretStr, lambda: LADDER)
    return CallReader(store, known, lambda: budgets or BudgetSettings(day_usd=0), chat=chat)
