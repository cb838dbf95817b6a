"""Runs of schedules: the job of a planned time, the first step of jobs without a user, and heartbeat scripts.

See docs/decisions.md: schedules.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr
from temporalio import activity
from ulid import ULID

from activities.routing import require_active
from maestro.domain.agents.agent import paying_client_id
from maestro.domain.jobs.flow import BackgroundOutcome, ScriptOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, JobStep, StepRef, Wait
from maestro.domain.jobs.steps import StepKind
from maestro.domain.precedence import Priority
from maestro.domain.schedules.edits import (
    Script,
    ScriptFailed,
    condition_text,
    fill_script_template,
    read_response,
    read_script,
)
from maestro.domain.schedules.schedule import (
    GIVEN_UP,
    Heartbeat,
    RunAdmission,
    ScheduleColumns,
    ScheduledRun,
    count_missed_times,
    is_skipped,
    new_run_job,
    skip_reason,
)
from maestro.domain.settings.jobs import JobSettings, ScheduleSettings, ToolSettings
from maestro.fetch import FetchAccess, FetchLimits, fetch_response
from maestro.store.store import Store
from maestro.store.transaction import Transaction

LIMITS = FetchLimits(max_bytes=1_000_000, seconds=20)


@dataclass(frozen=True)
class ScheduleActivities:
    """Starts the jobs of schedules, and finds the agents of background jobs."""

    store: Store
    schedules: Callable[[], ScheduleSettings]
    jobs: Callable[[], JobSettings]

    @activity.defn(no_thread_cancel_exception=True)
    def enter(self, firing: ScheduledRun) -> RunAdmission:
        """Add the job for a planned time of a schedule, or return why no job is added.

        At the limit of background jobs, the job is only stored, and the dispatcher starts it later.
        """
        with self.store.begin() as tx:
            earlier = tx.jobs.find(firing.job_id)
            if earlier is not None:  # An earlier attempt has already added the job.
                if earlier.status is JobStatus.RUNNING and earlier.run == 1:
                    return RunAdmission(begun=True)
                return RunAdmission(begun=False, reason=f"the job of this time is {earlier.status}")
            planned = tx.background.schedules.find(firing.schedule)
            agent = tx.agents.get(planned.agent_id) if planned is not None else None
            if planned is not None:
                _pause_failing(tx, planned, self.schedules().pause_after_failures)
            open_job = tx.background.runs.find_open_job(firing.schedule)
            reason = skip_reason(planned, agent, open_job)
            if planned is not None and agent is not None and (reason is None or open_job is not None):
                # An earlier attempt may have counted this run before its process died.
                new = reason is not None and planned.last_slot != firing.slot
                planned.skipped += count_missed_times(planned, agent, firing.slot) + new
                planned.last_slot = firing.slot
            if reason is not None or planned is None or agent is None:
                return RunAdmission(begun=False, reason=reason or "")
            payer = paying_client_id(agent, tx.agents.find_binding(planned.address))
            job = new_run_job(planned, payer, firing.job_id, firing.slot)
            is_full = tx.jobs.is_background_full(self.jobs().background_concurrency)
            tx.background.runs.count_run(tx.jobs.add(job))
            if is_full:
                reason = "the limit of background jobs is reached: the job starts when one of them ends"
                return RunAdmission(begun=False, reason=reason)
            step = StepRef(job_id=job.id, step=StepKind.ENTER)
            tx.jobs.steps.start_attempt(step, StepKind.ENTER, job.run, tx.jobs.steps.read_history(step))
            tx.jobs.mark_started(job.id)
            return tx.jobs.steps.finish_step(step, RunAdmission(begun=True))

    @activity.defn(no_thread_cancel_exception=True)
    def take_on(self, ref: StepRef) -> BackgroundOutcome:
        """Return the agent of a background job; raises ``NoAgent`` when that agent was paused meanwhile."""
        with self.store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            require_active(agent)
            outcome = BackgroundOutcome(agent=agent.slug, script=not job.task, precedence=tx.jobs.read_precedence(job))
            return tx.jobs.steps.finish_step(ref, outcome)


def skip_run(tx: Transaction, job: Job, wait: Wait, attempt: JobStep | None) -> bool:
    """End a schedule's run that cannot call a model now, and count it as skipped; return whether it was skipped.

    A skipped run is no failure: a spent budget or an outage must not pause a schedule.
    """
    planned = tx.background.schedules.find(job.schedule)
    if planned is None or attempt is None or not is_skipped(planned, wait, tx.now):
        return False
    planned.skipped += 1
    tx.jobs.close_job(
        job.id, JobEnding(status=JobStatus.DROPPED, error=attempt.error, reason=f"skipped: {attempt.detail}")
    )
    return True


def pause_failing(tx: Transaction, job_id: str, limit: int) -> None:
    """Pause the schedule of an ended job after too many consecutive failures, and notify its channel."""
    planned = tx.background.schedules.find(tx.jobs.read(job_id).schedule)
    if planned is not None:
        _pause_failing(tx, planned, limit)


def _pause_failing(tx: Transaction, planned: ScheduleColumns, limit: int) -> None:
    if planned.failures < limit or planned.paused_reason or not planned.enabled:
        return
    planned.paused_reason = GIVEN_UP.format(planned.failures)
    text = f"The {planned.kind} “{planned.name}” {planned.paused_reason} and is paused now. The operators can see why."
    tx.jobs.add(
        Job(
            id=f"{planned.kind}-{ULID()}",
            kind=planned.kind,
            priority=Priority.SCHEDULED,
            notice=text,
            created_at=tx.now,
            **planned.address.model_dump(),
        )
    )
    tx.system.audit.add_entry("maestro", f"{planned.kind}.pause", planned.ref, planned.paused_reason)


@dataclass(frozen=True)
class ScriptActivities:
    """Runs the scripts of heartbeats; ``reveal`` returns a token by its reference."""

    store: Store
    settings: Callable[[], ToolSettings]
    reveal: Callable[[str], SecretStr]

    @activity.defn
    async def run_script(self, ref: StepRef) -> ScriptOutcome:
        """Fetch the script's data and store the text to post; without a text the job ends here.

        If the script's condition holds, another job is added, which gives the data to a model and waits like any other
        job.
        """
        script = await asyncio.to_thread(self._read_script, ref)
        private_hosts = frozenset(host.lower() for host in self.settings().private_hosts)
        bearer = self.reveal(script.bearer) if script.bearer else SecretStr("")
        answer = await fetch_response(script.url, LIMITS, FetchAccess(private_hosts=private_hosts, bearer=bearer))
        return await asyncio.to_thread(self._store_text, ref, script, read_response(answer.status, answer.body))

    def _read_script(self, ref: StepRef) -> Script:
        with self.store.view() as tx:
            planned = tx.background.schedules.find(tx.jobs.read(ref.job_id).schedule)
        if not isinstance(planned, Heartbeat) or not planned.script:
            raise ScriptFailed("the schedule has no script any more")
        return read_script(planned.script)

    def _store_text(self, ref: StepRef, script: Script, fetched: object) -> ScriptOutcome:
        text = fill_script_template(script.template, fetched)
        with self.store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            model_job = ""
            if script.condition is not None and script.condition.is_met(fetched):
                model_job = f"{job.kind}-{ULID()}"
                tx.jobs.add(
                    Job(
                        id=model_job,
                        kind=job.kind,
                        priority=job.priority,
                        agent_id=job.agent_id,
                        client_id=job.client_id,
                        task=condition_text(script, script.condition, fetched),
                        schedule=job.schedule,
                        slot=job.slot,
                        created_at=tx.now,
                        **job.address.model_dump(),
                    )
                )
            tx.jobs.update_job(job.id, said=text)
            if not text:
                tx.jobs.close_job(job.id, JobEnding(status=JobStatus.COMPLETED))
            return tx.jobs.steps.finish_step(ref, ScriptOutcome(posts=bool(text), asks=model_job))
