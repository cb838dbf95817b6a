"""The accounts of one process, what a request is expected to cost at one, and whether it fits its model's window."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

import structlog
from pydantic import SecretStr

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import (
    DEMO,
    WHOLE_ACCOUNT,
    AccountModel,
    AccountSource,
    AccountStatus,
    AccountType,
    Choice,
    ModelAccount,
    able,
    candidates,
    choose,
    soonest,
)
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.errors import (
    AccountsExhausted,
    AccountUnusable,
    AuthenticationFailed,
    LLMFailure,
    ModelTimeout,
    NoAccount,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.models import Price, estimate_input, reserve
from maestro.domain.llm.prompts import LLMRequest
from maestro.llm.protocols import Account, Directory
from maestro.store.store import Store
from maestro.store.transaction import Transaction

log = structlog.get_logger(__name__)

Ladder = Callable[[], Sequence[timedelta]]
"""How long a model is left alone after its first, second, ... limit in a row; asked at each limit."""

Reveal = Callable[[str], SecretStr]
"""Turns what the store holds of a key into the key; raises ``ConfigurationError`` with the fix, and without the key."""

READ_AGAIN = 30.0
"""Seconds after which a key that could not be read is read again."""

TOO_SMALL = " Those that could answer now have too small a window for this message (see window in llm.models)."

DEMO_ACCOUNT = Account(name=DEMO, provider=DEMO, model=DEMO)

PriceOf = Callable[[str], Price | None]
"""The list price of a model given as ``provider/model``, None when nobody knows it."""

SUBSCRIPTION = Price(0, 0)
"""What the tokens of a subscription cost: it is paid whether they are used or not."""

WindowOf = Callable[[str], int]
"""The tokens of the window of a model given as ``provider/model``."""

ANSWER_SHARE = 4
"""Of a window's reserve the answer gets at least this part; the rest may be taken by tools, which no prompt counts."""


MARGIN = 500
"""Tokens that are left over for what providers add around turns and tools."""


@dataclass(frozen=True)
class Roster:
    """Every account at one moment: ``usable`` are those whose key this process has.

    ``unfit`` are models that a request is too large for.
    """

    now: datetime
    known: Sequence[ModelAccount]
    usable: Sequence[ModelAccount]
    limited: Mapping[AccountModel, datetime]
    unfit: frozenset[AccountModel] = frozenset()

    def choose(
        self, wanted: Sequence[str], tried: Collection[AccountModel], underway: Mapping[int, int]
    ) -> Choice | None:
        """Return whom to ask; the demo model while there is no account at all (docs/decisions.md: demo model)."""
        accounts = self.usable if self.known else (_demo(self.now),)
        return choose(accounts, wanted, self.limited, self.unfit.union(tried), underway)

    def able(self, wanted: Sequence[str]) -> Self:
        """Return it without those that would answer with another model than a wanted one."""
        return replace(self, usable=able(self.usable, wanted))

    def fitting(self, wanted: Sequence[str], fits: Callable[[Choice], bool]) -> Self:
        """Return it so that only those are asked, and waited for, who can read all of a request.

        Where nobody can, and where there is nobody to choose from, it stays as it is.
        """
        everybody = candidates(self.usable, wanted)
        if len(everybody) < 2:
            return self
        fit = {choice.keys for choice in everybody if fits(choice)}
        unfit = {choice.keys for choice in everybody} - fit
        return replace(self, unfit=frozenset(model for _, model in unfit)) if fit else self

    def unavailable(self, wanted: Sequence[str], *, limited: bool, room_in: timedelta | None = None) -> LLMFailure:
        """Return why nobody can be asked; ``limited`` says that somebody was limited just now.

        Then the limit may have ended already, and the job goes on at once. ``room_in`` is after how long there may be
        room under a limit of our own.
        """
        recovered = soonest(self.usable, wanted, self.limited, self.unfit) or (self.now if limited else None)
        room_at = self.now + room_in if room_in is not None else None
        wake_at = min(filter(None, (recovered, room_at)), default=None)
        if wake_at is None:
            return NoAccount(f"{NoAccount.public} {self._fix()}")
        failure = AccountsExhausted(
            f"{AccountsExhausted.public} The first of them may be asked again at {wake_at:%Y-%m-%d %H:%M:%S} UTC; "
            f"another account would answer sooner.{TOO_SMALL if self.unfit else ''}"
        )
        failure.wake_at = wake_at
        return failure

    def _fix(self) -> str:
        active = [account.name for account in self.known if account.status is AccountStatus.ACTIVE]
        if not active:
            return "Every account is disabled: give one a working key, or enable it with `maestro accounts enable`."
        return f"This process has no key for {', '.join(active)}: start it with the same configuration as the others."


@dataclass(frozen=True)
class RevealedKey:
    """What came of reading an account's key: of which version of its row, when, and why there is none."""

    version: datetime
    at: float
    account: Account | None = None
    reason: str = ""

    def holds(self, row: ModelAccount, now: float) -> bool:
        """Say whether it is to be read no more."""
        return self.version == row.updated_at and (self.account is not None or now < self.at + READ_AGAIN)


class AccountBook:
    """Knows whom this process can call, and writes down what becomes of those who are called.

    ``own`` are the accounts of configuration and environment, whose keys never enter the store. Those that the API made
    have theirs in the store; they are found while Maestro runs. A key that cannot be read is tried again after
    ``READ_AGAIN``, so that mending a file is enough; ``clock`` counts seconds and is never set.
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
        self._found: Mapping[str, Account] = {}

    def find(self, name: str) -> Account | None:
        """Return an account that was in the roster when it was last read; never blocks."""
        found = self._found.get(name)
        return DEMO_ACCOUNT if found is None and name == DEMO else found

    def read(self) -> Roster:
        """Return the accounts as they are now."""
        with self._store.view() as tx:
            return self.roster(tx)

    def roster(self, tx: Transaction) -> Roster:
        """Return the accounts as a transaction sees them."""
        known, limited = tx.llm.accounts.with_limits()
        here = {row.name: account for row in known if (account := self._account(row)) is not None}
        # Who has left may still be asked by a call that chose it a moment ago.
        self._found = {**self._found, **here}
        return Roster(tx.now, known, [row for row in known if row.name in here], limited)

    def report(self, choice: Choice, failure: LLMFailure) -> None:
        """Commit what a failure means for the account that was asked; of our own limits it knows nothing."""
        effect = _EFFECTS.get(type(failure))
        if effect is None:
            return
        with self._store.begin() as tx:
            said = effect(tx, choice, failure, self._ladder)
        for event, facts in said.items():
            log.warning(event, account=choice.account.name, error=type(failure).__name__, **facts)

    def _account(self, row: ModelAccount) -> Account | None:
        """Return what it takes to call an account, None when this process cannot."""
        if row.source is not AccountSource.API:
            own = self._own.get(row.name)
            return own if own is not None and own.provider == row.provider else None
        before, now = self._revealed.get(row.name), self._clock()
        if before is not None and before.holds(row, now):
            return before.account
        revealed = self._opened(row, now)
        if revealed.reason and (before is None or before.reason != revealed.reason):
            log.warning("account left out", account=row.name, reason=revealed.reason)
        self._revealed[row.name] = revealed
        return revealed.account

    def _opened(self, row: ModelAccount, now: float) -> RevealedKey:
        try:
            api_key = self._reveal(row.secret) if row.secret else SecretStr("")
        except ConfigurationError as error:
            return RevealedKey(row.updated_at, now, reason=str(error))
        return RevealedKey(row.updated_at, now, account_of_row(row, api_key))


def account_of_row(row: ModelAccount, api_key: SecretStr) -> Account:
    """Return what it takes to call an account that is known from the store."""
    shared = {"name", "provider", "model", "type", "base_url", "home_dir", "priority"}
    limits = {"requests_per_minute", "tokens_per_minute", "concurrency"}
    return Account(**row.model_dump(include=shared | limits), api_key=api_key)


Effect = Callable[[Transaction, Choice, LLMFailure, Ladder], Mapping[str, Mapping[str, object]]]
"""Writes down a failure and returns what is to be said of it in the log, by event."""


def _limit(tx: Transaction, choice: Choice, failure: LLMFailure, ladder: Ladder) -> Mapping[str, Mapping[str, object]]:
    # A subscription has one limit for all its models.
    model = WHOLE_ACCOUNT if choice.account.type is AccountType.CLI else choice.model
    until = tx.llm.accounts.limited(choice.account.name, model, failure.retry_after, ladder())
    return {"account limited": {"model": choice.model, "until": until and until.isoformat()}}


def _use_up(tx: Transaction, choice: Choice, failure: LLMFailure, _: Ladder) -> Mapping[str, Mapping[str, object]]:
    until = tx.llm.accounts.quota(choice.account.name, failure.retry_after)
    return {"account out of credit": {"until": until and until.isoformat()}}


def _refuse(tx: Transaction, choice: Choice, _failure: LLMFailure, _: Ladder) -> Mapping[str, Mapping[str, object]]:
    return {"account disabled: its key is refused": {}} if tx.llm.accounts.refused(choice.account) else {}


def _note(tx: Transaction, choice: Choice, failure: LLMFailure, _: Ladder) -> Mapping[str, Mapping[str, object]]:
    tx.llm.accounts.failed(choice.account.name, type(failure).__name__)
    return {"account failed": {"model": choice.model}}


_EFFECTS: Mapping[type[LLMFailure], Effect] = {
    RateLimited: _limit,
    QuotaExhausted: _use_up,
    AuthenticationFailed: _refuse,
    AccountUnusable: _note,
    ProviderUnavailable: _note,
    ModelTimeout: _note,
}


def _demo(now: datetime) -> ModelAccount:
    """Return the row that the demo model would have."""
    return ModelAccount(
        name=DEMO, provider=DEMO, model=DEMO, source=AccountSource.CONFIGURATION, created_at=now, updated_at=now
    )


class Estimates:
    """Estimates by list prices."""

    def __init__(self, directory: Directory, price: PriceOf) -> None:
        self._directory = directory
        self._price = price

    def least(self, request: LLMRequest) -> CallEstimate:
        """Return what a request to a chosen account costs at least should nobody ever hear of its answer: its input."""
        account = self._directory.find(request.account)
        provider = account.provider if account is not None else ""
        price = self._price_at(account.type, f"{provider}/{request.model}") if account is not None else None
        tokens = estimate_input(request)
        cost = price.cost(tokens, 0) if price is not None else None
        return CallEstimate(provider, request.model, tokens, cost, request.account)

    def most(self, choice: Choice, input_tokens: int, output_tokens: int) -> float | None:
        """Return the US dollars that a call may cost with the longest answer, None when the price is unknown.

        Providers may charge more for a prompt that they keep than for one they only read.
        """
        price = self._price_at(choice.account.type, f"{choice.account.provider}/{choice.model}")
        return price.cost(input_tokens, output_tokens, cache_written=input_tokens) if price is not None else None

    def _price_at(self, kind: AccountType, model: str) -> Price | None:
        return SUBSCRIPTION if kind is AccountType.CLI else self._price(model)


class WindowCheck:
    """Says of everybody who may be asked whether one request fits; what it takes is estimated once, when it matters."""

    def __init__(self, request: LLMRequest, window: WindowOf) -> None:
        self._request = request
        self._window = window

    def __call__(self, choice: Choice) -> bool:
        """Say whether the request and an answer go into the window of the model that would be asked."""
        window = self._window(f"{choice.account.provider}/{choice.model}")
        return self._tokens + _answer(self._request, window) <= window

    @cached_property
    def _tokens(self) -> int:
        return estimate_input(self._request)


def room(request: LLMRequest, window: int) -> int:
    """Return the tokens that may still be added to a request, given the window of the model that is asked."""
    return window - estimate_input(request) - _answer(request, window) - MARGIN


def _answer(request: LLMRequest, window: int) -> int:
    return min(request.max_output_tokens, reserve(window) // ANSWER_SHARE)
