"""Queries for replay batches, the items of a batch, and the jobs that a new batch may replay."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, bindparam, func, insert, not_, update
from sqlmodel import col, select

from maestro.domain.jobs.batch_preview import BatchCandidate, CallAttempt, JobPreview, Prices, continues_at_last_step
from maestro.domain.jobs.batches import BatchItemView, BatchProgress, ItemState, ReplayBatch, ReplayItem
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Job, JobStep, StepState
from maestro.domain.jobs.steps import AFTERMATH
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.usage import UsageRow
from maestro.domain.messages import InboxRow
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.engine.statements import (
    PreparedStatement,
    is_in_list,
    is_one_of,
    split_into_batches,
    write_json_list,
)
from maestro.store.jobs.claims import HOLDS_LANE
from maestro.store.jobs.delegations import Delegations
from maestro.store.jobs.filters import filter_conditions

PRICED_CALLS = 1000
"""The number of newest model calls from whose average cost a preview computes the price of a call."""

Key = TypeVar("Key")


class Batches(Repository):
    """Queries for replay batches (replays of many jobs) and their items, one for each job.

    The transaction that changes a job also settles the job's item. So each job is begun once, even if processes die or
    several processes work on one batch.
    """

    _OPEN = PreparedStatement(
        select(ReplayBatch).where(col(ReplayBatch.ended_at).is_(None)).order_by(col(ReplayBatch.id))
    )
    _ADDED = PreparedStatement(insert(ReplayItem))
    _WAITS = PreparedStatement(
        select(ReplayItem.job_id).where(
            col(ReplayItem.batch_id) == bindparam("of_batch"),
            col(ReplayItem.place) == bindparam("at_place"),
            col(ReplayItem.state) == ItemState.WAITING,
        )
    )

    def add_batch(self, batch: ReplayBatch, previews: Iterable[JobPreview]) -> None:
        """Add a batch with an item for each job, in order; an item whose job has a problem is refused at once."""
        self._save_objects(batch)
        for place, one in enumerate(previews, start=1):
            # A prepared statement is faster; this transaction adds up to 100,000 rows and blocks all other writers.
            self._insert_row(
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
        """Return the batch with this id; raises ``NotFound``."""
        return require_found(self._session.get(ReplayBatch, batch_id), f"batch {batch_id} does not exist")

    def list_newest_batches(self, after: str | None, limit: int) -> Sequence[ReplayBatch]:
        """Return up to ``limit`` batches with ids below ``after``, newest first."""
        batches = select(ReplayBatch).order_by(col(ReplayBatch.id).desc()).limit(limit)
        return self._find_all(batches.where(ReplayBatch.id < after) if after is not None else batches)

    def list_open_batches(self) -> Sequence[ReplayBatch]:
        """Return the batches that have not ended as read-only rows, oldest first."""
        return self._read_models(self._OPEN, ReplayBatch)

    def count_items_by_state(self, batch_id: str) -> BatchProgress:
        """Return the progress of a batch: the number of its items in each state."""
        states = select(ReplayItem.state, func.count()).where(ReplayItem.batch_id == batch_id)
        statuses = (
            select(Job.status, func.count())
            .join(ReplayItem, col(ReplayItem.began) == Job.id)
            .where(ReplayItem.batch_id == batch_id, ReplayItem.state == ItemState.BEGUN)
        )
        return BatchProgress(
            items=dict(self._run_statement(states.group_by(col(ReplayItem.state))).all()),
            begun=dict(self._run_statement(statuses.group_by(col(Job.status))).all()),
        )

    def list_items(self, batch_id: str, states: Sequence[ItemState], after: int, limit: int) -> Sequence[BatchItemView]:
        """Return up to ``limit`` items with an index above ``after``, in these states (none given: all states)."""
        items = (
            select(ReplayItem, Job.status)
            .outerjoin(Job, col(Job.id) == func.nullif(ReplayItem.began, ""))
            .where(ReplayItem.batch_id == batch_id, ReplayItem.place > after)
        )
        if states:
            items = items.where(col(ReplayItem.state).in_(states))
        rows = self._session.exec(items.order_by(col(ReplayItem.place)).limit(limit))
        return [BatchItemView.from_row(item, status=status) for item, status in rows]

    def list_open_lanes(self) -> Sequence[str]:
        """Return the lane of each pending or running job that a batch began; an empty text for no lane."""
        begun = select(ReplayItem.began).where(ReplayItem.began == Job.id, ReplayItem.state == ItemState.BEGUN)
        lanes = select(func.coalesce(Job.lane, "")).where(is_one_of(col(Job.status), HOLDS_LANE), begun.exists())
        return self._run_statement(lanes).scalars().all()

    def list_waiting_items(
        self, batch_id: str, limit: int, without_lanes: Iterable[str] = ()
    ) -> Sequence[tuple[int, str]]:
        """Return the index and the lane of the next waiting items of a batch, without these lanes."""
        items = select(ReplayItem.place, ReplayItem.lane).where(
            *_waiting_items_of(batch_id), col(ReplayItem.lane).not_in(list(without_lanes))
        )
        return [
            (place, lane) for place, lane in self._run_statement(items.order_by(col(ReplayItem.place)).limit(limit))
        ]

    def take_item(self, batch_id: str, item_index: int) -> str | None:
        """Return the job id of an item to begin, or None if the item is no longer waiting."""
        job_id: str | None = self._read_value(self._WAITS, of_batch=batch_id, at_place=item_index)
        return job_id

    def settle_item(self, batch_id: str, item_index: int, state: ItemState, began: str = "", problem: str = "") -> None:
        """Store the outcome of a batch's item; after the last item, end the batch."""
        row = update(ReplayItem).where(col(ReplayItem.batch_id) == batch_id, col(ReplayItem.place) == item_index)
        self._run_statement(row.values(state=state, began=began, problem=problem, at=self._now))
        self.end_batch_if_done(batch_id)

    def skip_waiting_items(self, batch_id: str) -> None:
        """Stop a batch: skip all its waiting items, and end the batch."""
        self._run_statement(update(ReplayBatch).where(col(ReplayBatch.id) == batch_id).values(stopped=True))
        waiting = update(ReplayItem).where(*_waiting_items_of(batch_id))
        self._run_statement(waiting.values(state=ItemState.SKIPPED, at=self._now))
        self.end_batch_if_done(batch_id)

    def end_batch_if_done(self, batch_id: str) -> None:
        """End a batch if it has no waiting item."""
        waiting = select(ReplayItem.place).where(*_waiting_items_of(batch_id))
        open_one = (col(ReplayBatch.id) == batch_id, col(ReplayBatch.ended_at).is_(None), ~waiting.exists())
        self._run_statement(update(ReplayBatch).where(*open_one).values(ended_at=self._now))


def _waiting_items_of(batch_id: str) -> tuple[ColumnElement[bool], ...]:
    return col(ReplayItem.batch_id) == batch_id, col(ReplayItem.state) == ItemState.WAITING


class BatchCandidates(Repository):
    """Queries for the jobs that a batch may replay, which read many jobs at once."""

    _delegations = LazyRepository(Delegations)
    _JOBS = PreparedStatement(select(Job).where(is_in_list(col(Job.id), "ids")))
    _ANSWERED_BY = PreparedStatement(
        select(Job.id, InboxRow.job_id)
        .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .where(is_in_list(col(Job.id), "ids"), col(Job.parent_id).is_(None))
    )
    _RESTARTED, _PARENTS = (
        PreparedStatement(select(column).where(is_in_list(col(column), "ids")).distinct())
        for column in (Job.restarted_from, Job.parent_id)
    )
    _LAST_STEPS = (
        select(func.max(col(JobStep.id)))
        .where(
            is_in_list(col(JobStep.job_id), "ids"), *(not_(col(JobStep.step).startswith(name)) for name in AFTERMATH)
        )
        .group_by(col(JobStep.job_id))
    )
    _STEPS = PreparedStatement(
        select(JobStep.job_id, JobStep.step, JobStep.state).where(col(JobStep.id).in_(_LAST_STEPS.scalar_subquery()))
    )
    _DONE = PreparedStatement(
        select(JobStep.job_id, JobStep.step, JobStep.result).where(
            is_in_list(col(JobStep.job_id), "ids"), JobStep.state == StepState.DONE
        )
    )
    _CALLS = PreparedStatement(
        select(LLMCall.job_id, LLMCall.purpose, LLMCall.number, LLMCall.state)
        .add_columns(col(LLMCall.tool_calls) != "", col(LLMCall.cost_usd))
        .where(is_in_list(col(LLMCall.job_id), "ids"))
        .order_by(col(LLMCall.id))
    )

    def list_matching_ids(self, job_filter: JobFilter, limit: int) -> Sequence[str]:
        """Return the ids of up to ``limit`` jobs that match a filter, in the order of arrival."""
        jobs = select(Job.id).where(*filter_conditions(job_filter))
        return self._run_statement(jobs.order_by(col(Job.turn), col(Job.id)).limit(limit)).scalars().all()

    def read_jobs(self, ids: Sequence[str]) -> Iterator[tuple[str, BatchCandidate | None]]:
        """Yield each job id with the data that a preview needs, in the given order; None for a missing job."""
        for batch in split_into_batches(ids):
            candidates = self._read_candidates(batch)
            yield from ((job_id, candidates.get(job_id)) for job_id in batch)

    def read_average_costs(self) -> Prices:
        """Return the average cost of recent model calls, which previews use as the price of one call."""
        newest = (
            select(UsageRow.agent_id, UsageRow.model, UsageRow.cost_usd)
            .where(UsageRow.state == CallState.ANSWERED, col(UsageRow.cost_usd).is_not(None))
            .order_by(col(UsageRow.id).desc())
            .limit(PRICED_CALLS)
        )
        rows = self._run_statement(newest).all()
        return Prices(
            agents=_average_costs((agent, cost) for agent, _, cost in rows if agent is not None),
            models=_average_costs((model, cost) for _, model, cost in rows),
            overall=_average_costs(("", cost) for *_, cost in rows).get(""),
        )

    def _read_candidates(self, ids: Sequence[str]) -> Mapping[str, BatchCandidate]:
        jobs = {job.id: job for job in self._read_job_rows(ids)}
        newest = self._find_newest_jobs(jobs)
        parents = self._read_matching_ids(self._PARENTS, [job.id for job in newest.values()])
        steps = {job_id: (step, state) for job_id, step, state in self._read_rows_of_jobs(self._STEPS, ids)}
        done: dict[str, dict[str, str]] = defaultdict(dict)
        resumed_earlier = [job_id for job_id, last in steps.items() if not continues_at_last_step(*last)]
        for job_id, step, result in self._read_rows_of_jobs(self._DONE, resumed_earlier):
            done[job_id][step] = result
        calls: dict[str, list[CallAttempt]] = defaultdict(list)
        for job_id, purpose, number, state, asks_tools, cost in self._read_rows_of_jobs(self._CALLS, ids):
            calls[job_id].append(CallAttempt(purpose, number, state, bool(asks_tools), cost))
        return {
            job_id: BatchCandidate(
                job=job,
                newest=newest[job_id],
                led_to=self._delegations.list_descendants([newest[job_id].id]) if newest[job_id].id in parents else (),
                step=steps.get(job_id),
                done=done.get(job_id, {}),
                calls=calls.get(job_id, ()),
            )
            for job_id, job in jobs.items()
        }

    def _find_newest_jobs(self, jobs: Mapping[str, Job]) -> dict[str, Job]:
        """Return, by job id, the newest job that answers the same message or does the same task."""
        ids = list(jobs)
        answered_by = dict(self._read_rows_of_jobs(self._ANSWERED_BY, ids))
        others = {other for other in answered_by.values() if other not in jobs}
        answering = {**jobs, **{job.id: job for job in self._read_job_rows(sorted(others))}}
        restarted = self._read_matching_ids(self._RESTARTED, ids)
        newest = {}
        for job_id, job in jobs.items():
            if job.what_if:
                newest[job_id] = job
            elif job_id in answered_by:
                newest[job_id] = answering[answered_by[job_id]]
            else:
                passed_on = job_id in restarted or job.merged_into is not None
                newest[job_id] = self._delegations.find_newest_job(job) if passed_on else job
        return newest

    def _read_job_rows(self, ids: Sequence[str]) -> list[Job]:
        return self._read_models(self._JOBS, Job, ids=write_json_list(ids))

    def _read_rows_of_jobs(self, prepared: PreparedStatement, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._read_rows(prepared, ids=write_json_list(ids))

    def _read_matching_ids(self, prepared: PreparedStatement, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(value for (value,) in self._read_rows_of_jobs(prepared, ids))


def _average_costs(costs: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    sums: dict[Key, list[float]] = defaultdict(list)
    for key, cost in costs:
        sums[key].append(cost)
    return {key: sum(values) / len(values) for key, values in sums.items()}
