"""Batches as operators ask for them and see them, on the API and on the command line alike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from maestro.domain.jobs.batches import MOST, BatchAction, ItemState, ReplayBatch
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import NO_EDITS, OPEN, Edits, JobStatus
from maestro.domain.values import View

Ids = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=MOST)]


class Selection(View):
    """Which jobs are meant: those that a ``filter`` finds, or those with the ``ids``.

    An empty filter means every job. ``expected`` is how many a dry run found: when it is another number by now,
    nothing is done.
    """

    filter: JobFilter | None = None
    ids: Ids | None = None
    expected: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_of_them(self) -> "Selection":
        if (self.filter is None) == (self.ids is None):
            raise ValueError("expected either filter or ids")
        return self


def check_edits(action: str, edits: Edits | None) -> None:
    """Raise ``ValueError`` for edits of what is no restart."""
    if edits is not None and edits.any and action != BatchAction.RESTART:
        raise ValueError("edits need the mode restart")


class BatchWish(Selection):
    """What is to be done with which jobs; ``edits`` go with a restart."""

    action: BatchAction
    edits: Edits | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "BatchWish":
        check_edits(self.action, self.edits)
        return self

    @property
    def changes(self) -> Edits:
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
    edits: Edits | None
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
class Progress:
    """How many jobs of a batch are in each state, and how those stand that were begun."""

    items: Mapping[ItemState, int]
    begun: Mapping[JobStatus, int]

    @property
    def open(self) -> int:
        """How many of those begun have not ended."""
        return sum(self.begun.get(status, 0) for status in OPEN)

    @property
    def left(self) -> int:
        """How many have not ended, or not even begun."""
        return self.items.get(ItemState.WAITING, 0) + self.open


def status_counts(counts: Mapping[JobStatus, int]) -> StatusCounts:
    """Show how many jobs there are."""
    return StatusCounts(total=sum(counts.values()), **{str(status): count for status, count in counts.items()})


def batch_view(batch: ReplayBatch, progress: Progress, now: datetime) -> BatchView:
    """Show how far a batch is."""
    items, begun = Counter(progress.items), Counter(progress.begun)
    completed, failed = begun[JobStatus.COMPLETED], begun[JobStatus.FAILED]
    return BatchView(
        **batch.model_dump(include={"id", "action", "actor", "created_at", "ended_at", "stopped", "total"}),
        edits=Edits.model_validate_json(batch.edits) if batch.edits else None,
        filter=JobFilter.model_validate_json(batch.wanted) if batch.wanted else None,
        **{str(state): items[state] for state in ItemState},
        completed=completed,
        failed=failed,
        open=progress.open,
        otherwise=begun.total() - completed - failed - progress.open,
        estimated_end=estimated_end(batch, progress, now),
    )


def estimated_end(batch: ReplayBatch, progress: Progress, now: datetime) -> datetime | None:
    """Return when the last job may have ended, if the others take as long as those that have; None when none has."""
    done = sum(progress.begun.values()) - progress.open
    left = progress.left
    return now + (now - batch.created_at) * left / done if done and left else None


def wanted_text(wish: BatchWish) -> str:
    """Return what a batch's row keeps of which jobs were meant: the JSON of the filter, empty for jobs by id."""
    return wish.filter.model_dump_json(exclude_defaults=True) if wish.filter is not None else ""


def item_page(items: Sequence[BatchItemView], limit: int) -> BatchItemPage:
    """Return a page of up to ``limit`` items, of which one more was read to see whether there is another page."""
    more = len(items) > limit
    return BatchItemPage(items=tuple(items[:limit]), next=items[limit - 1].place if more else None)
