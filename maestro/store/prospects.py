"""What a batch is judged by before it does anything: the jobs that are meant, and what tells what becomes of them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import bindparam, func, not_
from sqlmodel import col, select

from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.forecast import Made, Prices, Prospect, leaves_open
from maestro.domain.jobs.job import Job, JobStep, StepState
from maestro.domain.jobs.path import AFTERMATH
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.usage import UsageRow
from maestro.domain.messages import InboxRow
from maestro.store.delegations import Delegations
from maestro.store.job_filters import conditions
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository

CHUNK = 1000
"""Jobs that are read at a time."""

LATELY = 1000
"""Model calls, the newest, whose cost tells what one costs."""

Key = TypeVar("Key")


class Prospects(Repository):
    """Reads only, a thousand jobs with a handful of queries: a batch may have a hundred times as many."""

    _GIVEN = select(func.json_each(bindparam("ids")).table_valued("value").c.value)
    _JOBS = Prepared(select(Job).where(col(Job.id).in_(_GIVEN)))
    _ANSWERED_BY = Prepared(
        select(Job.id, InboxRow.job_id)
        .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .where(col(Job.id).in_(_GIVEN), col(Job.parent_id).is_(None))
    )
    _RESTARTED = Prepared(select(Job.restarted_from).where(col(Job.restarted_from).in_(_GIVEN)).distinct())
    _PARENTS = Prepared(select(Job.parent_id).where(col(Job.parent_id).in_(_GIVEN)).distinct())
    _LAST_STEPS = (
        select(func.max(col(JobStep.id)))
        .where(col(JobStep.job_id).in_(_GIVEN), *(not_(col(JobStep.step).startswith(name)) for name in AFTERMATH))
        .group_by(col(JobStep.job_id))
    )
    _STEPS = Prepared(
        select(JobStep.job_id, JobStep.step, JobStep.state).where(col(JobStep.id).in_(_LAST_STEPS.scalar_subquery()))
    )
    _DONE = Prepared(
        select(JobStep.job_id, JobStep.step, JobStep.result).where(
            col(JobStep.job_id).in_(_GIVEN), JobStep.state == StepState.DONE
        )
    )
    _CALLS = Prepared(
        select(LLMCall.job_id, LLMCall.purpose, LLMCall.number, LLMCall.state)
        .add_columns(col(LLMCall.tool_calls) != "", col(LLMCall.cost_usd))
        .where(col(LLMCall.job_id).in_(_GIVEN))
        .order_by(col(LLMCall.id))
    )

    def ids(self, wanted: JobFilter, limit: int) -> Sequence[str]:
        """Return the jobs of a filter in the order of their turns, as many as its list shows."""
        found = select(Job.id).where(*conditions(wanted))
        return self._run(found.order_by(col(Job.turn), col(Job.id)).limit(limit)).scalars().all()

    def of(self, ids: Sequence[str]) -> Iterator[tuple[str, Prospect | None]]:
        """Yield each job with what there is to know, None for one that does not exist; in the order given."""
        for begin in range(0, len(ids), CHUNK):
            chunk = ids[begin : begin + CHUNK]
            found = self._chunk(chunk)
            yield from ((job_id, found.get(job_id)) for job_id in chunk)

    def prices(self) -> Prices:
        """Return what a model call cost of late."""
        newest = (
            select(UsageRow.agent_id, UsageRow.model, UsageRow.cost_usd)
            .where(UsageRow.state == CallState.ANSWERED, col(UsageRow.cost_usd).is_not(None))
            .order_by(col(UsageRow.id).desc())
            .limit(LATELY)
        )
        rows = self._run(newest).all()
        return Prices(
            agents=_means((agent, cost) for agent, _, cost in rows if agent is not None),
            models=_means((model, cost) for _, model, cost in rows),
            overall=_means(("", cost) for *_, cost in rows).get(""),
        )

    def _chunk(self, ids: Sequence[str]) -> Mapping[str, Prospect]:
        jobs = {job.id: job for job in self._jobs(ids)}
        newest = self._newest(jobs)
        parents = self._those(self._PARENTS, [job.id for job in newest.values()])
        steps = {job_id: (step, state) for job_id, step, state in self._found(self._STEPS, ids)}
        done = self._done([job_id for job_id, last in steps.items() if not leaves_open(*last)])
        calls: dict[str, list[Made]] = defaultdict(list)
        for job_id, purpose, number, state, asks_tools, cost in self._found(self._CALLS, ids):
            calls[job_id].append(Made(purpose, number, state, bool(asks_tools), cost))
        return {
            job_id: Prospect(
                job=job,
                newest=newest[job_id],
                led_to=self._delegations.below([newest[job_id].id]) if newest[job_id].id in parents else (),
                step=steps.get(job_id),
                done=done.get(job_id, {}),
                calls=calls.get(job_id, ()),
            )
            for job_id, job in jobs.items()
        }

    def _newest(self, jobs: Mapping[str, Job]) -> dict[str, Job]:
        """Return the job that answers the same message, or does the same task, now, for each."""
        ids = list(jobs)
        answered_by = dict(self._found(self._ANSWERED_BY, ids))
        others = {other for other in answered_by.values() if other not in jobs}
        answering = {**jobs, **{job.id: job for job in self._jobs(sorted(others))}}
        restarted = self._those(self._RESTARTED, ids)
        found = {}
        for job_id, job in jobs.items():
            if job.what_if:
                found[job_id] = job
            elif job_id in answered_by:
                found[job_id] = answering[answered_by[job_id]]
            else:
                passed_on = job_id in restarted or job.merged_into is not None
                found[job_id] = self._delegations.newest(job) if passed_on else job
        return found

    def _done(self, ids: Sequence[str]) -> Mapping[str, dict[str, str]]:
        results: dict[str, dict[str, str]] = defaultdict(dict)
        for job_id, step, result in self._found(self._DONE, ids):
            results[job_id][step] = result
        return results

    def _jobs(self, ids: Sequence[str]) -> list[Job]:
        return self._read_all(self._JOBS, Job, ids=json.dumps(ids))

    @property
    def _delegations(self) -> Delegations:
        return Delegations(self._link, self._now)

    def _found(self, prepared: Prepared, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._rows(prepared, ids=json.dumps(ids))

    def _those(self, prepared: Prepared, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(value for (value,) in self._found(prepared, ids))


def _means(costs: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    sums: dict[Key, list[float]] = defaultdict(list)
    for key, cost in costs:
        sums[key].append(cost)
    return {key: sum(values) / len(values) for key, values in sums.items()}
