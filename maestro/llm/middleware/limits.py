"""The limits of a request: the rate and concurrency of its account, and a deadline that no byte stretches."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from maestro.domain.llm.errors import CallSite, LimiterBusy, LLMFailure, RequestTooLarge
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.precedence import FairLine, Precedence
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import LlmSettings
from maestro.llm.middleware.replay import without_snapshot
from maestro.llm.protocols import Account, Directory, LLMClient

FILL = 0.9
"""The share of a minute's limit that may be used at once: our count of tokens is an estimate."""

ROUNDING = 1e-6
"""What a bucket may lack: time is a fraction."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What an account may take: requests and tokens a minute, 0 for any number, and requests at once.

    ``background`` says how many of these may be such that no person waits for.
    """

    requests: int = 0
    tokens: int = 0
    concurrency: int = 100
    background: int = 90


class LeakyBucket:
    """How much of a limit per minute is used; it flows back evenly. Time is that of the event loop, in seconds."""

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0.0

    def seconds_until(self, need: float, per_minute: int, now: float) -> float:
        """Return after how long there is room; 0 when there is, or when nothing is limited."""
        if not per_minute:
            return 0.0
        self._flow(per_minute, now)
        lacking = self._used + need - capacity(per_minute)
        return lacking / per_minute * 60 if lacking > ROUNDING else 0.0

    def take(self, need: float) -> None:
        """Use some of it, which has to be there."""
        self._used += need

    def _flow(self, per_minute: int, now: float) -> None:
        self._used = max(0.0, self._used - (now - self._at) * per_minute / 60)
        self._at = now


def capacity(per_minute: int) -> float:
    """Return what fits a bucket: a limit of one a minute has room for one."""
    return max(1.0, per_minute * FILL)


@dataclass(slots=True, eq=False)
class LimiterSlot:
    """A request's place at a gate, in line or inside; ``admitted`` is done when it is inside.

    ``waited`` says that it was not let in at once.
    """

    tokens: int
    precedence: Precedence
    waited: bool = False
    admitted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def background(self) -> bool:
        """Say whether it is work that leaves room for people."""
        return self.precedence.in_background

    @property
    def given_up(self) -> bool:
        """Say whether it does not wait any more."""
        return self.admitted.cancelled()


class AccountLimiter:
    """Lets requests to one account through: the most urgent first, and among equals each client or channel in its turn.

    A request takes its place and its tokens together or not at all. The place is given back when it ends, tokens never
    are. Who is first in line holds up the others, or a large request would wait for ever.
    """

    def __init__(self) -> None:
        self.limits = AccountLimits()
        self._lines: dict[int, FairLine[LimiterSlot]] = {}
        self._inside = 0
        self._background_inside = 0
        self._requests = LeakyBucket()
        self._tokens = LeakyBucket()
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self, tokens: int, precedence: Precedence, seconds: float) -> LimiterSlot | None:
        """Wait for room; None when there was none within so many seconds, or will be none for longer than that."""
        place = LimiterSlot(tokens, precedence)
        if self._seconds_until_room(place) > seconds:
            return None
        self._line(place).add(precedence.key, precedence.weight, place)
        self._admit()
        return place if await self._admitted(place, seconds) else None

    def leave(self, place: LimiterSlot) -> None:
        """Give a place back."""
        self._inside -= 1
        self._background_inside -= place.background
        self._admit()

    async def _admitted(self, place: LimiterSlot, seconds: float) -> bool:
        if place.admitted.done():
            return True
        place.waited = True
        try:
            async with asyncio.timeout(seconds):
                await place.admitted
        except TimeoutError:
            self._withdraw(place)
            return False
        except asyncio.CancelledError:
            self._withdraw(place)
            raise
        return True

    def _withdraw(self, place: LimiterSlot) -> None:
        if place.given_up:
            self._admit()  # those behind it need not wait for it any more
        else:
            self.leave(place)  # it was let in at that very moment

    def _admit(self) -> None:
        """Let in whom there is room for, and look again when there will be some for the next."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while (place := self._first()) is not None and self._is_free(place):
            if seconds := self._seconds_until_room(place):
                self._alarm = asyncio.get_running_loop().call_later(seconds, self._admit)
                return
            self._let_in(place)

    def _first(self) -> LimiterSlot | None:
        """Return who is next."""
        for _, line in sorted(self._lines.items()):
            while (place := line.first()) is not None and place.given_up:
                line.skip()
            if place is not None:
                return place
        return None

    def _is_free(self, place: LimiterSlot) -> bool:
        if place.background and self._background_inside >= self.limits.background:
            return False
        return self._inside < self.limits.concurrency

    def _seconds_until_room(self, place: LimiterSlot) -> float:
        now = asyncio.get_running_loop().time()
        return max(
            self._requests.seconds_until(1, self.limits.requests, now),
            self._tokens.seconds_until(place.tokens, self.limits.tokens, now),
        )

    def _let_in(self, place: LimiterSlot) -> None:
        self._line(place).serve()
        self._requests.take(1)
        self._tokens.take(place.tokens)
        self._inside += 1
        self._background_inside += place.background
        place.admitted.set_result(None)

    def _line(self, place: LimiterSlot) -> FairLine[LimiterSlot]:
        return self._lines.setdefault(place.precedence.priority, FairLine())


class RateLimit:
    """One gate per account; the state is that of one process and one event loop."""

    def __init__(
        self, inner: LLMClient, directory: Directory, llm: Callable[[], LlmSettings], jobs: Callable[[], JobSettings]
    ) -> None:
        self._inner = inner
        self._directory = directory
        self._llm, self._jobs = llm, jobs
        self._gates: dict[str, AccountLimiter] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on when there is room for it.

        Raises ``RequestTooLarge`` at once for what the account may not take in a whole minute, and ``LimiterBusy`` when
        no room came in time.
        """
        account = self._directory.find(request.account)
        if account is None:
            return await self._inner.complete(request)  # the transport says what is wrong with it
        tokens, rules = _tokens(account, request), self._llm()
        gate = self._gates.setdefault(account.name, AccountLimiter())
        gate.limits = _limits(account, rules)
        precedence = request.precedence if self._jobs().fairness else request.precedence.in_order
        place = await gate.enter(tokens, precedence, rules.limiter_wait_seconds)
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


def _busy(account: Account, rules: LlmSettings) -> LLMFailure:
    failure = LimiterBusy(
        f"The account {account.name!r} had no room within {rules.limiter_wait_seconds:g} s under its own limits. Raise "
        "its requestsPerMinute, tokensPerMinute or concurrency, or add an account."
    )
    failure.retry_after = timedelta(seconds=rules.limiter_wait_seconds)
    return failure


def _located(account: Account, request: LLMRequest, failure: LLMFailure) -> LLMFailure:
    failure.site = CallSite(account.provider, account.name, request.model)
    return failure


def _limits(account: Account, rules: LlmSettings) -> AccountLimits:
    concurrency = account.concurrency or rules.concurrency
    return AccountLimits(
        requests=account.requests_per_minute,
        tokens=account.tokens_per_minute,
        concurrency=concurrency,
        background=max(1, concurrency - rules.reserved_for_people),
    )
