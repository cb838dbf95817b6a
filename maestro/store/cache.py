"""A cache of query results for one version of the rows, and a watcher that reports changes of the store."""

import asyncio
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Generic, NamedTuple, TypeVar, cast

import structlog
from sqlalchemy import bindparam, func, or_, text
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.columns import RowVersion, RowVersions
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.batches import ReplayBatch
from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.settings.live import SettingsVersion
from maestro.store.engine.repository import Repository, read_once
from maestro.store.engine.statements import PreparedStatement, is_in_list, is_one_of, write_json_list
from maestro.store.jobs.claims import CLAIM_LAPSES, Claims

Key = TypeVar("Key")
Made = TypeVar("Made")
Query = TypeVar("Query", bound=Callable[..., Any])

MAX_CACHED = 1_000
"""The most values that are cached for one query; one more empties its cache."""

log = structlog.get_logger(__name__)


class CachedRows(Generic[Key, Made]):
    """A cache of values derived from rows, valid while the version of these rows stays the same.

    A transaction of any process that changes the rows also changes their version. A transaction that reads the version
    before the rows sees both in one snapshot, so the cached value is the one that it would derive.

    Threads may share a cache. The version and its values are one tuple that is replaced as a whole. So a slow thread
    cannot store a value of an old version under a new one.
    """

    def __init__(self) -> None:
        self._cached: tuple[object, dict[Key, Made]] = (None, {})

    def get_or_make(self, version: object, key: Key, make: Callable[[], Made]) -> Made:
        """Return the value cached for a key under a version; without one, cache and return the result of ``make``."""
        cached_version, values = self._cached
        if key in values and cached_version == version:
            return values[key]
        if cached_version != version or len(values) >= MAX_CACHED:
            values = {}
            self._cached = (version, values)
        made = values[key] = make()
        return made


class RowVersionReader(Repository):
    """Queries for the versions of cached tables; for accounts, a version changes only with the failover order."""

    _ALL = PreparedStatement(select(RowVersion.name, RowVersion.stamp))

    @property
    def are_cacheable(self) -> bool:
        """Whether values may be cached: this transaction has changed no row of a cached table."""
        return self._link.reads_cached

    @read_once
    def read_versions(self) -> RowVersions:
        """Return the versions of all cached tables as of the first call in this transaction.

        Values derived from rows may be cached under these versions if the rows were read after the versions, and before
        this transaction changed a row.
        """
        stamps = dict(self._read_rows(self._ALL))
        return RowVersions(*map(stamps.get, RowVersions._fields))


def cached_by_version(*tables: str) -> Callable[[Query], Query]:
    """Decorate a query: cache its results across transactions until a row of these tables changes.

    A transaction that may have changed rows of a cached table does not use the cache (``Link.reads_cached``).
    """

    def decorate(method: Query) -> Query:
        @wraps(method)
        def query_cached(self: Repository, *arguments: Any) -> Any:
            if not self._link.reads_cached:
                return method(self, *arguments)
            stamps = RowVersionReader(self._link, self._now).read_versions()
            cache = self._link.caches.setdefault(method.__qualname__, CachedRows())
            version = tuple(getattr(stamps, table) for table in tables)
            return cache.get_or_make(version, arguments, lambda: method(self, *arguments))

        return cast("Query", query_cached)

    return decorate


class StoreState(NamedTuple):
    """A snapshot of the facts about the store for which the loops of a process wait.

    ``settings`` is the newest version of the overridden settings; ``agents``, ``bot_instances`` and ``schedules`` are
    row versions. ``batches``: a batch is open. ``unclaimed``: a pending job has no claim. ``due``: the wait of a job is
    over. ``stopping``: a running job has a stop request. ``unwanted`` are the watched jobs with a stop request or an
    end. ``next_at`` is when the next wait or claim ends. ``number`` counts the reads of the state.
    """

    settings: int
    agents: int | None
    bot_instances: int | None
    schedules: int | None
    batches: bool
    unclaimed: bool
    due: bool
    stopping: bool
    unwanted: frozenset[str]
    next_at: datetime | None
    number: int


class StoreStates(Repository):
    """The query that reads a ``StoreState`` in one statement."""

    _PENDING = (col(Job.status) == JobStatus.PENDING,)
    # SQLite uses the partial index of waiting jobs only if the status is a literal in the SQL, not a parameter.
    _WAITING = (text("queue.status = 'waiting'"),)
    _UNWANTED = columns(func.json_group_array(col(Job.id))).where(
        is_in_list(col(Job.id), "watched"), or_(col(Job.stop_requested), ~is_one_of(col(Job.status), OPEN))
    )
    _STATE = PreparedStatement(
        columns(
            columns(func.coalesce(func.max(col(SettingsVersion.version)), 0)).scalar_subquery().label("settings"),
            *(
                columns(col(RowVersion.stamp)).where(col(RowVersion.name) == name).scalar_subquery().label(name)
                for name in ("agents", "bot_instances", "schedules")
            ),
            columns(col(ReplayBatch.id)).where(col(ReplayBatch.ended_at).is_(None)).exists().label("batches"),
            columns(col(Job.id)).where(*Claims.UNCLAIMED).exists().label("unclaimed"),
            columns(col(Job.id))
            .where(*_WAITING, or_(col(Job.wake_at) <= bindparam("now"), col(Job.waits_since) > bindparam("now")))
            .exists()
            .label("due"),
            columns(col(Job.id))
            .where(col(Job.status) == JobStatus.RUNNING, col(Job.stop_requested))
            .exists()
            .label("stopping"),
            _UNWANTED.scalar_subquery().label("unwanted"),
            columns(func.min(col(Job.wake_at)))
            .where(*_WAITING, col(Job.wake_at) > bindparam("now"))
            .scalar_subquery()
            .label("wakes_at"),
            columns(func.min(col(Job.claimed_at)))
            .where(*_PENDING, col(Job.claimed_at).between(bindparam("abandoned_before"), bindparam("now")))
            .scalar_subquery()
            .label("claimed_at"),
        )
    )

    def read_state(self, watched: Collection[str]) -> StoreState:
        """Return the state of the store; ``watched`` are the ids of jobs with an asyncio task in this process."""
        values = {"watched": write_json_list(watched), "now": self._now, "abandoned_before": self._now - CLAIM_LAPSES}
        row = self._read_row(self._STATE, **values)
        assert row is not None
        *facts, unwanted, wakes_at, claimed_at = row
        times = [wakes_at, claimed_at and claimed_at + CLAIM_LAPSES]
        next_at = min((moment for moment in times if moment is not None), default=None)
        return StoreState._make((*facts, frozenset(json.loads(unwanted)), next_at, 0))


@dataclass(frozen=True, slots=True, eq=False)
class ChangeSubscription:
    """A loop's subscription: an event that is set whenever ``holds`` is true of a newly read state."""

    holds: Callable[[StoreState], bool]
    seconds: Callable[[], float]
    changed: asyncio.Event


class ChangeWatcher:
    """A watcher that reads the store for all loops of a process, and only after a commit of any process.

    SQLite reports within microseconds whether any process has committed. The watcher reads half an interval after the
    first sign of a commit, so that one read covers all commits of a message. A request makes it read at once.

    PostgreSQL notifies each process of commits that change the state, which makes the watcher read at once. It also
    looks by itself, but seldom, because a look is a round trip and a notification is rarely lost.
    """

    def __init__(
        self,
        mark: Callable[[], str],
        read: Callable[[Collection[str]], StoreState],
        clock: Callable[[], datetime],
        listen: Callable[[Callable[[], None]], float] = lambda _: 0.0,
    ) -> None:
        """``mark`` returns a text that differs after each commit; ``read`` returns the state of the store.

        ``listen`` registers a function to call after commits, and returns the seconds between looks that are enough
        beside these calls, 0 if the function is never called.
        """
        self._listen = listen
        self._look_seconds = 0.0
        self._mark_now = mark
        self._read = read
        self._clock = clock
        self._subscriptions: list[ChangeSubscription] = []
        self._watches = itertools.count()
        self._jobs: dict[str, int] = {}
        """The watched jobs, each with the number of its watch, because a job may be watched again after a resume."""
        self._jobs_seen: Mapping[str, int] = {}
        self._mark: str | None = None
        self._noticed = False
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._looking: asyncio.Task[None] | None = None
        self._called = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.state: StoreState | None = None

    @contextmanager
    def subscribe(
        self, holds: Callable[[StoreState], bool], seconds: Callable[[], float], changed: asyncio.Event | None = None
    ) -> Iterator[asyncio.Event]:
        """Subscribe a loop within the block; yield an event that is set when ``holds`` is true of a newly read state.

        ``seconds`` returns the longest delay that the loop accepts between a change and the event.
        """
        subscription = ChangeSubscription(holds, seconds, changed or asyncio.Event())
        self._subscriptions.append(subscription)
        if self._looking is None or self._looking.done():
            self._loop, self._called = asyncio.get_running_loop(), asyncio.Event()
            self._called.set()
            self._look_seconds = self._listen(self.request_check)
            self._looking = asyncio.create_task(self._notify_periodically())
        try:
            yield subscription.changed
        finally:
            self._subscriptions.remove(subscription)
            if not self._subscriptions and self._looking is not None:
                # The next subscription starts another task, even if this one has not ended by then.
                self._looking.cancel()
                self._looking = None

    def watch_job(self, job_id: str) -> None:
        """Include a job in later reads, which report whether the job has a stop request or has ended."""
        if job_id not in self._jobs:
            self._jobs[job_id] = next(self._watches)

    def forget_job(self, job_id: str) -> None:
        """Stop watching this job."""
        self._jobs.pop(job_id, None)
        if self.state is not None:
            self.state = self.state._replace(unwanted=self.state.unwanted - {job_id})

    def request_check(self) -> None:
        """Ask the watcher to check for changes now, without waiting for its interval; any thread may call this."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._called.set)

    async def notify_of_changes(self, *, at_once: bool = True) -> None:
        """Read the state if the store was changed or a job is due, and set the events of matching subscriptions.

        Unless ``at_once``, the first call after a change only notes the change, and the next call reads the state.
        """
        try:
            await self._read_state(at_once=at_once)
        except StoreBusy as error:
            log.warning("store.look_postponed", reason=str(error))
            return
        if self.state is not None:
            for subscription in tuple(self._subscriptions):
                if subscription.holds(self.state):
                    subscription.changed.set()

    async def _read_state(self, *, at_once: bool) -> None:
        # Where a look is a round trip, it must not block the event loop while the server is away.
        mark = await asyncio.to_thread(self._mark_now) if self._look_seconds else self._mark_now()
        now = self._clock()
        # A newly watched job may have been stopped before the last read, which did not include it.
        known = self._jobs.items() <= self._jobs_seen.items()
        if mark == self._mark and known and not self._is_due(now):
            self._noticed = False
            return
        if not (at_once or self._noticed or self.state is None):
            self._noticed = True
            return
        jobs, number = dict(self._jobs), self.state.number + 1 if self.state is not None else 1
        state = await asyncio.to_thread(self._read, jobs)
        still = {job_id for job_id, watch in jobs.items() if self._jobs.get(job_id) == watch}
        self.state = state._replace(number=number, unwanted=state.unwanted & still)
        self._mark, self._jobs_seen, self._looked_at, self._noticed = mark, jobs, now, False

    def _is_due(self, now: datetime) -> bool:
        """Return whether ``next_at`` of the last read has passed, or the clock was set back after that read."""
        next_at = self.state.next_at if self.state is not None else None
        return now < self._looked_at or (next_at is not None and next_at <= now)

    async def _notify_periodically(self) -> None:
        while True:
            called = self._called.is_set()
            self._called.clear()
            try:
                await self.notify_of_changes(at_once=called or self._look_seconds > 0)
            # A failed read must not end the watcher, because a later read may succeed.
            except Exception:
                log.exception("store.look_failed")
            interval = min((subscription.seconds() for subscription in self._subscriptions), default=1.0) / 2
            # A pause of one interval limits the reads, however often ``request_check`` is called.
            if called:
                await asyncio.sleep(interval)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(interval, self._look_seconds)):
                    await self._called.wait()
