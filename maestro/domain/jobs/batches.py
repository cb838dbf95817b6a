"""Replays of many jobs at once: what was asked for, and what came of each job."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.jobs.replay import ReplayMode

MOST = 100_000
"""Jobs in one batch: as many as one look takes a few seconds for."""

AT_ONCE = 50
"""Jobs of all batches that may wait or run at a time: as many as a dispatcher has in hand anyway (ADR 18)."""

IN_A_LANE = 2
"""Of them in one lane, where a person who writes now waits behind them: one that runs, and one that is next."""


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
