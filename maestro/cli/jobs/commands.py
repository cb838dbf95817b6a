"""The commands of jobs: list, show, replay and cancel, one job or many."""

import asyncio
from datetime import datetime, time, timedelta
from time import sleep
from typing import Annotated, Any, Literal

import typer
from pydantic import Field

from maestro.bootstrap.operations import build_operator
from maestro.cli.framework.commands import QueryOptions, build_input
from maestro.cli.framework.operations import ACTOR, OperationCommands, open_context
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Result, align_rows, join, listing, plain, write
from maestro.cli.jobs.texts import (
    BATCH_COLUMNS,
    ERROR_COLUMNS,
    ITEM_COLUMNS,
    JOB_COLUMNS,
    JOB_PORTRAIT,
    forecast_lines,
    preview_lines,
    progress_lines,
    prompt_lines,
)
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.batches import BatchAction, BatchRequest
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.views import JobDetail
from maestro.domain.values import Value
from maestro.operations.batches import BatchOperations, BatchQuery, ItemQuery
from maestro.operations.jobs import JobOperations, JobQuery
from maestro.settings.addresses import dashboard_url

BatchId = Annotated[str, "ID: The id of the batch, as `maestro jobs batches` lists it."]

HELP = """List, show, count, replay and cancel jobs, one or many, and see what the models saw.

A job is one piece of work, such as answering one message. Listing and showing work whether Maestro runs or not; what
you replay or cancel is done by the running Maestro, or by the next one that starts.
"""


def read_time(text: str) -> datetime:
    """Read a time; without an offset it is in this machine's zone, and without a day it is the last such clock time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass  # the text may be a clock time without a day
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00, or 09:00 for the last 09:00") from None
    now = datetime.now().astimezone()
    today = datetime.combine(now, clock).astimezone()
    return today if today <= now else today - timedelta(days=1)


ChosenJobs = Annotated[JobFilter, QueryOptions(JobFilter, read_time=read_time)]
"""The filter for the jobs of a command; without any option it matches all jobs."""
Id = Annotated[str, "ID: The id of the job, as `maestro jobs list` shows it."]


class BatchConfirmation(Value):
    """The options that confirm an action on many jobs."""

    all_matching: bool = Field(default=False, description="act on all jobs, if no other option selects jobs")
    dry_run: bool = Field(default=False, description="only show what the batch would do")
    yes: bool = Field(default=False, description="do not ask for confirmation")
    expected: int | None = Field(default=None, ge=0, description="do nothing unless exactly this number of jobs match")


Confirmation = Annotated[BatchConfirmation, QueryOptions(BatchConfirmation, spelling={"expected": "--expected N"})]


batches = OperationCommands(None, lambda at: BatchOperations(at.store))


@batches.command("replay-all")
def replay_all(
    given: Given,
    chosen: ChosenJobs,
    confirmation: Confirmation,
    with_agent: Annotated[str | None, "SLUG: Restart them with this agent instead of their own."] = None,
    with_model: Annotated[str | None, "NAME: Restart them with this model instead of their agent's."] = None,
    with_prompt: Annotated[str | None, "TEXT: Restart them with this text instead of their message."] = None,
    mode: Annotated[
        Literal["resume", "restart"], "resume: go on at the failed step and keep every result; restart: from the start."
    ] = "resume",
) -> None:
    """Replay every matching job, after showing what the replays do and cost."""
    edits = build_input(JobEdits, agent=with_agent, model=with_model, prompt=with_prompt)
    changes = {"edits": edits} if edits.any else {}
    _run_batch(given, chosen, confirmation, action=BatchAction(mode), **changes)


@batches.command("cancel-all")
def cancel_all(given: Given, chosen: ChosenJobs, confirmation: Confirmation) -> None:
    """Cancel every matching open job, after showing how many jobs match."""
    _run_batch(given, chosen, confirmation, action=BatchAction.CANCEL)


@batches.operation("counts")
def count_jobs(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Count jobs by status; --status is ignored."""
    counts = batches.counts(chosen)
    return counts, align_rows([("STATUS", "JOBS"), *((status, f"{count:,}") for status, count in counts)])


@batches.operation("errors")
def group_errors(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Group failed jobs by error, the newest first."""
    groups = batches.errors(chosen)
    return groups, listing(groups, ERROR_COLUMNS, "No failures match.")


@batches.operation("batches")
def show_batches(
    batches: BatchOperations,
    query: Annotated[BatchQuery, QueryOptions(BatchQuery)],
    batch_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show the progress of this batch.")] = None,
) -> Result:
    """List batches, newest first, or show the progress of one."""
    if batch_id:
        batch = batches.show(batch_id)
        return batch, progress_lines(batch)
    page = batches.list(query)
    return page, listing(page, BATCH_COLUMNS, "There are no batches yet.")


@batches.operation("batch-jobs")
def list_batch_jobs(
    batches: BatchOperations, batch_id: BatchId, query: Annotated[ItemQuery, QueryOptions(ItemQuery)]
) -> Result:
    """List the result of each job of a batch, in the order of the batch."""
    page = batches.items(batch_id, query)
    return page, listing(page, ITEM_COLUMNS, "No jobs of this batch match.")


@batches.operation("stop-batch")
def stop_batch(batches: BatchOperations, batch_id: BatchId) -> Result:
    """Stop a batch before its next job; jobs that have begun go on."""
    batch = batches.stop(batch_id, ACTOR)
    return batch, progress_lines(batch)


def _run_batch(given: Given, chosen: JobFilter, confirmation: BatchConfirmation, **fields: Any) -> None:
    """Show what a batch would do and, once confirmed, begin the batch."""
    with open_context(given) as at:
        if chosen == JobFilter() and not confirmation.all_matching:
            raise typer.BadParameter("say which jobs, for example with --status failed, or --all-matching for all")
        batches, request = BatchOperations(at.store), build_input(BatchRequest, filter=chosen, **fields)
        if not confirmation.yes:
            forecast = batches.forecast(request)
            write(forecast, forecast_lines(forecast), given.as_json and confirmation.dry_run)
            request = request.model_copy(update={"expected": forecast.matching})
        if confirmation.expected is not None:
            request = request.model_copy(update={"expected": confirmation.expected})
        if confirmation.dry_run:
            return
        if not confirmation.yes:
            typer.confirm("Begin the batch?", abort=True, err=True)
        batch = batches.begin(request, ACTOR)
    write(batch, progress_lines(batch), given.as_json)


app = OperationCommands(HELP, lambda at: build_operator(at.store, at.live))
app.list("List jobs, newest first.", JOB_COLUMNS, "No jobs match.", QueryOptions(JobQuery, read_time=read_time))


@app.command()
def show(given: Given, job_id: Id) -> None:
    """Show a job: its steps with every attempt, its model calls, and what it sent."""
    with open_context(given) as at:
        job = build_operator(at.store, at.live).show(job_id)
    dashboard = dashboard_url(at.loaded.settings)
    page = ["", f"page: {dashboard}/queue/{job_id}"] if dashboard else []
    write(job, [*JOB_PORTRAIT.lines(job), *page], given.as_json)


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
    """Show exactly what a model saw in one call, and the model's answer."""
    recorded = jobs.last_prompt(job_id) if call is None else jobs.prompt(job_id, call)
    return recorded, prompt_lines(recorded)


@app.command()
def replay(
    given: Given,
    job_id: Id,
    mode: Annotated[
        ReplayMode,
        "resume: go on at the failed step and keep every result; restart: from the start, as a new "
        "job; what-if: only show what would be answered now.",
    ] = ReplayMode.RESUME,
    agent: Annotated[str | None, "SLUG: The agent that answers instead."] = None,
    model: Annotated[str | None, "NAME: The model that is asked first instead."] = None,
    prompt: Annotated[str | None, "TEXT: What the model reads instead of the message or the task."] = None,
    drop_edits: Annotated[bool, "--no-edits: Replay the original input, without the edits of earlier replays."] = False,
    preview: Annotated[bool, "--preview: Only show what the replay would do, cost and repeat."] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the job ends; exit with 1 unless it completed.")
    ] = False,
) -> None:
    """Replay an ended job, and print the id of the job that runs now."""
    changes = build_input(JobEdits, agent=agent, model=model, prompt=prompt)
    edits = changes if changes.any or drop_edits else None  # edits of None keep those of earlier replays
    with open_context(given) as at:
        jobs = build_operator(at.store, at.live)
        if preview:
            outcome = jobs.preview(job_id, mode, edits)
            write(outcome, preview_lines(outcome), given.as_json)
            return
        running = asyncio.run(jobs.replay(job_id, mode, ACTOR, edits))
        if not (wait and given.as_json):
            write({"id": running}, running, given.as_json)
        if not wait:
            return
        job = _wait_for_end(jobs, running)
    line = plain(join(job.status, job.error, job.reason, by=": "))
    write(job.model_dump(mode="json", include={"id", "status", "error", "reason"}), line, given.as_json)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


@app.operation()
def cancel(jobs: JobOperations, job_id: Id) -> Result:
    """Cancel an open job; a running job stops within a second."""
    status = asyncio.run(jobs.cancel(job_id, ACTOR)).status
    line = f"{job_id} is {status}" if status.ended else f"{job_id} was told to stop and is still {status}"
    return {"id": job_id, "status": status, "error": "", "reason": ""}, line


app.add_typer(batches)


def _wait_for_end(jobs: JobOperations, job_id: str) -> JobDetail:
    """Wait for the end of a job, and print each change of its status to standard error."""
    printed = None
    while not (status := jobs.status(job_id)).ended:
        if status is not printed:
            printed = status
            typer.echo(f"{job_id} is {status}; Ctrl-C ends the waiting, not the job", err=True)
        sleep(0.5)
    return jobs.show(job_id)
