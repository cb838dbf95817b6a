"""Middleware for failures of accounts: failover to another account, and a circuit breaker for each provider.

See docs/invariants.md: one layer retries; docs/decisions.md: failover.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from maestro.domain.llm.accounts import AccountChoice, AccountModel, AccountType, accounts_for_models
from maestro.domain.llm.calls import (
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
from maestro.llm.accounts import COUNTED_FAILURES, AccountBook, Roster, WindowOf, build_context_window_check
from maestro.llm.middleware.replay import CallReader, CallSnapshot, remove_snapshot
from maestro.llm.protocols import Account, AccountDirectory, LLMClient
from maestro.supervision import finish_despite_cancellation

log = structlog.get_logger(__name__)

BREAKER_FAILURES = (ProviderUnavailable, ModelTimeout)
"""Failures that count against a provider; a refusal, a limit or an empty answer shows that the provider works."""

LIMITS = (RateLimited, QuotaExhausted)
FAILOVER_FAILURES = (*COUNTED_FAILURES, AnswerTooLarge, CircuitOpen, LimiterBusy, RequestTooLarge, NoAccount)
"""Failures after which another account is tried; an invalid request or a user's stop is raised at once."""

WHOLE_ACCOUNT_FAILURES = (QuotaExhausted, AuthenticationFailed, AccountUnusable, NoAccount)
"""Failures that concern all models of an account."""

MOST_TIMEOUTS = 2
"""The timeouts in one attempt after which no other account is called, because the user has waited long enough."""

REQUESTS = 2
"""An attempt calls another account only during this many times the time limit of one request."""


@dataclass(slots=True)
class Circuit:
    """The circuit (breaker state) of one provider address; ``round`` counts its openings and closings.

    An outcome counts only in the round in which its call began. A call that was under way when the circuit opened shows
    nothing about the provider's condition afterwards.
    """

    round: int = 0
    failures: int = 0
    successes: int = 0
    opened_at: float | None = None
    probing: bool = False

    def seconds_until_next_request(self, rules: BreakerSettings, now: float) -> float:
        """Return the seconds until a request may pass; 0 when a request may pass now."""
        return 0.0 if self.opened_at is None else max(0.0, self.opened_at + rules.open_seconds - now)

    def count_success(self, round_at_start: int, rules: BreakerSettings) -> bool:
        """Count a call that succeeded; return true if it closed the circuit, as enough successes in a row do."""
        if self.round != round_at_start:
            return False
        self.failures = 0
        if self.opened_at is None:
            return False
        self.successes += 1
        if self.successes < rules.successes:
            return False
        self.opened_at = None
        self._begin_round()
        return True

    def count_failure(self, round_at_start: int, rules: BreakerSettings, now: float) -> bool:
        """Count a call that failed; return true if it opened the circuit, as enough failures or one failed probe do."""
        if self.round != round_at_start:
            return False
        self.failures += 1
        if self.opened_at is None and self.failures < rules.failures:
            return False
        self.opened_at = now
        self._begin_round()
        return True

    def _begin_round(self) -> None:
        self.round += 1
        self.successes = 0
        self.probing = False


CircuitKey = tuple[AccountType, str, str]
"""The type of an account, its provider and its base URL; all accounts with equal values share a circuit."""


@dataclass(slots=True)
class CircuitBreaker:
    """Middleware with one circuit for all accounts at one provider address; ``now`` is a monotonic clock in seconds.

    An open circuit lets no request pass for a set time. Then it admits one probe at a time, and closes when enough
    probes have succeeded. The state belongs to one process and one event loop. ``recovered`` is called in a thread
    after each successful probe: it wakes the jobs that wait for the provider.
    """

    inner: LLMClient
    directory: AccountDirectory
    rules: Callable[[], BreakerSettings] = BreakerSettings
    now: Callable[[], float] = time.monotonic
    circuits: dict[CircuitKey, Circuit] = field(default_factory=dict)
    recovered: Callable[[], None] = lambda: None

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``CircuitOpen`` while the circuit of its provider is open."""
        account = self.directory.find(request.account)
        if account is None:
            return await self.inner.complete(request)  # no account has this name: the transport raises NoAccount
        key = (account.type, account.provider, account.base_url)
        circuit = self.circuits.get(key) or self.circuits.setdefault(key, Circuit())
        if circuit.probing or circuit.seconds_until_next_request(self.rules(), self.now()):
            raise self._circuit_open(circuit, account, request)
        round_at_start, probe = circuit.round, circuit.opened_at is not None
        circuit.probing = probe
        try:
            response = await self.inner.complete(request)
        except BREAKER_FAILURES as failure:
            failure.instead = self._count_failure(circuit, round_at_start, account, request)
            raise
        else:
            if circuit.count_success(round_at_start, self.rules()):
                log.info("llm.circuit.closed", provider=account.provider)
        finally:
            # However a probe ends, also by cancellation, the next probe may begin.
            if circuit.round == round_at_start:
                circuit.probing = False
        if probe:
            await asyncio.to_thread(self.recovered)
        return response

    def _count_failure(
        self, circuit: Circuit, round_at_start: int, account: Account, request: LLMRequest
    ) -> CircuitOpen | None:
        """Count a failure; return the error that the next request would get, or None while the circuit is closed."""
        if circuit.count_failure(round_at_start, self.rules(), self.now()):
            log.warning("llm.circuit.opened", provider=account.provider, failures=circuit.failures)
        return None if circuit.opened_at is None else self._circuit_open(circuit, account, request)

    def _circuit_open(self, circuit: Circuit, account: Account, request: LLMRequest) -> CircuitOpen:
        rules = self.rules()
        seconds = circuit.seconds_until_next_request(rules, self.now())
        wait = f"for another {seconds:.0f} s" if seconds else "while one test request is under way"
        failure = CircuitOpen(f"{account.provider} failed several times in a row and is not called {wait}")
        failure.site = CallSite(account.provider, account.name, request.model)
        failure.retry_after = timedelta(seconds=seconds or rules.open_seconds)
        return failure


@dataclass
class FailoverProgress:
    """The failures so far in one attempt at a call; after ``until`` (event loop's clock) no other account is called.

    ``fits`` checks whether a model's context window is large enough for the request.
    """

    models: Sequence[str]
    until: float
    exact: bool = False
    fits: Callable[[AccountChoice], bool] = lambda _: True
    tried: set[AccountModel] = field(default_factory=set)
    failures: list[LLMFailure] = field(default_factory=list)

    def add_failure(self, choice: AccountChoice, failure: LLMFailure) -> None:
        """Record a failed call, so that its account or model is not called again in this attempt."""
        whole, model = choice.keys
        self.tried.add(whole if isinstance(failure, WHOLE_ACCOUNT_FAILURES) else model)
        self.failures.append(failure)

    def may_call_another(self, now: float) -> bool:
        """Return whether another account may be called, judged by the elapsed time and the number of timeouts."""
        return now < self.until and len(self.list_failures(ModelTimeout)) < MOST_TIMEOUTS

    def list_failures(self, *kinds: type[LLMFailure]) -> list[LLMFailure]:
        return [failure for failure in self.failures if isinstance(failure, kinds)]

    @property
    def retryable_failures(self) -> list[LLMFailure]:
        """The failures after which a retry may soon succeed."""
        waits = (*LIMITS, LimiterBusy)
        return [failure for failure in self.failures if failure.retryable and not isinstance(failure, waits)]

    @property
    def open_circuit(self) -> CircuitOpen | None:
        """The error of the open circuit that will admit a request soonest; circuits opened by this attempt count."""
        errors = (error for failure in self.failures for error in (failure, failure.instead))
        circuits = (error for error in errors if isinstance(error, CircuitOpen))
        return min(circuits, key=lambda error: error.retry_after, default=None)

    @property
    def shortest_limiter_wait(self) -> timedelta | None:
        """The time until Maestro's own rate limits admit a request; None if these limits refused no request."""
        return min((failure.retry_after or timedelta() for failure in self.list_failures(LimiterBusy)), default=None)


@dataclass(slots=True)
class Failover:
    """Middleware that chooses the account and model for each request, and others after a failure.

    ``request_time`` returns how long one request to one account may take; it is called for each request.
    """

    inner: LLMClient
    reader: CallReader
    book: AccountBook
    request_time: Callable[[], timedelta]
    window: WindowOf
    _underway: Counter[int] = field(default_factory=Counter, init=False)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer with the best account, preferring models with a large enough context window.

        Raises the last failure that is worth a retry. Without one, raises ``AccountsExhausted`` or ``CircuitOpen`` if
        accounts will be available again, else the reason why no account can be called. The effect of a failure on an
        account, such as a cool-down, is committed before the next account is called.
        """
        clock, models = asyncio.get_running_loop(), (request.model, *request.fallbacks)
        until = clock.time() + REQUESTS * self.request_time().total_seconds()
        progress = FailoverProgress(models, until, request.exact, build_context_window_check(request, self.window))
        while not progress.failures or progress.may_call_another(clock.time()):
            snapshot = request.snapshot or await self.reader.read_snapshot(request)
            choice = choose_suitable_roster(snapshot, progress).choose_account(models, progress.tried, self._underway)
            if choice is None:
                break
            account, model = choice.account, choice.model
            chosen = request.model_copy(update={"account": account.name, "model": model, "snapshot": snapshot})
            self._underway[account.id or 0] += 1
            try:
                return await self.inner.complete(chosen)
            except FAILOVER_FAILURES as failure:
                failure.site = failure.site or CallSite(account.provider, account.name, model)
                progress.add_failure(choice, failure)
            finally:
                self._underway[account.id or 0] -= 1
            await finish_despite_cancellation(
                asyncio.to_thread(self.book.record_failure, choice, progress.failures[-1])
            )
            request = remove_snapshot(request)
        raise choose_final_failure(
            progress, choose_suitable_roster(request.snapshot or await self.reader.read_snapshot(request), progress)
        )


def choose_suitable_roster(snapshot: CallSnapshot, progress: FailoverProgress) -> Roster:
    """Return the roster with unfit models marked; for an exact request, only accounts that offer a requested model."""
    roster = snapshot.roster
    if progress.exact:
        roster = replace(roster, usable=accounts_for_models(roster.usable, progress.models))
    return roster.mark_unfit_models(progress.models, progress.fits)


def choose_final_failure(progress: FailoverProgress, roster: Roster) -> LLMFailure:
    """Return the error to raise when an attempt has no further account to call."""
    unavailable = roster.build_unavailable_error(
        progress.models, limited=bool(progress.list_failures(*LIMITS)), wait=progress.shortest_limiter_wait
    )
    waits: list[AccountsExhausted | CircuitOpen] = [unavailable] if isinstance(unavailable, AccountsExhausted) else []
    if progress.open_circuit is not None:
        progress.open_circuit.wake_at = roster.now + progress.open_circuit.retry_after
        waits.append(progress.open_circuit)
    wait = min(waits, key=lambda error: error.wake_at or roster.now, default=None)
    if progress.retryable_failures:
        failure = progress.retryable_failures[-1]
        failure.instead = wait
        return failure
    if wait is not None:
        log.warning("no account can be asked now", until=wait.wake_at and wait.wake_at.isoformat())
        return wait
    return next(reversed(progress.list_failures(AuthenticationFailed) or progress.failures), unavailable)
