"""The commands of jobs: list, show, replay and cancel, one job or many."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from maestro.bootstrap.operations import Operator, open_operator
from maestro.cli.framework.commands import configured
from maestro.cli.framework.inputs import QueryOptions, made
from maestro.cli.framework.operations import ACTOR, OperationCommands, opened
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Result, aligned, joined, listing, plain, write
from maestro.cli.jobs.options import ChosenJobs, read_time
from maestro.cli.jobs.texts import (
    BATCH_COLUMNS,
    ERROR_COLUMNS,
    ITEM_COLUMNS,
    JOB_COLUMNS,
    batch_forecast,
    batch_progress,
    replay_preview,
    seen_prompt,
    timeline,
)
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.batches import BatchAction, BatchRequest
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.views import JobDetail
from maestro.operations.batches import BatchOperations, BatchQuery, ItemQuery
from maestro.operations.jobs import JobOperations, JobQuery

BatchId = Annotated[str, "ID: The id of the batch, as `maestro jobs batches` lists it."]

POLL_SECONDS = 0.5

HELP = """List, show, count, replay and cancel jobs, one or many, and see what the models saw.

A job is one piece of work, such as answering one message. Listing and showing work whether Maestro runs or not; what
you replay or cancel is done by the running Maestro, or by the next one that starts.
"""

Id = Annotated[str, "ID: The id of the job, as `maestro jobs list` shows it."]


class BatchMode(StrEnum):
    """How many jobs are replayed."""

    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True)
class BatchConfirmation:
    """The options that confirm an action on many jobs."""

    all_matching: Annotated[bool, "--all-matching: All jobs there are, where no other option says which."] = False
    dry_run: Annotated[bool, "--dry-run: Only tell what it would do."] = False
    yes: Annotated[bool, "--yes: Do not ask whether it is meant."] = False
    expected: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Do nothing when it is not this number of jobs.")
    ] = None

    def check(self, chosen: JobFilter) -> None:
        """Raise ``typer.BadParameter`` when every job is meant, and no option says so."""
        if chosen == JobFilter() and not self.all_matching:
            raise typer.BadParameter("say which jobs, for example with --status failed, or --all-matching for all")


@dataclass(frozen=True)
class BatchEdits:
    """The options that change each job that is restarted."""

    with_agent: Annotated[str | None, "SLUG: Restart them with this agent instead of their own."] = None
    with_model: Annotated[str | None, "NAME: Restart them with this model instead of their agent's."] = None
    with_prompt: Annotated[str | None, "TEXT: Restart them with this text instead of their message."] = None

    def field(self) -> Mapping[str, Any]:
        """Return the edits as a field, without any if there are none."""
        edits = made(JobEdits, agent=self.with_agent, model=self.with_model, prompt=self.with_prompt)
        return {"edits": edits} if edits.any else {}


batches = OperationCommands(None, lambda at: BatchOperations(at.store))


@batches.command("replay-all")
def replay_all(
    given: Given,
    chosen: ChosenJobs,
    confirmation: BatchConfirmation,
    edits: BatchEdits,
    mode: Annotated[
        BatchMode, "resume: go on at the failed step and keep every result; restart: from the top."
    ] = BatchMode.RESUME,
) -> None:
    """Replay every job that is meant, after telling what that does and pays for."""
    _begin_batch(given, chosen, confirmation, action=BatchAction(mode), **edits.field())


@batches.command("cancel-all")
def cancel_all(given: Given, chosen: ChosenJobs, confirmation: BatchConfirmation) -> None:
    """Stop every open job that is meant, for good, after telling how many those are."""
    _begin_batch(given, chosen, confirmation, action=BatchAction.CANCEL)


@batches.operation("counts")
def count_jobs(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Count jobs by status; --status itself does not matter."""
    found = batches.counts(chosen)
    numbers = found.model_dump(by_alias=False)
    return found, aligned([("STATUS", "JOBS"), *((name, f"{count:,}") for name, count in numbers.items())])


@batches.operation("errors")
def group_errors(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Group failed jobs by what went wrong, the newest kind first."""
    groups = batches.errors(chosen)
    return groups, listing(groups, ERROR_COLUMNS, "There are no such failures.")


@batches.operation("batches")
def show_batches(
    batches: BatchOperations,
    query: Annotated[BatchQuery, QueryOptions(BatchQuery)],
    batch_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show how far this one is.")] = None,
) -> Result:
    """List batches, newest first, or show how far one is."""
    if batch_id:
        batch = batches.show(batch_id)
        return batch, batch_progress(batch)
    page = batches.list(query)
    return page, listing(page, BATCH_COLUMNS, "There are no batches yet.")


@batches.operation("batch-jobs")
def list_batch_jobs(
    batches: BatchOperations, batch_id: BatchId, query: Annotated[ItemQuery, QueryOptions(ItemQuery)]
) -> Result:
    """List what came of each job of a batch, in their order."""
    page = batches.items(batch_id, query)
    return page, listing(page, ITEM_COLUMNS, "There are no such jobs in this batch.")


@batches.operation("stop-batch")
def stop_batch(batches: BatchOperations, batch_id: BatchId) -> Result:
    """Let no more jobs of a batch begin; those that were begun go on."""
    batch = batches.stop(batch_id, ACTOR)
    return batch, batch_progress(batch)


def _begin_batch(given: Given, chosen: JobFilter, confirmation: BatchConfirmation, **wish_fields: Any) -> None:
    """Tell what would be done and, where it is confirmed, have it done."""
    with opened(given) as at:
        confirmation.check(chosen)
        batches, wish = BatchOperations(at.store), made(BatchRequest, filter=chosen, **wish_fields)
        if not confirmation.yes:
            forecast = batches.forecast(wish)
            write(forecast, batch_forecast(forecast), given.as_json and confirmation.dry_run)
            wish = wish.model_copy(update={"expected": forecast.matching})
        if confirmation.expected is not None:
            wish = wish.model_copy(update={"expected": confirmation.expected})
        if confirmation.dry_run:
            return
        if not confirmation.yes:
            typer.confirm("Is that meant?", abort=True, err=True)
        batch = batches.begin(wish, ACTOR)
    write(batch, batch_progress(batch), given.as_json)


def _operator(given: Given) -> AbstractContextManager[Operator]:
    return open_operator(configured(given, accounts=False))


app = OperationCommands(HELP, lambda operator: operator.jobs, context=_operator)
app.list(
    "List jobs, newest first.", JOB_COLUMNS, "There are no such jobs.", QueryOptions(JobQuery, read_time=read_time)
)


@app.command()
def show(given: Given, job_id: Id) -> None:
    """Show a job: its steps with every attempt, its model calls, and what it sent."""
    with _operator(given) as operator:
        job = operator.jobs.show(job_id)
    write(job, timeline(job, operator.dashboard), given.as_json)


@app.operation()
def prompt(
    jobs: JobOperations,
    job_id: Id,
    call: Annotated[
        int | None,
        typer.Option(
            metavar="ID", min=1, max=LARGEST, help="The call, as `maestro jobs show` lists it; else the last."
        ),
    ] = None,
) -> Result:
    """Show exactly what a model saw in one call, and what it said."""
    seen = jobs.last_prompt(job_id) if call is None else jobs.prompt(job_id, call)
    return seen, seen_prompt(seen)


@app.command()
def replay(
    given: Given,
    job_id: Id,
    mode: Annotated[
        ReplayMode,
        "resume: go on at the failed step and keep every result; restart: again from the top, as a new "
        "job; what-if: only show what would be answered now.",
    ] = ReplayMode.RESUME,
    agent: Annotated[str | None, "SLUG: Who answers instead."] = None,
    model: Annotated[str | None, "NAME: The model that is asked first instead."] = None,
    prompt: Annotated[str | None, "TEXT: What the model reads instead of the message or the task."] = None,
    drop_edits: Annotated[bool, "--no-edits: Do it as it was the first time, without earlier changes."] = False,
    preview: Annotated[bool, "--preview: Only tell what would be done, paid and repeated."] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for its end; exit with 1 unless completed.")
    ] = False,
) -> None:
    """Let an ended job run again, and print the id of the job that runs now."""
    edits = _edits(drop_edits, agent=agent, model=model, prompt=prompt)
    with _operator(given) as operator:
        if preview:
            found = operator.jobs.preview(job_id, mode, edits)
            write(found, replay_preview(found), given.as_json)
            return
        running = asyncio.run(operator.jobs.replay(job_id, mode, ACTOR, edits))
        if not (wait and given.as_json):
            write({"id": running}, running, given.as_json)
        if wait:
            _conclude(_followed(operator.jobs, running), given.as_json)


@app.operation()
def cancel(jobs: JobOperations, job_id: Id) -> Result:
    """Stop an open job for good; one that runs notices within a second."""
    status = asyncio.run(jobs.cancel(job_id, ACTOR)).status
    line = f"{job_id} is {status}" if status.ended else f"{job_id} was told to stop and is still {status}"
    return _ending(job_id, status), line


app.add_typer(batches)


def _edits(dropped: bool, **changes: str | None) -> JobEdits | None:
    """Return what is changed, None to keep what was changed before."""
    edits = made(JobEdits, **changes)
    return edits if edits.any or dropped else None


def _followed(jobs: JobOperations, job_id: str) -> JobDetail:
    """Wait for the end of a job, and print each change of its status to standard error."""
    printed = None
    while not (status := jobs.status(job_id)).ended:
        if status is not printed:
            printed = status
            typer.echo(f"{job_id} is {status}; Ctrl-C ends the waiting, not the job", err=True)
        time.sleep(POLL_SECONDS)
    return jobs.show(job_id)


def _conclude(job: JobDetail, as_json: bool) -> None:
    """Print how a job ended; the command fails too unless it was completed."""
    line = plain(joined(job.status, job.error, job.reason, by=": "))
    write(_ending(job.id, job.status, job.error, job.reason), line, as_json)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def _ending(job_id: str, status: JobStatus, error: str = "", reason: str = "") -> dict[str, str]:
    return {"id": job_id, "status": status, "error": error, "reason": reason}
