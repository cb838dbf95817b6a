"""``maestro jobs``: an operator's work with jobs, beside a running Maestro."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from maestro.bootstrap.operations import Operator, open_operator
from maestro.cli.framework.commands import configured
from maestro.cli.framework.inputs import QueryOptions, made
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Result, joined, plain, write
from maestro.cli.jobs import batches
from maestro.cli.jobs.options import read_time
from maestro.cli.jobs.texts import JOB_COLUMNS, replay_preview, seen_prompt, timeline
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.job import JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.views import JobDetail
from maestro.operations.jobs import JobOperations, JobQuery

POLL_SECONDS = 0.5

HELP = """List, show, count, replay and cancel jobs, one or many, and see what the models saw.

A job is one piece of work, such as answering one message. Listing and showing work whether Maestro runs or not; what
you replay or cancel is done by the running Maestro, or by the next one that starts.
"""

Id = Annotated[str, "ID: The id of the job, as `maestro jobs list` shows it."]


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


app.add_typer(batches.app)


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
