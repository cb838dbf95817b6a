"""Middleware that delays or ends a model call: the limits of its account, a stop request, and a deadline."""

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
"""The share of a limit per minute that may be used at once; less than all, because token counts are estimates."""

ROUNDING = 1e-6
"""The largest rounding error of a bucket's level."""

Result = TypeVar("Result")

Ready = Callable[[LLMRequest], Awaitable[None]]
"""A function that returns once a request can be sent without delay."""


class LeakyBucket:
    """The used part of a limit per minute, which drains evenly. Times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0.0

    def seconds_until(self, need: float, per_minute: int, now: float) -> float:
        """Return the seconds until this amount fits; 0 when it fits now, or when there is no limit."""
        if not per_minute:
            return 0.0
        self._flow(per_minute, now)
        lacking = self._used + need - capacity(per_minute)
        return lacking / per_minute * 60 if lacking > ROUNDING else 0.0

    def take(self, need: float) -> None:
        """Use this amount, which must fit."""
        self._used += need

    def _flow(self, per_minute: int, now: float) -> None:
        self._used = max(0.0, self._used - (now - self._at) * per_minute / 60)
        self._at = now


def capacity(per_minute: int) -> float:
    """Return how much a bucket holds at once: a share of the limit per minute, but at least one request."""
    return max(1.0, per_minute * FILL)


@dataclass(slots=True, eq=False)
class LimiterSlot:
    """A request that was admitted to an account, or waits in its fair queue.

    ``waited`` is false where the request was admitted at once; ``admitted`` is the future of a request that had to
    queue.
    """

    tokens: int
    precedence: Precedence
    background: bool
    waited: bool = False
    admitted: "asyncio.Future[None] | None" = None

    @property
    def given_up(self) -> bool:
        """Return whether the request was cancelled while it waited."""
        return self.admitted is not None and self.admitted.cancelled()


class AccountLimiter:
    """The limits of one account: requests per minute, tokens per minute, and concurrent requests.

    Waiting requests are admitted by priority, and among equal priorities by a fair queue of clients or channels. A
    request takes its slot and its tokens together or neither. Its end frees the slot but returns no tokens. The first
    request in the queue blocks all behind it; otherwise a large request could wait for ever.
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
        """Wait for admission; None if the request was not, or cannot be, admitted within these seconds."""
        slot = LimiterSlot(tokens, precedence, precedence.in_background)
        wait = self._seconds_until_room(tokens)
        if wait > seconds:
            return None
        if not wait and self._is_free(slot) and not any(self._queues.values()):
            self._take(slot)  # no request waits, so no queue has to choose
            return slot
        slot.admitted = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(precedence.priority, FairQueue())
        queue.add(precedence.key, precedence.weight, slot)
        self._admit()
        return slot if await self._admitted(slot, slot.admitted, seconds) else None

    def leave(self, slot: LimiterSlot) -> None:
        """Free a slot."""
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
            self.leave(slot)  # the request was admitted just before the cancellation

    def _admit(self) -> None:
        """Admit the requests that fit now, and set a timer for the next one."""
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
        """Return the queue with the highest priority that has a waiting request."""
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
    """Middleware with one limiter per account; the state is that of one process and one event loop."""

    def __init__(
        self, inner: LLMClient, directory: Directory, llm: Callable[[], LlmSettings], jobs: Callable[[], JobSettings]
    ) -> None:
        self._inner = inner
        self._directory = directory
        self._llm, self._jobs = llm, jobs
        self._limiters: dict[str, AccountLimiter] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on when the limits of its account admit it.

        Raises ``RequestTooLarge`` at once for a request with more tokens than the account's limit for a whole minute,
        and ``LimiterBusy`` when the request was not admitted in time.
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
    """Return the most tokens a request may use, 0 for an account without that limit; raises ``RequestTooLarge``."""
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
    """Cancels the tasks of jobs that were stopped or have ended; one watcher of the store serves all jobs."""

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a job's task; raises ``Stopped`` when a user or operator stopped the job meanwhile.

        A job may have several tasks at once. When the caller is cancelled, its task is cancelled as well.
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
        """Cancel this task once its job is asked to stop."""
        self._tasks.setdefault(job_id, set()).add(task)
        self._store.changes.watch(job_id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, job_id: str, task: asyncio.Task[Any]) -> bool:
        """Stop watching; true when the task was still watched, false when the watch had cancelled it."""
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
    """Middleware that runs the inner call as a task which the watch can cancel."""

    def __init__(self, inner: LLMClient, watch: StopWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``Stopped`` when a user or operator stopped the job meanwhile."""
        return await self._watch.until_stopped(request.key.job_id, self._inner.complete(request))


async def at_once(_request: LLMRequest) -> None:
    """Return immediately: the ``ready`` of a transport that needs no preparation."""


class Deadline:
    """Middleware that ends a call after ``limit``, which is read for each call.

    The time counts from the return of ``ready``, so the import of litellm does not count as the provider's time.
    """

    def __init__(self, inner: LLMClient, limit: Callable[[], timedelta], ready: Ready = at_once) -> None:
        self._inner = inner
        self._limit = limit
        self._ready = ready

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when the whole answer did not come in time."""
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
