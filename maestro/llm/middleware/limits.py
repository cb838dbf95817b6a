"""Delays or ends a model call: the limits of its account, an operator's stop, and a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from maestro.domain.errors import Stopped
from maestro.domain.llm.errors import CallSite, LimiterBusy, LLMFailure, ModelTimeout, RequestTooLarge
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.precedence import FairQueue, Precedence
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import LlmSettings
from maestro.llm.middleware.replay import without_snapshot
from maestro.llm.protocols import Account, Directory, LLMClient
from maestro.store.cache import StoreState
from maestro.store.store import Store

FILL = 0.9
"""The share of a minute's limit that may be used at once: the count of tokens is an estimate."""

ROUNDING = 1e-6
"""The most that a bucket may lack by rounding."""

Result = TypeVar("Result")

Ready = Callable[[LLMRequest], Awaitable[None]]
"""Returns when a request can be sent at once."""


class LeakyBucket:
    """The used part of a limit per minute, which leaks evenly. Times are the event loop's, in seconds."""

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
        """Use some of it; there has to be room."""
        self._used += need

    def _flow(self, per_minute: int, now: float) -> None:
        self._used = max(0.0, self._used - (now - self._at) * per_minute / 60)
        self._at = now


def capacity(per_minute: int) -> float:
    """Return what fits a bucket: a limit of one a minute has room for one."""
    return max(1.0, per_minute * FILL)


@dataclass(slots=True, eq=False)
class LimiterSlot:
    """A request that was admitted to an account, or waits for that in a fair queue.

    ``waited`` is false where it was admitted at once; ``admitted`` is there for one that had to queue.
    """

    tokens: int
    precedence: Precedence
    background: bool
    waited: bool = False
    admitted: "asyncio.Future[None] | None" = None

    @property
    def given_up(self) -> bool:
        """Return whether it was cancelled while it waited."""
        return self.admitted is not None and self.admitted.cancelled()


class AccountLimiter:
    """The limits of one account: requests and tokens a minute, and requests at once.

    Requests that wait are admitted by priority, and among equals by a fair queue of clients or channels. A request
    takes its slot and its tokens together or not at all. The slot is given back when it ends, tokens never are. The
    first in the queue holds up the others, or a large request would wait for ever.
    """

    def __init__(self, account: Account, rules: LlmSettings) -> None:
        self.account = account
        self.rules = rules
        self._queues: dict[int, FairQueue[LimiterSlot]] = {}
        self._inside = 0
        self._background_inside = 0
        self._requests = LeakyBucket()
        self._tokens = LeakyBucket()
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self, tokens: int, precedence: Precedence, seconds: float) -> LimiterSlot | None:
        """Wait for room; None when there was none within so many seconds, or will be none for longer than that."""
        slot = LimiterSlot(tokens, precedence, precedence.in_background)
        wait = self._seconds_until_room(tokens)
        if wait > seconds:
            return None
        if not wait and self._is_free(slot) and not any(self._queues.values()):
            self._take(slot)  # no request waits, so the order of the queues does not change
            return slot
        slot.admitted = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(precedence.priority, FairQueue())
        queue.add(precedence.key, precedence.weight, slot)
        self._admit()
        return slot if await self._admitted(slot, slot.admitted, seconds) else None

    def leave(self, slot: LimiterSlot) -> None:
        """Give a slot back."""
        self._inside -= 1
        self._background_inside -= slot.background
        self._admit()

    async def _admitted(self, slot: LimiterSlot, admitted: "asyncio.Future[None]", seconds: float) -> bool:
        if admitted.done():
            return True
        slot.waited = True
        try:
            async with asyncio.timeout(seconds):
                await admitted
        except TimeoutError:
            self._withdraw(slot)
            return False
        except asyncio.CancelledError:
            self._withdraw(slot)
            raise
        return True

    def _withdraw(self, slot: LimiterSlot) -> None:
        if slot.given_up:
            self._admit()  # the requests behind it may have room now
        else:
            self.leave(slot)  # it was admitted just before the cancellation

    def _admit(self) -> None:
        """Admit the requests that there is room for, and set an alarm for when there is room for the next."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while (queue := self._first_queue()) is not None and (slot := queue.first()) is not None:
            if not self._is_free(slot):
                return
            if seconds := self._seconds_until_room(slot.tokens):
                self._alarm = asyncio.get_running_loop().call_later(seconds, self._admit)
                return
            queue.serve()
            self._take(slot)

    def _first_queue(self) -> FairQueue[LimiterSlot] | None:
        """Return the queue of the most urgent request that still waits."""
        for _, queue in sorted(self._queues.items()) if self._queues else ():
            while (slot := queue.first()) is not None and slot.given_up:
                queue.skip()
            if slot is not None:
                return queue
        return None

    def _is_free(self, slot: LimiterSlot) -> bool:
        concurrency = self.account.concurrency or self.rules.concurrency
        if slot.background and self._background_inside >= max(1, concurrency - self.rules.reserved_for_people):
            return False
        return self._inside < concurrency

    def _seconds_until_room(self, tokens: int) -> float:
        account, now = self.account, asyncio.get_running_loop().time()
        return max(
            self._requests.seconds_until(1, account.requests_per_minute, now),
            self._tokens.seconds_until(tokens, account.tokens_per_minute, now),
        )

    def _take(self, slot: LimiterSlot) -> None:
        self._requests.take(1)
        self._tokens.take(slot.tokens)
        self._inside += 1
        self._background_inside += slot.background
        if slot.admitted is not None:
            slot.admitted.set_result(None)


class RateLimit:
    """One limiter per account; the state is that of one process and one event loop."""

    def __init__(
        self, inner: LLMClient, directory: Directory, llm: Callable[[], LlmSettings], jobs: Callable[[], JobSettings]
    ) -> None:
        self._inner = inner
        self._directory = directory
        self._llm, self._jobs = llm, jobs
        self._limiters: dict[str, AccountLimiter] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on when there is room for it.

        Raises ``RequestTooLarge`` at once for what the account may not take in a whole minute, and ``LimiterBusy`` when
        no room came in time.
        """
        account = self._directory.find(request.account)
        if account is None:
            return await self._inner.complete(request)  # the transport raises the failure
        tokens, rules = _tokens(account, request), self._llm()
        limiter = self._limiters.get(account.name)
        if limiter is None:
            limiter = self._limiters[account.name] = AccountLimiter(account, rules)
        limiter.account, limiter.rules = account, rules
        precedence = request.precedence if self._jobs().fairness else request.precedence.in_order
        slot = await limiter.enter(tokens, precedence, rules.limiter_wait_seconds)
        if slot is None:
            raise _located(account, request, _busy(account, rules))
        try:
            return await self._inner.complete(without_snapshot(request) if slot.waited else request)
        finally:
            limiter.leave(slot)


def _tokens(account: Account, request: LLMRequest) -> int:
    """Return what a request may take in all, 0 where the account has no such limit; raises ``RequestTooLarge``."""
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


class StopWatch:
    """Cancels the work of a job that was stopped or ended; the store's watcher looks for all jobs together."""

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a job's work; raises ``Stopped`` when a person stopped the job meanwhile.

        A job may have several works at once. When the caller is cancelled, so is the work.
        """
        task = asyncio.create_task(work)
        self.watch(job_id, task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self.forget(job_id, task):
                raise Stopped("a person stopped this job") from None
            task.cancel()
            raise
        finally:
            self.forget(job_id, task)

    def watch(self, job_id: str, task: asyncio.Task[Any]) -> None:
        """Cancel this task when its job is asked to stop."""
        self._tasks.setdefault(job_id, set()).add(task)
        self._store.changes.watch(job_id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, job_id: str, task: asyncio.Task[Any]) -> bool:
        """Stop watching; true when the task was being watched, false when the watch had cancelled it."""
        tasks = self._tasks.get(job_id, set())
        watched = task in tasks
        tasks.discard(task)
        if not tasks:
            self._tasks.pop(job_id, None)
            self._store.changes.forget(job_id)
        return watched

    async def _look(self) -> None:
        with self._store.changes.subscribed(self._is_any_unwanted, self._seconds) as changed:
            while self._tasks:
                await changed.wait()
                changed.clear()
                for job_id in self._unwanted():
                    for task in self._tasks.pop(job_id, ()):
                        task.cancel()

    def _is_any_unwanted(self, state: StoreState) -> bool:
        return not self._tasks or not state.unwanted.isdisjoint(self._tasks)

    def _unwanted(self) -> frozenset[str]:
        state = self._store.changes.state
        return state.unwanted & self._tasks.keys() if state is not None else frozenset()


class StopGuard:
    """Runs the inner call so that the watch can cancel it."""

    def __init__(self, inner: LLMClient, watch: StopWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer, or raise ``Stopped`` when a person stopped the job meanwhile."""
        return await self._watch.until_stopped(request.key.job_id, self._inner.complete(request))


async def at_once(_request: LLMRequest) -> None:
    """Return without waiting."""


class Deadline:
    """Ends a call that takes too long; ``limit`` is read at each call.

    The clock starts when ``ready`` returns: the import of a library does not count as the provider's time.
    """

    def __init__(self, inner: LLMClient, limit: Callable[[], timedelta], ready: Ready = at_once) -> None:
        self._inner = inner
        self._limit = limit
        self._ready = ready

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when no whole answer came in time."""
        await self._ready(request)
        seconds = self._limit().total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._inner.complete(request)
        except TimeoutError:
            pass  # raised below, so that its context does not hold the cancelled call
        raise ModelTimeout(
            f"No whole answer within {seconds:g} s. {ModelTimeout.public} "
            "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds."
        )
