"""Failures of accounts: failover to the next one, and a circuit breaker for a provider.

See docs/invariants.md: one layer retries; docs/decisions.md: failover.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from maestro.domain.llm.accounts import AccountChoice, AccountModel, AccountType
from maestro.domain.llm.errors import (
    AccountsExhausted,
    AccountUnusable,
    AnswerTooLarge,
    AuthenticationFailed,
    CallSite,
    CircuitOpen,
    LimiterBusy,
    LLMFailure,
    ModelTimeout,
    NoAccount,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
    RequestTooLarge,
)
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.settings.llm import BreakerSettings
from maestro.llm.accounts import AccountBook, Roster, WindowCheck, WindowOf
from maestro.llm.middleware.replay import CallReader, CallSnapshot, without_snapshot
from maestro.llm.protocols import Account, Directory, LLMClient
from maestro.supervision import uninterrupted

log = structlog.get_logger(__name__)

COUNTED = (ProviderUnavailable, ModelTimeout)
"""The failures that are the provider's own. A refusal, a limit or an empty answer shows that it works."""

LIMITS = (RateLimited, QuotaExhausted)
MOVES_ON = (
    *LIMITS,
    AuthenticationFailed,
    AccountUnusable,
    AnswerTooLarge,
    ProviderUnavailable,
    ModelTimeout,
    CircuitOpen,
    LimiterBusy,
    RequestTooLarge,
    NoAccount,
)
"""Failures that another account may not have. Those of the request itself, and a person's stop, are raised at once."""

OF_THE_WHOLE_ACCOUNT = (QuotaExhausted, AuthenticationFailed, AccountUnusable, NoAccount)
"""Failures that every model of the same account would have."""

TIMEOUTS = 2
"""Timeouts in one attempt after which no other account is asked: the user has waited long enough."""

REQUESTS = 2
"""Another account is asked only within the time of so many whole requests, so that an attempt ends after one more."""


@dataclass(slots=True)
class Circuit:
    """The recent failures of one provider; ``round`` counts the changes of state.

    An outcome counts only in the round in which its call began: what was under way when the circuit opened says
    nothing about how the provider does after that.
    """

    round: int = 0
    failures: int = 0
    successes: int = 0
    opened_at: float | None = None
    probing: bool = False

    def seconds_open(self, rules: BreakerSettings, now: float) -> float:
        """Return the seconds until a request may pass, 0 when one may now."""
        return 0.0 if self.opened_at is None else max(0.0, self.opened_at + rules.open_seconds - now)

    def succeeded(self, began: int, rules: BreakerSettings) -> bool:
        """Count a success of a call that began in a round; true when enough of them in a row closed the circuit."""
        if self.round != began:
            return False
        self.failures = 0
        if self.opened_at is None:
            return False
        self.successes += 1
        if self.successes < rules.successes:
            return False
        self.opened_at = None
        self._turn()
        return True

    def failed(self, began: int, rules: BreakerSettings, now: float) -> bool:
        """Count a failure of a call that began in a round; true when it opened the circuit, as that of a probe does."""
        if self.round != began:
            return False
        self.failures += 1
        if self.opened_at is None and self.failures < rules.failures:
            return False
        self.opened_at = now
        self._turn()
        return True

    def _turn(self) -> None:
        self.round += 1
        self.successes = 0
        self.probing = False


CircuitKey = tuple[AccountType, str, str]
"""The type of an account, its provider and its address."""


@dataclass(slots=True)
class CircuitBreaker:
    """One circuit per provider and address, for all accounts there; ``now`` is a monotonic clock in seconds.

    An open circuit lets nothing through. When its time is over it admits one probe at a time, until enough of them have
    succeeded. The state is that of one process and one event loop. ``recovered`` is called, in a thread, after each
    probe that succeeded: it wakes the jobs that wait for the provider.
    """

    inner: LLMClient
    directory: Directory
    rules: Callable[[], BreakerSettings] = BreakerSettings
    now: Callable[[], float] = time.monotonic
    circuits: dict[CircuitKey, Circuit] = field(default_factory=dict)
    recovered: Callable[[], None] = lambda: None

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``CircuitOpen`` while the provider is not to be called."""
        account = self.directory.find(request.account)
        if account is None:
            return await self.inner.complete(request)  # the transport raises the failure
        key = (account.type, account.provider, account.base_url)
        circuit = self.circuits.get(key) or self.circuits.setdefault(key, Circuit())
        if circuit.probing or circuit.seconds_open(self.rules(), self.now()):
            raise self._refusal(circuit, account, request)
        began, probe = circuit.round, circuit.opened_at is not None
        circuit.probing = probe
        try:
            response = await self.inner.complete(request)
        except COUNTED as failure:
            failure.instead = self._failed(circuit, began, account, request)
            raise
        else:
            if circuit.succeeded(began, self.rules()):
                log.info("llm.circuit.closed", provider=account.provider)
        finally:
            # After every end of a probe, a cancellation included, the next probe may begin.
            if circuit.round == began:
                circuit.probing = False
        if probe:
            await asyncio.to_thread(self.recovered)
        return response

    def _failed(self, circuit: Circuit, began: int, account: Account, request: LLMRequest) -> CircuitOpen | None:
        """Count a failure; return the error for the next request, None while the circuit is closed."""
        if circuit.failed(began, self.rules(), self.now()):
            log.warning("llm.circuit.opened", provider=account.provider, failures=circuit.failures)
        return None if circuit.opened_at is None else self._refusal(circuit, account, request)

    def _refusal(self, circuit: Circuit, account: Account, request: LLMRequest) -> CircuitOpen:
        rules = self.rules()
        seconds = circuit.seconds_open(rules, self.now())
        wait = f"for another {seconds:.0f} s" if seconds else "while one request tries whether it works again"
        failure = CircuitOpen(f"{account.provider} failed several times in a row and is left alone {wait}")
        failure.site = CallSite(account.provider, account.name, request.model)
        failure.retry_after = timedelta(seconds=seconds or rules.open_seconds)
        return failure


@dataclass
class FailoverProgress:
    """The failures of one attempt so far; ``until`` is a time of the event loop's clock.

    ``fits`` checks whether a model's window is large enough for the request.
    """

    wanted: Sequence[str]
    until: float
    exact: bool = False
    fits: Callable[[AccountChoice], bool] = lambda _: True
    tried: set[AccountModel] = field(default_factory=set)
    failures: list[LLMFailure] = field(default_factory=list)

    def note(self, choice: AccountChoice, failure: LLMFailure) -> None:
        """Note a failure, so that no account is asked the same twice."""
        whole, model = choice.keys
        self.tried.add(whole if isinstance(failure, OF_THE_WHOLE_ACCOUNT) else model)
        self.failures.append(failure)

    def may_go_on(self, now: float) -> bool:
        """Return whether another account may be called in the remaining time."""
        return now < self.until and self.count(ModelTimeout) < TIMEOUTS

    def count(self, *kinds: type[LLMFailure]) -> int:
        """Count the failures of these kinds."""
        return len(self.of(*kinds))

    def of(self, *kinds: type[LLMFailure]) -> list[LLMFailure]:
        """Return the failures of these kinds."""
        return [failure for failure in self.failures if isinstance(failure, kinds)]

    @property
    def repeatable(self) -> list[LLMFailure]:
        """Return the failures after which a retry may help soon."""
        waits = (*LIMITS, LimiterBusy)
        return [failure for failure in self.failures if failure.retryable and not isinstance(failure, waits)]

    @property
    def circuit(self) -> CircuitOpen | None:
        """Return the open circuit that closes first, also one that opened just now."""
        met = (one for failure in self.failures for one in (failure, failure.instead))
        circuits = [one for one in met if isinstance(one, CircuitOpen)]
        return min(circuits, key=lambda one: one.retry_after, default=None)

    @property
    def room_in(self) -> timedelta | None:
        """Return the time until there may be room under Maestro's own limits, None where these did not matter."""
        return min((failure.retry_after or timedelta() for failure in self.of(LimiterBusy)), default=None)


class Failover:
    """Chooses the account and its model for each request, one after the other (docs/decisions.md: failover)."""

    def __init__(
        self,
        inner: LLMClient,
        reader: CallReader,
        book: AccountBook,
        request_time: Callable[[], timedelta],
        window: WindowOf,
    ) -> None:
        """``request_time`` is how long one request to one account may take; it is asked for at each call."""
        self._inner = inner
        self._reader = reader
        self._book = book
        self._request_time = request_time
        self._window = window
        self._underway: Counter[int] = Counter()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer by the best account, of those with a window large enough where there is one.

        Raises the last failure worth repeating, else ``AccountsExhausted`` or ``CircuitOpen`` when all that could
        answer only wait, else why no account can be asked. What a failure means for an account is committed before
        the next is asked.
        """
        clock, wanted = asyncio.get_running_loop(), (request.model, *request.fallbacks)
        until = clock.time() + REQUESTS * self._request_time().total_seconds()
        progress = FailoverProgress(wanted, until, request.exact, WindowCheck(request, self._window))
        while not progress.failures or progress.may_go_on(clock.time()):
            snapshot = request.snapshot or await self._reader.read(request)
            choice = _roster(snapshot, progress).choose(wanted, progress.tried, self._underway)
            if choice is None:
                break
            account, model = choice.account, choice.model
            chosen = request.model_copy(update={"account": account.name, "model": model, "snapshot": snapshot})
            self._underway[account.id or 0] += 1
            try:
                return await self._inner.complete(chosen)
            except MOVES_ON as failure:
                failure.site = failure.site or CallSite(account.provider, account.name, model)
                progress.note(choice, failure)
            finally:
                self._underway[account.id or 0] -= 1
            await uninterrupted(asyncio.to_thread(self._book.report, choice, progress.failures[-1]))
            request = without_snapshot(request)
        raise _verdict(progress, _roster(request.snapshot or await self._reader.read(request), progress))


def _roster(snapshot: CallSnapshot, progress: FailoverProgress) -> Roster:
    """Return the accounts that can answer and read the whole request; of an exact one, those with a wanted model."""
    roster = snapshot.roster.able(progress.wanted) if progress.exact else snapshot.roster
    return roster.fitting(progress.wanted, progress.fits)


def _verdict(progress: FailoverProgress, roster: Roster) -> LLMFailure:
    """Return what to raise when no other account is asked."""
    unavailable = roster.unavailable(progress.wanted, limited=bool(progress.of(*LIMITS)), room_in=progress.room_in)
    waits: list[AccountsExhausted | CircuitOpen] = [unavailable] if isinstance(unavailable, AccountsExhausted) else []
    if progress.circuit is not None:
        progress.circuit.wake_at = roster.now + progress.circuit.retry_after
        waits.append(progress.circuit)
    wait = min(waits, key=lambda one: one.wake_at or roster.now, default=None)
    if progress.repeatable:
        failure = progress.repeatable[-1]
        failure.instead = wait
        return failure
    if wait is not None:
        log.warning("no account can be asked now", until=wait.wake_at and wait.wake_at.isoformat())
        return wait
    return next(reversed(progress.of(AuthenticationFailed) or progress.failures), unavailable)
