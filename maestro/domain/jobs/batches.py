"""Batches: replays or cancellations of many jobs at once, with their rows and their API models."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field as ValueField
from pydantic import model_validator
from sqlmodel import Field, Index, SQLModel

from maestro.domain.columns import UtcDateTime, enum_column_type, partial_index
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import NO_EDITS, OPEN, JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.values import Page, View

MOST_JOBS = 100_000
"""The largest number of jobs in one batch: a preview of that many jobs takes a few seconds."""

AT_ONCE = 50
"""The most open jobs of all batches together: as many as one dispatcher runs at a time (ADR 18)."""

IN_A_LANE = 2
"""The most open batch jobs in one lane (queue), because a user's new message has to wait for all of them."""

Ids = Annotated[
    tuple[Annotated[str, ValueField(min_length=1, max_length=256)], ...], ValueField(min_length=1, max_length=MOST_JOBS)
]


class BatchAction(StrEnum):
    """The action that a batch applies to each of its jobs."""

    RESUME = "resume"
    RESTART = "restart"
    CANCEL = "cancel"

    @property
    def mode(self) -> ReplayMode | None:
        """The replay mode of the action, None for a cancellation."""
        return None if self is BatchAction.CANCEL else ReplayMode(self)


class ItemState(StrEnum):
    """The state of a job of a batch.

    Waiting: not started yet. Begun: replayed, or its cancellation was requested. Refused: the action was not possible;
    the reason is stored. Skipped: not started, because an operator stopped the batch.
    """

    WAITING = "waiting"
    BEGUN = "begun"
    REFUSED = "refused"
    SKIPPED = "skipped"


class ReplayBatch(SQLModel, table=True):
    """A row of ``replay_batches``; ``wanted`` is the JSON of the job filter, ``edits`` that of an operator's edits.

    ``stopped`` means that an operator stopped the batch; its waiting jobs are then skipped. The batch has ended when
    each job was begun, refused or skipped, even if begun jobs still run.
    """

    __tablename__ = "replay_batches"
    __table_args__ = (partial_index("ix_replay_batches_open", "id", where="ended_at IS NULL"),)

    id: str = Field(primary_key=True)
    action: BatchAction = Field(sa_type=enum_column_type(BatchAction))
    edits: str = ""
    wanted: str = ""
    actor: str = ""
    origin: str = ""
    total: int = 0
    stopped: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ReplayItem(SQLModel, table=True):
    """A job of a batch; ``place`` is its position in the batch, ``began`` the id of the replayed or cancelled job.

    ``lane`` is the lane (queue) of the job, empty without one; ``problem`` is why the job was refused.
    """

    __tablename__ = "replay_items"
    __table_args__ = (
        Index("ix_replay_items_state", "batch_id", "state", "place", "lane"),
        partial_index("ix_replay_items_began", "began", where="state = 'begun'"),
    )

    batch_id: str = Field(primary_key=True, foreign_key="replay_batches.id")
    place: int = Field(primary_key=True)
    job_id: str
    lane: str = ""
    state: ItemState = Field(default=ItemState.WAITING, sa_type=enum_column_type(ItemState))
    began: str = ""
    problem: str = ""
    at: datetime | None = Field(default=None, sa_type=UtcDateTime)


def next_positions(waiting: Iterable[tuple[int, str]], open_lanes: Iterable[str]) -> list[int]:
    """Return the positions of the batch items to start now.

    ``waiting`` are the positions and lanes of the waiting items, in batch order. ``open_lanes`` are the lanes of the
    open jobs that batches began, empty for a job without a lane. At most ``AT_ONCE`` jobs of all batches are open, and
    ``IN_A_LANE`` in one lane, so that new messages of users are not delayed.
    """
    open_in_lane = Counter(open_lanes)
    room = AT_ONCE - open_in_lane.total()
    positions: list[int] = []
    for position, lane in waiting:
        if len(positions) >= room:
            break
        if not lane or open_in_lane[lane] < IN_A_LANE:
            open_in_lane[lane] += 1
            positions.append(position)
    return positions


class JobSelection(View):
    """A selection of jobs by ``filter`` or by ``ids``; exactly one of the two is given.

    An empty filter matches every job. ``expected`` is the number of jobs that a dry run found; if the number has
    changed since then, the request is refused.
    """

    filter: JobFilter | None = None
    ids: Ids | None = None
    expected: int | None = ValueField(default=None, ge=0)

    @model_validator(mode="after")
    def _check_one_is_present(self) -> "JobSelection":
        if (self.filter is None) == (self.ids is None):
            raise ValueError("expected either filter or ids, and not both")
        return self


def check_edits(action: str, edits: JobEdits | None) -> None:
    """Raise ``ValueError`` for edits with an action other than restart."""
    if edits is not None and edits.any and action != BatchAction.RESTART:
        raise ValueError("edits need the mode restart; leave the edits out, or restart the jobs")


class BatchRequest(JobSelection):
    """A request to apply an action to a selection of jobs; ``edits`` are allowed for a restart only."""

    action: BatchAction
    edits: JobEdits | None = None

    @model_validator(mode="after")
    def _check_edits(self) -> "BatchRequest":
        check_edits(self.action, self.edits)
        return self

    @property
    def changes(self) -> JobEdits:
        """The edits to apply to each job."""
        return self.edits or NO_EDITS


class BatchView(View):
    """The progress of a batch; ``filter`` is null if the jobs were selected by id.

    ``total`` is the sum of the jobs ``waiting`` to start, ``begun``, ``refused``, and ``skipped`` because the batch was
    ``stopped``. ``endedAt`` is the time from which no job was waiting. The begun jobs are ``completed``, ``failed``,
    still ``open`` or ``otherwise``: cancelled, dropped or merged. ``estimatedEnd`` is null while no job has ended, and
    after all have.
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


class BatchPage(Page[BatchView]):
    """A page of batches, newest first."""


class BatchItemView(View):
    """One job of a batch; ``began`` is the job that was started or cancelled, ``problem`` why the batch refused it."""

    place: int
    job_id: str
    state: ItemState
    began: str
    status: JobStatus | None
    problem: str
    at: datetime | None


class BatchItemPage(View):
    """The jobs of a batch in batch order; ``next`` is the cursor of the following page or null."""

    items: tuple[BatchItemView, ...]
    next: int | None


class StatusCounts(View):
    """The number of jobs in each state, and in total."""

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
    """The number of jobs of a batch by item state, and of the begun jobs by job state."""

    items: Mapping[ItemState, int]
    begun: Mapping[JobStatus, int]

    @property
    def open(self) -> int:
        """The number of begun jobs that have not ended."""
        return sum(self.begun.get(status, 0) for status in OPEN)


def batch_view(batch: ReplayBatch, progress: BatchProgress, now: datetime) -> BatchView:
    """Return the API model of a batch at the time ``now``."""
    items, begun = Counter(progress.items), Counter(progress.begun)
    completed, failed = begun[JobStatus.COMPLETED], begun[JobStatus.FAILED]
    return BatchView.from_row(
        batch,
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
    """Return the estimated end of a batch at its speed so far; None while no job has ended, and after all have."""
    done = sum(progress.begun.values()) - progress.open
    remaining = progress.items.get(ItemState.WAITING, 0) + progress.open
    return now + (now - batch.created_at) * remaining / done if done and remaining else None
