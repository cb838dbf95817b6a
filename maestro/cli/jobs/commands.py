"""``maestro jobs``: an operator's work with jobs, beside a running Maestro."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from maestro.bootstrap.operations import Operator, open_operator
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.inputs import Limit, TextCursor, decoded, made
from maestro.cli.framework.operations import ACTOR
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import listing, write
from maestro.cli.jobs import batches
from maestro.cli.jobs.options import ChosenJobs
from maestro.cli.jobs.texts import JOB_COLUMNS, ending, replay_preview, seen_prompt, timeline
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.cursors import Cursor
from maestro.domain.jobs.job import Edits, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.views import JobSummary, summary
from maestro.store.store import Store

LIMIT = 50
POLL_SECONDS = 0.5

HELP = """List, show, count, replay and cancel jobs, one or many, and see what the models saw.

A job is one piece of work, such as answering one message. Listing and showing work whether Maestro runs or not; what
you replay or cancel is done by the running Maestro, or by the next one that starts.
"""

Id = Annotated[str, "ID: The id of the job, as `maestro jobs list` shows it."]

app = Commands(HELP)


@app.command("list")
def list_jobs(given: Given, chosen: ChosenJobs, limit: Limit = LIMIT, cursor: TextCursor = None) -> None:
    """List jobs, newest first."""
    after = decoded(Cursor.decode, cursor)
    with _operator(given) as operator:
        page = operator.jobs.page(chosen, after, limit)
    write(page, listing(page, JOB_COLUMNS, "There are no such jobs."), given.as_json)


@app.command()
def show(given: Given, job_id: Id) -> None:
    """Show a job: its steps with every attempt, its model calls, and what it sent."""
    with _operator(given) as operator:
        job = operator.jobs.show(job_id)
    write(job, timeline(job, operator.dashboard), given.as_json)


@app.command()
def prompt(
    given: Given,
    job_id: Id,
    call: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=1,
            max=LARGEST,
            help="The id of the call, as `maestro jobs show` lists it; else the last answer.",
        ),
    ] = None,
) -> None:
    """Show exactly what a model saw in one call, and what it said."""
    with _operator(given) as operator:
        jobs = operator.jobs
        seen = jobs.last_prompt(job_id) if call is None else jobs.prompt(job_id, call)
    write(seen, seen_prompt(seen), given.as_json)


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
            _conclude(_followed(operator.store, running), given.as_json)


@app.command()
def cancel(given: Given, job_id: Id) -> None:
    """Stop an open job for good; one that runs notices within a second."""
    with _operator(given) as operator:
        status = asyncio.run(operator.jobs.cancel(job_id, ACTOR)).status
    ended = f"{job_id} is {status}" if status.ended else f"{job_id} was told to stop and is still {status}"
    write(_result(job_id, status), ended, given.as_json)


app.add_typer(batches.app)


def _edits(dropped: bool, **changes: str | None) -> Edits | None:
    """Return what is changed, None to keep what was changed before."""
    edits = made(Edits, **changes)
    return edits if edits.any or dropped else None


def _operator(given: Given) -> AbstractContextManager[Operator]:
    return open_operator(configured(given, accounts=False))


def _followed(store: Store, job_id: str) -> JobSummary:
    """Wait for the end of a job, and print each change of its status to standard error."""
    printed = None
    while True:
        with store.view() as tx:
            job = summary(tx.jobs.lists.job(job_id).listed)
        if job.status.ended:
            return job
        if job.status is not printed:
            printed = job.status
            typer.echo(f"{job_id} is {printed}; Ctrl-C ends the waiting, not the job", err=True)
        time.sleep(POLL_SECONDS)


def _conclude(job: JobSummary, as_json: bool) -> None:
    """Print how a job ended; the command fails too unless it was completed."""
    write(_result(job.id, job.status, job.error, job.reason), ending(job), as_json)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def _result(job_id: str, status: JobStatus, error: str = "", reason: str = "") -> dict[str, str]:
    return {"id": job_id, "status": status, "error": error, "reason": reason}
