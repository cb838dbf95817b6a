"""A heartbeat without a model: fetch, fill in, compare."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr
from temporalio import activity
from ulid import ULID

from maestro.domain.jobs.flow import ScriptOutcome
from maestro.domain.jobs.job import Ending, Job, JobStatus, StepRef
from maestro.domain.schedules.schedule import Heartbeat
from maestro.domain.schedules.scripts import Script, ScriptFailed, asked, fetched_json, filled, read_script
from maestro.fetch import Access, Limits, fetch
from maestro.store.store import Store
from maestro.store.transaction import Transaction

LIMITS = Limits(max_bytes=1_000_000, seconds=20)


@dataclass(frozen=True)
class ScriptRules:
    """Which hosts may be asked although they are not public, and what a reference to a token stands for."""

    private_hosts: frozenset[str]
    reveal: Callable[[str], SecretStr]


class ScriptActivities:
    """Runs the scripts of heartbeats."""

    def __init__(self, store: Store, rules: Callable[[], ScriptRules]) -> None:
        self._store = store
        self._rules = rules

    @activity.defn
    async def run_script(self, ref: StepRef) -> ScriptOutcome:
        """Fetch what the script wants and keep what is to be posted; the job ends here if that is nothing.

        A condition that holds makes another job, which asks a model and waits its turn like any other.
        """
        script = await asyncio.to_thread(self._script, ref)
        rules = self._rules()
        bearer = rules.reveal(script.bearer) if script.bearer else SecretStr("")
        answer = await fetch(script.url, LIMITS, Access(private_hosts=rules.private_hosts, bearer=bearer))
        return await asyncio.to_thread(self._keep, ref, script, fetched_json(answer.status, answer.body))

    def _script(self, ref: StepRef) -> Script:
        with self._store.view() as tx:
            planned = tx.schedule_runs.find(tx.jobs.read(ref.job_id).schedule)
        if not isinstance(planned, Heartbeat) or not planned.script:
            raise ScriptFailed("the schedule has no script any more")
        return read_script(planned.script)

    def _keep(self, ref: StepRef, script: Script, fetched: object) -> ScriptOutcome:
        text = filled(script.template, fetched)
        with self._store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            asks = ""
            if script.condition is not None and script.condition.holds(fetched):
                asks = tx.jobs.add(_asking(tx, job, asked(script, script.condition, fetched))).id
            tx.jobs.update(job.id, said=text)
            if not text:
                tx.close_job(job.id, Ending(status=JobStatus.COMPLETED))
            return tx.steps.done(ref, ScriptOutcome(posts=bool(text), asks=asks))


def _asking(tx: Transaction, job: Job, task: str) -> Job:
    """Return the job that tells a model what was found."""
    return Job(
        id=f"{job.kind}-{ULID()}",
        kind=job.kind,
        priority=job.priority,
        agent_id=job.agent_id,
        client_id=job.client_id,
        task=task,
        schedule=job.schedule,
        slot=job.slot,
        created_at=tx.now,
        **job.address.model_dump(),
    )
