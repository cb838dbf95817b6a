"""Batches: replays or cancellations of many jobs at once, as rows and as operators see them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field as ValueField
from pydantic import model_validator
from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import NO_EDITS, OPEN, JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.values import View

MOST = 100_000
"""Jobs in one batch: as many as one look takes a few seconds for."""

AT_ONCE = 50
"""Jobs of all batches that may wait or run at a time: as many as a dispatcher has in hand anyway (ADR 18)."""

IN_A_LANE = 2
"""Of them in one lane, where a person who writes now waits behind them: one that runs, and one that is next."""

Ids = Annotated[
    tuple[Annotated[str, ValueField(min_length=1, max_length=256)], ...], ValueField(min_length=1, max_length=MOST)
]


class BatchAction(StrEnum):
    """What is done with each job of a batch."""

    RESUME = "resume"
    RESTART = "restart"
    CANCEL = "cancel"

    @property
    def mode(self) -> ReplayMode | None:
        """Return how a job is replayed, None when it is not."""
        return None if self is BatchAction.CANCEL else ReplayMode(self)


class ItemState(StrEnum):
    """What came of one job of a batch.

    It waits for its turn, was begun again or told to stop, was refused with a reason, or skipped because the batch was
    stopped.
    """

    WAITING = "waiting"
    BEGUN = "begun"
    REFUSED = "refused"
    SKIPPED = "skipped"


class ReplayBatch(SQLModel, table=True):
    """A row of ``replay_batches``; ``wanted`` and ``edits`` are the JSON of what was asked for.

    ``stopped`` says that an operator wants no more of its jobs to begin; those left are then skipped. It has ended when
    each of its jobs has its result, even if those that were begun still run.
    """

    __tablename__ = "replay_batches"
    __table_args__ = (
        Index(
            "ix_replay_batches_open",
            "id",
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    action: BatchAction = Field(sa_type=text_of(BatchAction))
    edits: str = ""
    wanted: str = ""
    actor: str = ""
    origin: str = ""
    total: int = 0
    stopped: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ReplayItem(SQLModel, table=True):
    """A job of a batch; ``began`` is the job that runs now, or was stopped, ``problem`` why there is none.

    ``place`` is its place in the batch, by the turns of the jobs; ``lane`` is that of its job, empty without one.
    """

    __tablename__ = "replay_items"
    __table_args__ = (
        Index("ix_replay_items_state", "batch_id", "state", "place", "lane"),
        Index(
            "ix_replay_items_began",
            "began",
            sqlite_where=text("state = 'begun'"),
            postgresql_where=text("state = 'begun'"),
        ),
    )

    batch_id: str = Field(primary_key=True, foreign_key="replay_batches.id")
    place: int = Field(primary_key=True)
    job_id: str
    lane: str = ""
    state: ItemState = Field(default=ItemState.WAITING, sa_type=text_of(ItemState))
    began: str = ""
    problem: str = ""
    at: datetime | None = Field(default=None, sa_type=UtcDateTime)


def next_places(waiting: Iterable[tuple[int, str]], open_lanes: Iterable[str]) -> list[int]:
    """Choose which items of a batch begin now, so that nobody who writes now is kept waiting.

    ``waiting`` are places and lanes in the order of the batch, ``open_lanes`` has the lane of each job that a batch
    began and that waits or runs, empty for one without. Few begin at a time, and in one lane still fewer: new messages
    get their turn between them.
    """
    taken = Counter(open_lanes)
    room = AT_ONCE - taken.total()
    chosen: list[int] = []
    for place, lane in waiting:
        if len(chosen) >= room:
            break
        if not lane or taken[lane] < IN_A_LANE:
            taken[lane] += 1
            chosen.append(place)
    return chosen


class JobSelection(View):
    """Which jobs are meant: those that a ``filter`` finds, or those with the ``ids``.

    An empty filter means every job. ``expected`` is how many a dry run found: when it is another number by now,
    nothing is done.
    """

    filter: JobFilter | None = None
    ids: Ids | None = None
    expected: int | None = ValueField(default=None, ge=0)

    @model_validator(mode="after")
    def _one_of_them(self) -> "JobSelection":
        if (self.filter is None) == (self.ids is None):
            raise ValueError("expected either filter or ids")
        return self


def check_edits(action: str, edits: JobEdits | None) -> None:
    """Raise ``ValueError`` for edits of what is no restart."""
    if edits is not None and edits.any and action != BatchAction.RESTART:
        raise ValueError("edits need the mode restart")


class BatchRequest(JobSelection):
    """What is to be done with which jobs; ``edits`` go with a restart."""

    action: BatchAction
    edits: JobEdits | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "BatchRequest":
        check_edits(self.action, self.edits)
        return self

    @property
    def changes(self) -> JobEdits:
        """What is changed in each job."""
        return self.edits or NO_EDITS


class BatchView(View):
    """How far a batch is. The ``filter`` chose its jobs; null where they were given by their ids.

    Of the ``total``, some are ``waiting`` for their turn, ``begun``, ``refused`` or ``skipped``, because the batch was
    ``stopped``. ``endedAt`` is when the last one of them had its turn. Of those begun, some are ``completed``,
    ``failed``, or ``open`` still; ``otherwise`` ended in another way. ``estimatedEnd`` is when the last one may have
    ended, null when nobody can tell yet, or all have.
    """

    id: str
    action: BatchAction
    actor: str
    edits: JobEdits | None
    filter: JobFilter | None
    created_at: datetime
    ended_at: datetime | None
    stopped: bool
    total: int
    waiting: int
    begun: int
    refused: int
    skipped: int
    completed: int
    failed: int
    open: int
    otherwise: int
    estimated_end: datetime | None


class BatchPage(View):
    """Batches, newest first; ``next`` is the cursor of the following page or null."""

    items: tuple[BatchView, ...]
    next: str | None


class BatchItemView(View):
    """What came of one job: ``began`` runs now and has the ``status``; ``problem`` is why there is none."""

    place: int
    job_id: str
    state: ItemState
    began: str
    status: JobStatus | None
    problem: str
    at: datetime | None


class BatchItemPage(View):
    """The jobs of a batch in their order; ``next`` is the cursor of the following page or null."""

    items: tuple[BatchItemView, ...]
    next: int | None


class StatusCounts(View):
    """How many jobs there are of each status, and in all."""

    total: int
    pending: int = 0
    running: int = 0
    waiting: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    dropped: int = 0
    merged: int = 0


@dataclass(frozen=True)
class BatchProgress:
    """How many jobs of a batch are in each state, and how those stand that were begun."""

    items: Mapping[ItemState, int]
    begun: Mapping[JobStatus, int]

    @property
    def open(self) -> int:
        """How many of those begun have not ended."""
        return sum(self.begun.get(status, 0) for status in OPEN)

    @property
    def unfinished(self) -> int:
        """How many have not ended, or not even begun."""
        return self.items.get(ItemState.WAITING, 0) + self.open


def status_counts(counts: Mapping[JobStatus, int]) -> StatusCounts:
    """Show how many jobs there are."""
    return StatusCounts(total=sum(counts.values()), **{str(status): count for status, count in counts.items()})


def batch_view(batch: ReplayBatch, progress: BatchProgress, now: datetime) -> BatchView:
    """Show how far a batch is."""
    items, begun = Counter(progress.items), Counter(progress.begun)
    completed, failed = begun[JobStatus.COMPLETED], begun[JobStatus.FAILED]
    return BatchView(
        **batch.model_dump(include={"id", "action", "actor", "created_at", "ended_at", "stopped", "total"}),
        edits=JobEdits.model_validate_json(batch.edits) if batch.edits else None,
        filter=JobFilter.model_validate_json(batch.wanted) if batch.wanted else None,
        **{str(state): items[state] for state in ItemState},
        completed=completed,
        failed=failed,
        open=progress.open,
        otherwise=begun.total() - completed - failed - progress.open,
        estimated_end=estimated_end(batch, progress, now),
    )


def estimated_end(batch: ReplayBatch, progress: BatchProgress, now: datetime) -> datetime | None:
    """Return when the last job may have ended, if the others take as long as those that have; None when none has."""
    done = sum(progress.begun.values()) - progress.open
    left = progress.unfinished
    return now + (now - batch.created_at) * left / done if done and left else None


def wanted_text(wish: BatchRequest) -> str:
    """Return what a batch's row keeps of which jobs were meant: the JSON of the filter, empty for jobs by id."""
    return wish.filter.model_dump_json(exclude_defaults=True) if wish.filter is not None else ""


def item_page(items: Sequence[BatchItemView], limit: int) -> BatchItemPage:
    """Return a page of up to ``limit`` items, of which one more was read to see whether there is another page."""
    more = len(items) > limit
    return BatchItemPage(items=tuple(items[:limit]), next=items[limit - 1].place if more else None)
