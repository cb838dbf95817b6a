"""The model accounts of one process, the context windows and prices of models, and cost estimates of requests."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import structlog
from pydantic import SecretStr

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import (
    DEMO,
    WHOLE_ACCOUNT,
    AccountChoice,
    AccountModel,
    AccountSource,
    AccountStatus,
    AccountType,
    ModelAccount,
    choose_account,
    first_recovery,
    list_candidates,
)
from maestro.domain.llm.calls import (
    AccountsExhausted,
    AccountUnusable,
    AuthenticationFailed,
    CallEstimate,
    LLMFailure,
    ModelTimeout,
    NoAccount,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.models import ModelFacts, ModelTable, Price, answer_reserve, estimate_input, remove_provider
from maestro.domain.llm.prompts import LLMRequest
from maestro.domain.settings.llm import ModelSettings
from maestro.llm.protocols import Account, AccountDirectory
from maestro.store.store import Store
from maestro.store.transaction import Transaction

log = structlog.get_logger(__name__)

Ladder = Callable[[], Sequence[timedelta]]
"""A function that returns the cool-downs after the first, second, ... rate limit of a model in a row."""

Reveal = Callable[[str], SecretStr]
"""A function that decrypts a stored key; raises ``ConfigurationError``, which never quotes the key."""

REREAD_SECONDS = 30.0
"""Seconds after which a key that could not be read is read again."""

DEMO_ACCOUNT = Account(name=DEMO, provider=DEMO, model=DEMO)

PriceOf = Callable[[str], Price | None]
"""A function that returns the list price of a model ``provider/model``; None when the price is unknown."""

SUBSCRIPTION = Price(0, 0)
"""The price of tokens under a subscription: zero, because the subscription's fee does not depend on use."""

WindowOf = Callable[[str], int]
"""A function that returns the size of the context window of a model ``provider/model``, in tokens."""

ANSWER_SHARE = 4
"""An answer gets 1/4 of the reserve of a context window; tool definitions may use the rest."""

COUNTED_FAILURES = (
    RateLimited,
    QuotaExhausted,
    AuthenticationFailed,
    AccountUnusable,
    ProviderUnavailable,
    ModelTimeout,
)
"""Failures that count against the account; Maestro's own limits and invalid requests do not."""

MARGIN = 500
"""Tokens kept free for the markup that providers add around messages and tools."""


def build_model_table(configured: Iterable[ModelSettings] = ()) -> ModelTable:
    """Return the windows and prices of models: settings override Maestro's own table, which overrides litellm's table.

    See docs/decisions.md: tokens.
    """
    facts = {}
    for model in configured:
        price = None
        if model.input_usd is not None and model.output_usd is not None:
            price = Price(model.input_usd, model.output_usd)
        facts[model.name] = ModelFacts(model.window, price)
    return ModelTable(facts, litellm_model_facts)


def litellm_model_facts(model: str) -> ModelFacts:
    """Return a model's window and price from litellm's table, where a price of 0 means unknown."""
    table, name = _litellm_table(), model.lower()
    keys = (name, remove_provider(name), name.rpartition("/")[2])
    return next((table[key] for key in keys if key in table), ModelFacts())


@cache
def _litellm_table() -> Mapping[str, ModelFacts]:
    """Read litellm's table, once per process; empty when the installed release of litellm has none."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).with_name("model_prices_and_context_window_backup.json")
    if not path.is_file():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name.lower(): _entry_facts(entry) for name, entry in entries.items()}


def _entry_facts(entry: Mapping[str, Any]) -> ModelFacts:
    """Return the window and the prices per token from an entry of litellm's table; prices per second are ignored."""
    tokens, price = entry.get("max_input_tokens"), None
    reads, writes = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if reads and writes is not None:
        cached = entry.get("cache_read_input_token_cost") or reads
        cache_writes = entry.get("cache_creation_input_token_cost") or reads
        # Prices are rounded to remove floating-point noise.
        figures = (reads * 1_000_000, writes * 1_000_000, cached / reads, cache_writes / reads)
        price = Price(*(round(figure, 6) for figure in figures))
    return ModelFacts(tokens if isinstance(tokens, int) else None, price)


@dataclass(frozen=True)
class Roster:
    """A snapshot of all accounts; ``usable`` are the accounts for which this process has a key.

    ``limited`` gives the end of cool-downs. ``unfit`` are models with too small a context window for a request.
    """

    now: datetime
    known: Sequence[ModelAccount]
    usable: Sequence[ModelAccount]
    limited: Mapping[AccountModel, datetime]
    unfit: frozenset[AccountModel] = frozenset()

    def choose_account(
        self, models: Sequence[str], tried_accounts: Collection[AccountModel], open_calls_by_account: Mapping[int, int]
    ) -> AccountChoice | None:
        """Return the account and model to call; without any account, the demo model (docs/decisions.md: demo model)."""
        accounts = self.usable
        if not self.known:
            demo = ModelAccount(
                name=DEMO,
                provider=DEMO,
                model=DEMO,
                source=AccountSource.CONFIGURATION,
                created_at=self.now,
                updated_at=self.now,
            )
            accounts = (demo,)
        return choose_account(accounts, models, self.limited, self.unfit.union(tried_accounts), open_calls_by_account)

    def mark_unfit_models(self, models: Sequence[str], fits: Callable[[AccountChoice], bool]) -> Self:
        """Return the roster with those models marked as unfit whose context window is too small for the request.

        No model is marked if no model fits, or if there is only one choice.
        """
        choices = list_candidates(self.usable, models)
        if len(choices) < 2:
            return self
        fit = {choice.keys for choice in choices if fits(choice)}
        unfit = {choice.keys for choice in choices} - fit
        return replace(self, unfit=frozenset(model for _, model in unfit)) if fit else self

    def build_unavailable_error(
        self, models: Sequence[str], *, limited: bool, wait: timedelta | None = None
    ) -> LLMFailure:
        """Return the error to raise when no account can be called, with the time of a possible retry.

        ``limited`` says that an account hit its limit in this call; if that limit has already ended, the job retries at
        once. ``wait`` is the time until Maestro's own rate limits may admit a request.
        """
        recovered = first_recovery(self.usable, models, self.limited, self.unfit) or (self.now if limited else None)
        room_at = self.now + wait if wait is not None else None
        wake_at = min(filter(None, (recovered, room_at)), default=None)
        if wake_at is None:
            active = ", ".join(account.name for account in self.known if account.status is AccountStatus.ACTIVE)
            fix = f"This process has no key for {active}: start it with the same configuration as the others."
            if not active:
                fix = "Every account is disabled: give one a working key, or enable it with `maestro accounts enable`."
            return NoAccount(f"{NoAccount.public} {fix}")
        small = " The other accounts have too small a context window for this message (see window in llm.models)."
        failure = AccountsExhausted(
            f"{AccountsExhausted.public} At {wake_at:%Y-%m-%d %H:%M:%S} UTC one of them may be called again; "
            f"add an account to get answers sooner.{small if self.unfit else ''}"
        )
        failure.wake_at = wake_at
        return failure


@dataclass(frozen=True)
class RevealedKey:
    """The result of reading an account's key: the version of the account's row, the time, and the error if any."""

    version: datetime
    at: float
    account: Account | None = None
    reason: str = ""


class AccountBook:
    """The accounts that this process can call, and the record of their failures.

    ``own`` are the accounts of the configuration and the environment; their keys are never written to the store. The
    store has the keys of accounts that were added by the API. A key that cannot be read is tried again after
    ``REREAD_SECONDS``, so repairing the key file needs no restart. ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self,
        store: Store,
        own: Iterable[Account],
        reveal: Reveal,
        ladder: Ladder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._own = {account.name: account for account in own}
        self._reveal = reveal
        self._ladder = ladder
        self._clock = clock
        self._revealed: dict[str, RevealedKey] = {}
        self._available: dict[str, Account] = {}

    def find(self, name: str) -> Account | None:
        """Return an account by its name, from the roster that was read last; never reads the store and never blocks."""
        return self._available.get(name) or (DEMO_ACCOUNT if name == DEMO else None)

    def read_roster(self) -> Roster:
        """Return the current roster, read from the store."""
        with self._store.view() as tx:
            return self.read_roster_in(tx)

    def read_roster_in(self, tx: Transaction) -> Roster:
        """Return the roster, read in this transaction."""
        known, limited = tx.llm.accounts.list_with_limits()
        available = {row.name: account for row in known if (account := self._callable_account(row)) is not None}
        # Accounts that were removed stay available, because a running call may have chosen one of them.
        self._available = {**self._available, **available}
        return Roster(tx.now, known, [row for row in known if row.name in available], limited)

    def record_failure(self, choice: AccountChoice, failure: LLMFailure) -> None:
        """Record the effect of a failed call on its account, such as a cool-down; Maestro's own limits have none."""
        if not isinstance(failure, COUNTED_FAILURES):
            return
        account, facts = choice.account, dict[str, object]()
        with self._store.begin() as tx:
            match failure:
                case RateLimited():
                    # A subscription has one limit for all its models.
                    model = WHOLE_ACCOUNT if account.type is AccountType.CLI else choice.model
                    until = tx.llm.accounts.cool_down(account.name, model, failure.retry_after, self._ladder())
                    event, facts = "account limited", {"model": choice.model, "until": until and until.isoformat()}
                case QuotaExhausted():
                    until = tx.llm.accounts.begin_quota_wait(account.name, failure.retry_after)
                    event, facts = "account out of credit", {"until": until and until.isoformat()}
                case AuthenticationFailed():
                    event = "account disabled: its key is refused" if tx.llm.accounts.disable_refused(account) else ""
                case _:
                    tx.llm.accounts.record_error(account.name, type(failure).__name__)
                    event, facts = "account failed", {"model": choice.model}
        if event:
            log.warning(event, account=account.name, error=type(failure).__name__, **facts)

    def _callable_account(self, row: ModelAccount) -> Account | None:
        """Return the data for calling an account, None when this process has no key for it."""
        if row.source is not AccountSource.API:
            own = self._own.get(row.name)
            return own if own is not None and own.provider == row.provider else None
        before, now = self._revealed.get(row.name), self._clock()
        current = before is not None and before.version == row.updated_at
        if before is not None and current and (before.account is not None or now < before.at + REREAD_SECONDS):
            return before.account
        account, reason = None, ""
        try:
            account = build_account(row, self._reveal(row.secret) if row.secret else SecretStr(""))
        except ConfigurationError as error:
            reason = str(error)
            if before is None or before.reason != reason:
                log.warning("account left out", account=row.name, reason=reason)
        self._revealed[row.name] = RevealedKey(row.updated_at, now, account, reason)
        return account


def build_account(row: ModelAccount, api_key: SecretStr) -> Account:
    """Return the data for calling an account, from its row and its key."""
    shared = {"name", "provider", "model", "type", "base_url", "home_dir", "priority"}
    limits = {"requests_per_minute", "tokens_per_minute", "concurrency"}
    return Account(**row.model_dump(include=shared | limits), api_key=api_key)


@dataclass(slots=True)
class Estimates:
    """Cost estimates for requests, from list prices."""

    directory: AccountDirectory
    price: PriceOf

    def estimate_minimum(self, request: LLMRequest) -> CallEstimate:
        """Return the lowest possible cost of a request, which is the cost of its input alone."""
        account, tokens = self.directory.find(request.account), estimate_input(request)
        if account is None:
            return CallEstimate("", request.model, tokens, None, request.account)
        price = self._list_price(account.type, f"{account.provider}/{request.model}")
        cost = price.compute_cost(tokens, 0) if price is not None else None
        return CallEstimate(account.provider, request.model, tokens, cost, request.account)

    def max_usd(self, choice: AccountChoice, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of a call with the longest possible answer, in US dollars; None when the price is unknown.

        All input is priced as if written to the provider's cache, which may cost more than other input.
        """
        price = self._list_price(choice.account.type, f"{choice.account.provider}/{choice.model}")
        if price is None:
            return None
        return price.compute_cost(input_tokens, output_tokens, cache_written=input_tokens)

    def _list_price(self, account_type: AccountType, model: str) -> Price | None:
        return SUBSCRIPTION if account_type is AccountType.CLI else self.price(model)


def build_context_window_check(request: LLMRequest, window: WindowOf) -> Callable[[AccountChoice], bool]:
    """Return a function that checks whether the request and its answer fit a model's context window."""
    tokens = cache(lambda: estimate_input(request))  # The estimate is made once, at the first check.

    def fits(choice: AccountChoice) -> bool:
        size = window(f"{choice.account.provider}/{choice.model}")
        return tokens() + tokens_reserved_for_answer(request, size) <= size

    return fits


def free_tokens(request: LLMRequest, window: int) -> int:
    """Return how many tokens may still be added to a request before its model's context window is full."""
    return window - estimate_input(request) - tokens_reserved_for_answer(request, window) - MARGIN


def tokens_reserved_for_answer(request: LLMRequest, window: int) -> int:
    return min(request.max_output_tokens, answer_reserve(window) // ANSWER_SHARE)
