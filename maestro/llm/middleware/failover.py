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

from maestro.domain.llm.accounts import AccountModel, AccountType, Choice
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
"""What another account may do better. What is wrong with the request itself, or a person's wish, passes."""

OF_THE_WHOLE_ACCOUNT = (QuotaExhausted, AuthenticationFailed, AccountUnusable, NoAccount)
"""What every other model of the same account would meet with too."""

TIMEOUTS = 2
"""After so many timeouts in one attempt nobody else is asked: people have waited long enough to hear of it."""

REQUESTS = 2
"""An account is asked only in the time that so many whole requests take, so that all of it takes one more at most."""


@dataclass(slots=True)
class Circuit:
    """How one provider did lately; ``round`` counts the changes of state.

    An outcome counts only in the round in which its call began: what was under way when the circuit opened says
    nothing about how the provider does after that.
    """

    round: int = 0
    failures: int = 0
    successes: int = 0
    opened_at: float | None = None
    probing: bool = False

    def seconds_open(self, rules: BreakerSettings, now: float) -> float:
        """Return for how long nothing is let through, 0 when something may be."""
        return 0.0 if self.opened_at is None else max(0.0, self.opened_at + rules.open_seconds - now)

    def succeeded(self, rules: BreakerSettings) -> None:
        """Count a success; enough of them in a row close an open circuit."""
        self.failures = 0
        if self.opened_at is None:
            return
        self.successes += 1
        if self.successes >= rules.successes:
            self.opened_at = None
            self._turn()

    def failed(self, rules: BreakerSettings, now: float) -> bool:
        """Count a failure; true when the circuit opened with it, as it does with any failure of a probe."""
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
"""What a circuit is kept for: the way to a provider, its name and its address."""


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
        """Pass the request on; raises ``CircuitOpen``, having touched nothing inside, when the provider rests."""
        account = self.directory.find(request.account)
        if account is None:
            return await self.inner.complete(request)  # the transport says what is wrong with it
        circuit = self.circuits.setdefault((account.type, account.provider, account.base_url), Circuit())
        if circuit.probing or circuit.seconds_open(self.rules(), self.now()):
            raise self._refusal(circuit, account, request)
        probe = circuit.probing = circuit.opened_at is not None
        response = await self._call(circuit, account, request)
        if probe:
            await asyncio.to_thread(self.recovered)
        return response

    def _refusal(self, circuit: Circuit, account: Account, request: LLMRequest) -> CircuitOpen:
        rules = self.rules()
        seconds = circuit.seconds_open(rules, self.now())
        wait = f"for another {seconds:.0f} s" if seconds else "while one request tries whether it works again"
        failure = CircuitOpen(f"{account.provider} failed several times in a row and is left alone {wait}")
        failure.site = CallSite(account.provider, account.name, request.model)
        failure.retry_after = timedelta(seconds=seconds or rules.open_seconds)
        return failure

    async def _call(self, circuit: Circuit, account: Account, request: LLMRequest) -> LLMResponse:
        began = circuit.round
        try:
            response = await self.inner.complete(request)
        except COUNTED as failure:
            if circuit.round == began and circuit.failed(self.rules(), self.now()):
                log.warning("llm.circuit.opened", provider=account.provider, failures=circuit.failures)
            if circuit.opened_at is not None:
                failure.instead = self._refusal(circuit, account, request)
            raise
        else:
            if circuit.round == began:
                circuit.succeeded(self.rules())
                if circuit.round != began:
                    log.info("llm.circuit.closed", provider=account.provider)
            return response
        finally:
            # Whatever ended a probe, a cancellation included: the next one may begin.
            if circuit.round == began:
                circuit.probing = False


@dataclass
class FailoverProgress:
    """How one attempt went so far; ``until`` is a moment of the event loop's clock.

    ``fits`` says who can read all of what is asked.
    """

    wanted: Sequence[str]
    until: float
    exact: bool = False
    fits: Callable[[Choice], bool] = lambda _: True
    tried: set[AccountModel] = field(default_factory=set)
    failures: list[LLMFailure] = field(default_factory=list)

    def note(self, choice: Choice, failure: LLMFailure) -> None:
        """Remember who failed, so that nobody is asked the same twice."""
        whole, model = choice.keys
        self.tried.add(whole if isinstance(failure, OF_THE_WHOLE_ACCOUNT) else model)
        self.failures.append(failure)

    def may_go_on(self, now: float) -> bool:
        """Say whether there is patience left."""
        return now < self.until and self.count(ModelTimeout) < TIMEOUTS

    def count(self, *kinds: type[LLMFailure]) -> int:
        """Count the failures of these kinds."""
        return len(self.of(*kinds))

    def of(self, *kinds: type[LLMFailure]) -> list[LLMFailure]:
        """Return the failures of these kinds."""
        return [failure for failure in self.failures if isinstance(failure, kinds)]

    @property
    def repeatable(self) -> list[LLMFailure]:
        """Return the failures after which the same may be tried again soon."""
        waits = (*LIMITS, LimiterBusy)
        return [failure for failure in self.failures if failure.retryable and not isinstance(failure, waits)]

    @property
    def circuit(self) -> CircuitOpen | None:
        """Return the open circuit of a provider that may be asked again first, also one that opened just now."""
        met = (one for failure in self.failures for one in (failure, failure.instead))
        circuits = [one for one in met if isinstance(one, CircuitOpen)]
        return min(circuits, key=lambda one: one.retry_after, default=None)

    @property
    def room_in(self) -> timedelta | None:
        """Return after how long there may be room under our own limits, None where these did not matter."""
        return min((failure.retry_after or timedelta() for failure in self.of(LimiterBusy)), default=None)


class Failover:
    """Puts the account, and that account's own name of the model, into each request (docs/decisions.md: failover)."""

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
        """Answer by the best account that can.

        Whose window is too small for the request is not asked while another's is not: some providers cut a prompt
        without a word.
        Raises the last failure worth repeating, else ``AccountsExhausted`` or ``CircuitOpen`` when all that could
        answer only wait for a limit or for a provider that is left alone, else why no account can be asked. What a
        failure means for an account is committed before the next is asked.
        """
        outcome = await self._ask_around(request)
        if isinstance(outcome, LLMFailure):
            # Raised out here, where no other exception is being handled.
            raise outcome
        return outcome

    async def _ask_around(self, request: LLMRequest) -> LLMResponse | LLMFailure:
        clock = asyncio.get_running_loop()
        patience = REQUESTS * self._request_time().total_seconds()
        wanted, fits = (request.model, *request.fallbacks), WindowCheck(request, self._window)
        walk = FailoverProgress(wanted, clock.time() + patience, request.exact, fits)
        while not walk.failures or walk.may_go_on(clock.time()):
            snapshot = await self._reader.snapshot(request)
            choice = _roster(snapshot, walk).choose(walk.wanted, walk.tried, self._underway)
            if choice is None:
                break
            outcome = await self._ask(choice, request, snapshot)
            request = without_snapshot(request)
            if isinstance(outcome, LLMResponse):
                return outcome
            walk.note(choice, outcome)
            await uninterrupted(asyncio.to_thread(self._book.report, choice, outcome))
        return _verdict(walk, _roster(await self._reader.snapshot(request), walk))

    async def _ask(self, choice: Choice, request: LLMRequest, snapshot: CallSnapshot) -> LLMResponse | LLMFailure:
        """Ask one account; what another may do better is returned."""
        account = choice.account
        chosen = request.model_copy(update={"account": account.name, "model": choice.model, "snapshot": snapshot})
        (account_id, _), _ = choice.keys
        self._underway[account_id] += 1
        try:
            return await self._inner.complete(chosen)
        except MOVES_ON as failure:
            failure.site = failure.site or CallSite(account.provider, account.name, choice.model)
            return failure
        finally:
            self._underway[account_id] -= 1


def _roster(snapshot: CallSnapshot, walk: FailoverProgress) -> Roster:
    """Return the accounts that can answer with a model that is wanted, as far as others are not, and read all of it."""
    roster = snapshot.roster.able(walk.wanted) if walk.exact else snapshot.roster
    return roster.fitting(walk.wanted, walk.fits)


def _verdict(walk: FailoverProgress, roster: Roster) -> LLMFailure:
    """Return what to raise when no other account is asked."""
    nobody = roster.unavailable(walk.wanted, limited=bool(walk.of(*LIMITS)), room_in=walk.room_in)
    waits: list[AccountsExhausted | CircuitOpen] = [nobody] if isinstance(nobody, AccountsExhausted) else []
    if walk.circuit is not None:
        walk.circuit.wake_at = roster.now + walk.circuit.retry_after
        waits.append(walk.circuit)
    wait = min(waits, key=lambda one: one.wake_at or roster.now, default=None)
    if walk.repeatable:
        failure = walk.repeatable[-1]
        failure.instead = wait
        return failure
    if wait is not None:
        log.warning("no account can be asked now", until=wait.wake_at and wait.wake_at.isoformat())
        return wait
    return next(reversed(walk.of(AuthenticationFailed) or walk.failures), nobody)
