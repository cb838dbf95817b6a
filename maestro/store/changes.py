"""Tells the loops of a process what changed in the store, by one look for all of them."""

import asyncio
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import structlog
from sqlalchemy import bindparam, func, or_, select, text
from sqlmodel import col

from maestro.domain.editions import Edition
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.batches import ReplayBatch
from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.live import SettingsVersion
from maestro.store.claims import CLAIM_LAPSES, Claims
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository

log = structlog.get_logger(__name__)


class StoreState(NamedTuple):
    """What the loops of a process wait for, as one look found it.

    ``settings`` is the newest version of the live settings; ``agents``, ``bot_instances`` and ``schedules`` are
    editions. Then whether a batch is open, a pending job unclaimed, a waiting one due, and a running one asked to stop.
    ``unwanted`` are those of the watched jobs that were asked to stop, or ended. ``next_at`` is when a job is due or a
    claim lapses. ``number`` counts the looks.
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
    """The one statement of such a look."""

    _PENDING = (col(Job.status) == JobStatus.PENDING,)
    # Statuses are written out, and not parameters, so that the indexes of just these rows are used.
    _WAITING = (text("queue.status = 'waiting'"),)
    _WATCHED = func.json_each(bindparam("watched")).table_valued("value")
    _UNWANTED = select(func.json_group_array(col(Job.id))).where(
        col(Job.id).in_(select(_WATCHED.c.value)),
        or_(col(Job.stop_requested), ~one_of(col(Job.status), OPEN)),
    )
    _STATE = Prepared(
        select(
            select(func.coalesce(func.max(col(SettingsVersion.version)), 0)).scalar_subquery().label("settings"),
            select(col(Edition.stamp)).where(col(Edition.name) == "agents").scalar_subquery().label("agents"),
            select(col(Edition.stamp)).where(col(Edition.name) == "bot_instances").scalar_subquery().label("bots"),
            select(col(Edition.stamp)).where(col(Edition.name) == "schedules").scalar_subquery().label("schedules"),
            select(col(ReplayBatch.id)).where(col(ReplayBatch.ended_at).is_(None)).exists().label("batches"),
            select(col(Job.id)).where(*Claims.UNCLAIMED).exists().label("unclaimed"),
            select(col(Job.id))
            .where(*_WAITING, or_(col(Job.wake_at) <= bindparam("now"), col(Job.waits_since) > bindparam("now")))
            .exists()
            .label("due"),
            select(col(Job.id))
            .where(col(Job.status) == JobStatus.RUNNING, col(Job.stop_requested))
            .exists()
            .label("stopping"),
            _UNWANTED.scalar_subquery().label("unwanted"),
            select(func.min(col(Job.wake_at)))
            .where(*_WAITING, col(Job.wake_at) > bindparam("now"))
            .scalar_subquery()
            .label("wakes_at"),
            select(func.min(col(Job.claimed_at)))
            .where(*_PENDING, col(Job.claimed_at).between(bindparam("abandoned_before"), bindparam("now")))
            .scalar_subquery()
            .label("claimed_at"),
        )
    )

    def now(self, watched: Collection[str]) -> StoreState:
        """Return how the store is; ``watched`` are the ids of the jobs that running work belongs to."""
        row = self._row(
            self._STATE,
            watched=json.dumps(list(watched)),
            now=self._now,
            abandoned_before=self._now - CLAIM_LAPSES,
        )
        assert row is not None
        *facts, unwanted, wakes_at, claimed_at = row
        times = [wakes_at, claimed_at and claimed_at + CLAIM_LAPSES]
        next_at = min((one for one in times if one is not None), default=None)
        return StoreState._make((*facts, frozenset(json.loads(unwanted)), next_at, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """What a loop waits for: an event that is set whenever ``holds`` is true of the newest state."""

    holds: Callable[[StoreState], bool]
    seconds: Callable[[], float]
    changed: asyncio.Event


class ChangeWatcher:
    """Looks at the store for all loops of a process: not at all while nobody changes it, and seldom under load.

    SQLite says in microseconds whether anything was committed. A look follows half an interval after the first sign of
    that, so that the commits of one message are seen together; it follows at once when it is asked for.
    """

    def __init__(
        self, mark: Callable[[], str], read: Callable[[Collection[str]], StoreState], clock: Callable[[], datetime]
    ) -> None:
        """``mark`` differs after each change, and ``read``, which touches the store, returns its state."""
        self._mark_now = mark
        self._read = read
        self._clock = clock
        self._subscriptions: list[Subscription] = []
        self._watches = itertools.count()
        self._jobs: dict[str, int] = {}
        """The jobs that are watched, and the number of each watch: a job may be resumed after it was stopped."""
        self._jobs_seen: Mapping[str, int] = {}
        self._mark: str | None = None
        self._noticed = False
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._looking: asyncio.Task[None] | None = None
        self._called = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.state: StoreState | None = None

    @contextmanager
    def subscribed(
        self, holds: Callable[[StoreState], bool], seconds: Callable[[], float], changed: asyncio.Event | None = None
    ) -> Iterator[asyncio.Event]:
        """Give an event that is set, again and again, while ``holds`` is true of the newest state.

        ``seconds`` is how late at most a change is seen.
        """
        one = Subscription(holds, seconds, changed or asyncio.Event())
        self._subscriptions.append(one)
        if self._looking is None or self._looking.done():
            self._loop, self._called = asyncio.get_running_loop(), asyncio.Event()
            self._called.set()
            self._looking = asyncio.create_task(self._run())
        try:
            yield one.changed
        finally:
            self._subscriptions.remove(one)
            if not self._subscriptions:
                self._looking.cancel()

    def watch(self, job_id: str) -> None:
        """Say of this job from the next look on whether it is unwanted."""
        if job_id not in self._jobs:
            self._jobs[job_id] = next(self._watches)

    def forget(self, job_id: str) -> None:
        """Say nothing more of this job."""
        self._jobs.pop(job_id, None)
        if self.state is not None:
            self.state = self.state._replace(unwanted=self.state.unwanted - {job_id})

    def look_soon(self) -> None:
        """Look without waiting for the next interval, if the store was changed; any thread may call this."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._called.set)

    async def look(self, *, at_once: bool = True) -> None:
        """Look if the store was changed or something is due, and set the events of those who wait for what is there.

        Unless ``at_once``, the first sign of a change is only noticed, and the next call looks.
        """
        try:
            await self._renew(at_once=at_once)
        except StoreBusy as error:
            log.warning("store.look_postponed", reason=str(error))
            return
        if self.state is not None:
            for one in tuple(self._subscriptions):
                if one.holds(self.state):
                    one.changed.set()

    async def _renew(self, *, at_once: bool) -> None:
        mark, now = self._mark_now(), self._clock()
        known = self._jobs.items() <= self._jobs_seen.items()  # one may be unwanted since before the last look
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
        """Say whether a time has come that the last look knew of; a clock that was set back is looked after."""
        next_at = self.state.next_at if self.state is not None else None
        return now < self._looked_at or (next_at is not None and next_at <= now)

    async def _run(self) -> None:
        while True:
            called = self._called.is_set()
            self._called.clear()
            try:
                await self.look(at_once=called)
            # Whatever is wrong with one look, the loops must hear of the change that puts it right.
            except Exception:
                log.exception("store.look_failed")
            interval = min((one.seconds() for one in self._subscriptions), default=1.0) / 2
            if called:  # however often it is called, it looks but once in a while
                await asyncio.sleep(interval)
                continue
            await self._rest(interval)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._called.wait()
        except TimeoutError:
            return
