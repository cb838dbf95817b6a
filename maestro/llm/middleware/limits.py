"""Middleware that delays or ends a model call: the limits of its account, a stop request, and a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from maestro.domain.errors import Stopped
from maestro.domain.llm.calls import CallSite, LimiterBusy, ModelTimeout, RequestTooLarge
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.precedence import FairQueue, Precedence, is_background_priority
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import LlmSettings
from maestro.llm.middleware.replay import remove_snapshot
from maestro.llm.protocols import Account, AccountDirectory, LLMClient
from maestro.store.cache import StoreState
from maestro.store.store import Store

FILL = 0.9
"""The fraction of a limit per minute that may be used at once; less than 1, because token counts are estimates."""

ROUNDING = 1e-6
"""The largest rounding error of a bucket's level."""

Result = TypeVar("Result")

Ready = Callable[[LLMRequest], Awaitable[None]]
"""A function that returns once a request can be sent without delay."""


@dataclass(slots=True)
class LeakyBucket:
    """The used part of a limit per minute, which drains evenly; times are seconds of the event loop's clock."""

    _used: float = field(default=0.0, init=False)
    _at: float = field(default=0.0, init=False)

    def seconds_until_room(self, amount: float, per_minute: int, now: float) -> float:
        """Return the seconds until this amount fits; 0 when it fits now, or when there is no limit."""
        if not per_minute:
            return 0.0
        self._used = max(0.0, self._used - (now - self._at) * per_minute / 60)
        self._at = now
        lacking = self._used + amount - bucket_capacity(per_minute)
        return lacking / per_minute * 60 if lacking > ROUNDING else 0.0

    def add_amount(self, amount: float) -> None:
        """Add this amount to the used part; the caller has checked that the amount fits."""
        self._used += amount


def bucket_capacity(per_minute: int) -> float:
    """Return how much a bucket holds at once: a fraction of the limit per minute, but at least one request."""
    return max(1.0, per_minute * FILL)


@dataclass(slots=True, eq=False)
class LimiterSlot:
    """A request that was admitted to an account, or waits in the account's fair queue.

    ``waited`` is false if the request was admitted at once; ``admitted`` is the future of a request that had to queue.
    """

    tokens: int
    precedence: Precedence
    background: bool
    waited: bool = False
    admitted: "asyncio.Future[None] | None" = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the request was cancelled while it waited."""
        return self.admitted is not None and self.admitted.cancelled()


@dataclass(slots=True)
class AccountLimiter:
    """The limits of one account: requests per minute, tokens per minute, and concurrent requests.

    Waiting requests are admitted by priority, and among equal priorities by a fair queue of clients or channels. A
    request gets its slot and its tokens together. When it ends, its slot is free again, but its tokens stay used. The
    first waiting request blocks all behind it, because a large request could otherwise wait for ever.
    """

    account: Account
    rules: LlmSettings
    _queues: dict[int, FairQueue[LimiterSlot]] = field(default_factory=dict, init=False)
    _inside: int = field(default=0, init=False)
    _background_inside: int = field(default=0, init=False)
    _requests: LeakyBucket = field(default_factory=LeakyBucket, init=False)
    _tokens: LeakyBucket = field(default_factory=LeakyBucket, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    async def wait_for_slot(self, tokens: int, precedence: Precedence, seconds: float) -> LimiterSlot | None:
        """Wait for admission of a request and return its slot; None if it is not admitted within ``seconds``."""
        slot = LimiterSlot(tokens, precedence, is_background_priority(precedence.priority))
        wait = self._seconds_until_room(tokens)
        if wait > seconds:
            return None
        if not wait and self._has_free_slot(slot) and not any(self._queues.values()):
            self._occupy_slot(slot)  # No other request waits, so this request is admitted at once.
            return slot
        slot.admitted = admitted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(precedence.priority, FairQueue()).add_item(precedence.key, precedence.weight, slot)
        self._admit_waiting()
        if admitted.done():
            return slot
        slot.waited = True
        try:
            async with asyncio.timeout(seconds):
                await admitted
        except (TimeoutError, asyncio.CancelledError) as error:
            if slot.is_cancelled:
                self._admit_waiting()  # Requests behind the cancelled request may fit now.
            else:
                self.free_slot(slot)  # The request was admitted just before its cancellation.
            if isinstance(error, TimeoutError):
                return None
            raise
        return slot

    def free_slot(self, slot: LimiterSlot) -> None:
        """Free the slot of a request that ended, and admit waiting requests."""
        self._inside -= 1
        self._background_inside -= slot.background
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit the waiting requests that fit now, and set a timer for the next admission."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (queue := self._find_first_queue()) is not None and (slot := queue.peek_item()) is not None:
            if not self._has_free_slot(slot):
                return
            if seconds := self._seconds_until_room(slot.tokens):
                self._timer = asyncio.get_running_loop().call_later(seconds, self._admit_waiting)
                return
            queue.take_item()
            self._occupy_slot(slot)

    def _find_first_queue(self) -> FairQueue[LimiterSlot] | None:
        """Return the queue of the highest priority among the queues with a waiting request."""
        for _, queue in sorted(self._queues.items()):
            while (slot := queue.peek_item()) is not None and slot.is_cancelled:
                queue.take_uncharged()
            if slot is not None:
                return queue
        return None

    def _has_free_slot(self, slot: LimiterSlot) -> bool:
        concurrency = self.account.concurrency or self.rules.concurrency
        if slot.background and self._background_inside >= max(1, concurrency - self.rules.reserved_for_people):
            return False
        return self._inside < concurrency

    def _seconds_until_room(self, tokens: int) -> float:
        account, now = self.account, asyncio.get_running_loop().time()
        return max(
            self._requests.seconds_until_room(1, account.requests_per_minute, now),
            self._tokens.seconds_until_room(tokens, account.tokens_per_minute, now),
        )

    def _occupy_slot(self, slot: LimiterSlot) -> None:
        self._requests.add_amount(1)
        self._tokens.add_amount(slot.tokens)
        self._inside += 1
        self._background_inside += slot.background
        if slot.admitted is not None:
            slot.admitted.set_result(None)


@dataclass(slots=True)
class RateLimit:
    """Middleware with one limiter per account; the state is that of one process and one event loop."""

    inner: LLMClient
    directory: AccountDirectory
    llm: Callable[[], LlmSettings]
    jobs: Callable[[], JobSettings]
    _limiters: dict[str, AccountLimiter] = field(default_factory=dict, init=False)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on when the limits of its account admit it.

        Raises ``RequestTooLarge`` at once for a request with more tokens than the account's limit for a whole minute,
        and ``LimiterBusy`` when the request was not admitted in time.
        """
        account = self.directory.find(request.account)
        if account is None:
            return await self.inner.complete(request)  # no account has this name: the transport raises NoAccount
        tokens, rules = count_needed_tokens(account, request), self.llm()
        limiter = self._limiters.setdefault(account.name, AccountLimiter(account, rules))
        limiter.account, limiter.rules = account, rules
        precedence = request.precedence if self.jobs().fairness else Precedence(priority=request.precedence.priority)
        slot = await limiter.wait_for_slot(tokens, precedence, rules.limiter_wait_seconds)
        if slot is None:
            busy = LimiterBusy(
                f"The limits of account {account.name!r} admitted no request within {rules.limiter_wait_seconds:g} s. "
                "Raise its requestsPerMinute, tokensPerMinute or concurrency, or add an account."
            )
            busy.site = CallSite(account.provider, account.name, request.model)
            busy.retry_after = timedelta(seconds=rules.limiter_wait_seconds)
            raise busy
        try:
            return await self.inner.complete(remove_snapshot(request) if slot.waited else request)
        finally:
            limiter.free_slot(slot)


def count_needed_tokens(account: Account, request: LLMRequest) -> int:
    """Return the most tokens a request may use, 0 if the account has no such limit; raises ``RequestTooLarge``."""
    if not account.tokens_per_minute:
        return 0
    tokens = estimate_input(request) + request.max_output_tokens
    most = bucket_capacity(account.tokens_per_minute)
    if tokens > most:
        message = (
            f"The account {account.name!r} may take {most:.0f} tokens at once ({FILL:.0%} of its tokensPerMinute), the "
            f"request and its answer need {tokens}. Raise tokensPerMinute, or lower llm.maxOutputTokens."
        )
        failure = RequestTooLarge(message)
        failure.site = CallSite(account.provider, account.name, request.model)
        raise failure
    return tokens


@dataclass(slots=True)
class StopMonitor:
    """Cancels the tasks of jobs that were stopped or have ended; one watcher of the store serves all jobs."""

    store: Store
    seconds: Callable[[], float]
    _tasks: dict[str, set[asyncio.Task[Any]]] = field(default_factory=dict, init=False)
    _watcher: asyncio.Task[None] | None = field(default=None, init=False)

    async def run_until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a job's task; raises ``Stopped`` when a user or operator stopped the job meanwhile.

        A job may have several tasks at once. A cancellation of the caller also cancels the task.
        """
        task = asyncio.create_task(work)
        self.watch_job_task(job_id, task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self.unwatch_job_task(job_id, task):
                raise Stopped("a person stopped this job") from None
            task.cancel()
            raise
        finally:
            self.unwatch_job_task(job_id, task)

    def watch_job_task(self, job_id: str, task: asyncio.Task[Any]) -> None:
        """Cancel this task when its job is stopped or ends."""
        self._tasks.setdefault(job_id, set()).add(task)
        self.store.changes.watch_job(job_id)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._cancel_tasks_of_stopped_jobs())

    def unwatch_job_task(self, job_id: str, task: asyncio.Task[Any]) -> bool:
        """Stop watching a task; return false if the task was cancelled because its job was stopped or ended."""
        tasks = self._tasks.get(job_id, set())
        watched = task in tasks
        tasks.discard(task)
        if not tasks:
            self._tasks.pop(job_id, None)
            self.store.changes.forget_job(job_id)
        return watched

    async def _cancel_tasks_of_stopped_jobs(self) -> None:
        def must_wake(state: StoreState) -> bool:
            return not self._tasks or not state.unwanted.isdisjoint(self._tasks)

        with self.store.changes.subscribe(must_wake, self.seconds) as changed:
            while self._tasks:
                await changed.wait()
                changed.clear()
                state = self.store.changes.state
                for job_id in state.unwanted & self._tasks.keys() if state is not None else ():
                    for task in self._tasks.pop(job_id):
                        task.cancel()


@dataclass(slots=True)
class StopGuard:
    """Middleware that runs the inner call as a task, which is cancelled when its job is stopped."""

    inner: LLMClient
    watch: StopMonitor

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``Stopped`` when a user or operator stopped the job meanwhile."""
        return await self.watch.run_until_stopped(request.key.job_id, self.inner.complete(request))


async def ready_at_once(_request: LLMRequest) -> None:
    """Return immediately; serves as ``ready`` for a transport that needs no preparation."""


@dataclass(slots=True)
class Deadline:
    """Middleware that ends a call after the time that ``limit`` returns, asked anew for each call.

    The time counts from the return of ``ready``, so the import of litellm does not count as the provider's time.
    """

    inner: LLMClient
    limit: Callable[[], timedelta]
    ready: Ready = ready_at_once

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when the whole answer did not come in time."""
        await self.ready(request)
        seconds = self.limit().total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self.inner.complete(request)
        except TimeoutError:
            pass  # ModelTimeout is raised below, so that its ``__context__`` does not keep the cancelled call
        raise ModelTimeout(
            f"No whole answer within {seconds:g} s. {ModelTimeout.public} "
            "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds."
        )
