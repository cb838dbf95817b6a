"""Leaves a provider alone for a while that failed several times in a row."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.errors import CallSite, CircuitOpen, ModelTimeout, ProviderUnavailable
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import Account, Directory, LLMClient

log = structlog.get_logger(__name__)

COUNTED = (ProviderUnavailable, ModelTimeout)
"""The failures that are the provider's own. A refusal, a limit or an empty answer shows that it works."""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """After how many failures in a row a circuit opens, for how long, and how many successes close it again."""

    failures: int = 5
    open_seconds: float = 30.0
    successes: int = 3


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

    def seconds_left(self, rules: BreakerRules, now: float) -> float:
        """Return for how long nothing is let through, 0 when something may be."""
        return 0.0 if self.opened_at is None else max(0.0, self.opened_at + rules.open_seconds - now)

    def succeeded(self, rules: BreakerRules) -> None:
        """Count a success; enough of them in a row close an open circuit."""
        self.failures = 0
        if self.opened_at is None:
            return
        self.successes += 1
        if self.successes >= rules.successes:
            self.opened_at = None
            self._turn()

    def failed(self, rules: BreakerRules, now: float) -> bool:
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
class Breaker:
    """One circuit per provider and address, for all accounts there; ``now`` is a monotonic clock in seconds.

    An open circuit lets nothing through. When its time is over it admits one probe at a time, until enough of them have
    succeeded. The state is that of one process and one event loop. ``recovered`` is called, in a thread, after each
    probe that succeeded: it wakes the jobs that wait for the provider.
    """

    inner: LLMClient
    directory: Directory
    rules: Callable[[], BreakerRules] = BreakerRules
    now: Callable[[], float] = time.monotonic
    circuits: dict[CircuitKey, Circuit] = field(default_factory=dict)
    recovered: Callable[[], None] = lambda: None

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``CircuitOpen``, having touched nothing inside, when the provider rests."""
        account = self.directory.find(request.account)
        if account is None:
            return await self.inner.complete(request)  # the transport says what is wrong with it
        circuit = self.circuits.setdefault((account.type, account.provider, account.base_url), Circuit())
        if circuit.probing or circuit.seconds_left(self.rules(), self.now()):
            raise self._refusal(circuit, account, request)
        probe = circuit.probing = circuit.opened_at is not None
        response = await self._call(circuit, account, request)
        if probe:
            await asyncio.to_thread(self.recovered)
        return response

    def _refusal(self, circuit: Circuit, account: Account, request: LLMRequest) -> CircuitOpen:
        rules = self.rules()
        seconds = circuit.seconds_left(rules, self.now())
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
