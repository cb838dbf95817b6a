"""Keeps to what an account may take a minute and at once, before its provider has to say no."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.llm.errors import CallSite, LimiterBusy, LLMFailure, RequestTooLarge
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.llm.tokens import estimate_input
from maestro.llm.limiter import FILL, Gate, Limits, capacity
from maestro.llm.middleware.call_snapshot import without_snapshot
from maestro.llm.protocols import Account, Directory, LLMClient


@dataclass(frozen=True, slots=True)
class LimiterRules:
    """What holds for every account: calls at once where it has no limit of its own, and how long a call waits.

    Of the calls at once, ``reserved_for_people`` are left free by background work, at most all but one. Where ``fair``,
    each client or channel gets its share of what is free.
    """

    concurrency: int = 100
    reserved_for_people: int = 10
    wait_seconds: float = 30.0
    fair: bool = True


class RateLimit:
    """One gate per account; the state is that of one process and one event loop."""

    def __init__(
        self, inner: LLMClient, directory: Directory, rules: Callable[[], LimiterRules] = LimiterRules
    ) -> None:
        self._inner = inner
        self._directory = directory
        self._rules = rules
        self._gates: dict[str, Gate] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on when there is room for it.

        Raises ``RequestTooLarge`` at once for what the account may not take in a whole minute, and ``LimiterBusy`` when
        no room came in time.
        """
        account = self._directory.find(request.account)
        if account is None:
            return await self._inner.complete(request)  # the transport says what is wrong with it
        tokens, rules = _tokens(account, request), self._rules()
        gate = self._gates.setdefault(account.name, Gate())
        gate.limits = _limits(account, rules)
        precedence = request.precedence if rules.fair else request.precedence.in_order
        place = await gate.enter(tokens, precedence, rules.wait_seconds)
        if place is None:
            raise _located(account, request, _busy(account, rules))
        try:
            return await self._inner.complete(without_snapshot(request) if place.waited else request)
        finally:
            gate.leave(place)


def _tokens(account: Account, request: LLMRequest) -> int:
    """Return what a request may take in all, 0 where nobody counts; raises ``RequestTooLarge``."""
    if not account.tokens_per_minute:
        return 0
    tokens = estimate_input(request) + request.max_output_tokens
    most = capacity(account.tokens_per_minute)
    if tokens > most:
        message = (
            f"The account {account.name!r} may take {most:.0f} tokens at once ({FILL:.0%} of its tokensPerMinute), the "
            f"request {tokens} with its answer. Raise tokensPerMinute, or lower llm.maxOutputTokens."
        )
        raise _located(account, request, RequestTooLarge(message))
    return tokens


def _busy(account: Account, rules: LimiterRules) -> LLMFailure:
    failure = LimiterBusy(
        f"The account {account.name!r} had no room within {rules.wait_seconds:g} s under its own limits. Raise its "
        "requestsPerMinute, tokensPerMinute or concurrency, or add an account."
    )
    failure.retry_after = timedelta(seconds=rules.wait_seconds)
    return failure


def _located(account: Account, request: LLMRequest, failure: LLMFailure) -> LLMFailure:
    failure.site = CallSite(account.provider, account.name, request.model)
    return failure


def _limits(account: Account, rules: LimiterRules) -> Limits:
    concurrency = account.concurrency or rules.concurrency
    return Limits(
        requests=account.requests_per_minute,
        tokens=account.tokens_per_minute,
        concurrency=concurrency,
        background=max(1, concurrency - rules.reserved_for_people),
    )
