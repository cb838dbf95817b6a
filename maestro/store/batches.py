"""Batches and their items: what was asked for, whose turn it is, and what came of each job."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, bindparam, func, insert
from sqlmodel import col, select, update

from maestro.domain.errors import NotFound
from maestro.domain.jobs.batch_views import BatchItemView, Progress
from maestro.domain.jobs.batches import ItemState, ReplayBatch, ReplayItem
from maestro.domain.jobs.forecast import Outlook
from maestro.domain.jobs.job import Job, JobStatus
from maestro.store.claims import HOLDS_A_PLACE
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository


class Batches(Repository):
    """``replay_batches`` and ``replay_items``.

    Each item is settled in the transaction of what is done with its job, so a job is begun once however often the
    process dies, and whichever processes work on the batch at the same time.
    """

    _OPEN = Prepared(select(ReplayBatch).where(col(ReplayBatch.ended_at).is_(None)).order_by(col(ReplayBatch.id)))
    _ADDED = Prepared(insert(ReplayItem))
    _WAITS = Prepared(
        select(ReplayItem.job_id).where(
            col(ReplayItem.batch_id) == bindparam("of_batch"),
            col(ReplayItem.place) == bindparam("at_place"),
            col(ReplayItem.state) == ItemState.WAITING,
        )
    )

    def add(self, batch: ReplayBatch, outlooks: Iterable[Outlook]) -> None:
        """Keep a batch with an item for each job, in their order; a job with a problem is refused at once."""
        self._session.add(batch)
        self._session.flush()
        for place, one in enumerate(outlooks, start=1):
            # As a prepared statement: nobody else writes while a hundred thousand of them are kept.
            self._insert(
                self._ADDED,
                batch_id=batch.id,
                place=place,
                job_id=one.job_id,
                lane=one.lane,
                state=ItemState.REFUSED if one.problem else ItemState.WAITING,
                began="",
                problem=one.problem,
                at=self._now if one.problem else None,
            )

    def get(self, batch_id: str) -> ReplayBatch:
        """Return a batch; raises ``NotFound``."""
        batch = self._session.get(ReplayBatch, batch_id)
        if batch is None:
            raise NotFound(f"batch {batch_id} does not exist")
        return batch

    def all(self, after: str | None, limit: int) -> Sequence[ReplayBatch]:
        """Return up to ``limit`` batches that were made before the one with the id ``after``, newest first."""
        found = select(ReplayBatch).order_by(col(ReplayBatch.id).desc()).limit(limit)
        return self._session.exec(found.where(ReplayBatch.id < after) if after is not None else found).all()

    def open(self) -> Sequence[ReplayBatch]:
        """Return the batches that have not ended, oldest first, as values."""
        return self._read_all(self._OPEN, ReplayBatch)

    def progress(self, batch_id: str) -> Progress:
        """Return how far a batch is."""
        return Progress(items=self._by_state(batch_id), begun=self._by_status(batch_id))

    def items(self, batch_id: str, states: Sequence[ItemState], after: int, limit: int) -> Sequence[BatchItemView]:
        """Return up to ``limit`` items with these states, or any if there are none, that follow the place."""
        found = (
            select(ReplayItem, Job.status)
            .outerjoin(Job, col(Job.id) == func.nullif(ReplayItem.began, ""))
            .where(ReplayItem.batch_id == batch_id, ReplayItem.place > after)
        )
        if states:
            found = found.where(col(ReplayItem.state).in_(states))
        rows = self._session.exec(found.order_by(col(ReplayItem.place)).limit(limit))
        return [BatchItemView(**item.model_dump(exclude={"batch_id", "lane"}), status=status) for item, status in rows]

    def open_lanes(self) -> Sequence[str]:
        """Return the lane of every job that a batch began and that waits or runs, empty for one without."""
        begun = select(ReplayItem.began).where(ReplayItem.began == Job.id, ReplayItem.state == ItemState.BEGUN)
        found = select(func.coalesce(Job.lane, "")).where(one_of(col(Job.status), HOLDS_A_PLACE), begun.exists())
        return self._run(found).scalars().all()

    def waiting(self, batch_id: str, limit: int, but: Iterable[str] = ()) -> Sequence[tuple[int, str]]:
        """Return the places and lanes of the items whose turn is next; none of the lanes ``but``."""
        found = select(ReplayItem.place, ReplayItem.lane).where(
            *_waiting_of(batch_id), col(ReplayItem.lane).not_in(list(but))
        )
        return [(place, lane) for place, lane in self._run(found.order_by(col(ReplayItem.place)).limit(limit))]

    def take(self, batch_id: str, place: int) -> str | None:
        """Return the job of an item if that still waits for its turn, else None."""
        job_id: str | None = self._value(self._WAITS, of_batch=batch_id, at_place=place)
        return job_id

    def settle(self, batch_id: str, place: int, state: ItemState, began: str = "", problem: str = "") -> None:
        """Write what came of a job; with the last one, the batch has ended."""
        row = update(ReplayItem).where(col(ReplayItem.batch_id) == batch_id, col(ReplayItem.place) == place)
        self._run(row.values(state=state, began=began, problem=problem, at=self._now))
        self.end(batch_id)

    def stop(self, batch_id: str) -> None:
        """Let no more of its jobs begin."""
        self._run(update(ReplayBatch).where(col(ReplayBatch.id) == batch_id).values(stopped=True))
        left = update(ReplayItem).where(*_waiting_of(batch_id))
        self._run(left.values(state=ItemState.SKIPPED, at=self._now))
        self.end(batch_id)

    def end(self, batch_id: str) -> None:
        """End a batch of which no item waits."""
        rest = select(ReplayItem.place).where(*_waiting_of(batch_id))
        open_one = (col(ReplayBatch.id) == batch_id, col(ReplayBatch.ended_at).is_(None), ~rest.exists())
        self._run(update(ReplayBatch).where(*open_one).values(ended_at=self._now))

    def _by_state(self, batch_id: str) -> Mapping[ItemState, int]:
        found = select(ReplayItem.state, func.count()).where(ReplayItem.batch_id == batch_id)
        return dict(self._run(found.group_by(col(ReplayItem.state))).all())

    def _by_status(self, batch_id: str) -> Mapping[JobStatus, int]:
        found = (
            select(Job.status, func.count())
            .join(ReplayItem, col(ReplayItem.began) == Job.id)
            .where(ReplayItem.batch_id == batch_id, ReplayItem.state == ItemState.BEGUN)
        )
        return dict(self._run(found.group_by(col(Job.status))).all())


def _waiting_of(batch_id: str) -> tuple[ColumnElement[bool], ...]:
    return col(ReplayItem.batch_id) == batch_id, col(ReplayItem.state) == ItemState.WAITING
