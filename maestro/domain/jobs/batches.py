"""Replays of many jobs at once: what was asked for, and what came of each job."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.jobs.replay import ReplayMode


class ItemState(StrEnum):
    """What came of one job of a batch: not yet its turn, replayed, or refused with a reason."""

    WAITING = "waiting"
    BEGUN = "begun"
    REFUSED = "refused"
    SKIPPED = "skipped"


class ReplayBatch(SQLModel, table=True):
    """A row of ``replay_batches``; ``wanted`` and ``edits`` are the JSON of what was asked for.

    ``stopped`` says that an operator wants no more of its jobs to begin; those left are then skipped.
    """

    __tablename__ = "replay_batches"

    id: str = Field(primary_key=True)
    mode: ReplayMode = Field(sa_type=text_of(ReplayMode))
    edits: str = ""
    wanted: str = ""
    actor: str = ""
    origin: str = ""
    total: int = 0
    stopped: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ReplayItem(SQLModel, table=True):
    """A job of a batch; ``began`` is the job that runs now, ``problem`` why none does."""

    __tablename__ = "replay_items"
    __table_args__ = (Index("ix_replay_items_state", "batch_id", "state", "place"),)

    batch_id: str = Field(primary_key=True, foreign_key="replay_batches.id")
    place: int = Field(primary_key=True)
    job_id: str
    state: ItemState = Field(default=ItemState.WAITING, sa_type=text_of(ItemState))
    began: str = ""
    problem: str = ""
    at: datetime | None = Field(default=None, sa_type=UtcDateTime)
