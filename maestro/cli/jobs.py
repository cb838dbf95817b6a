"""List, show, count, replay and cancel jobs, one or many, and see the prompts that models received.

A job is one unit of work, such as answering one message. You can list and show jobs while Maestro is stopped. Maestro
carries out a replay or a cancellation as soon as it runs.
"""

import asyncio
from collections.abc import Iterable, Iterator
from time import sleep
from typing import Annotated, Any, Literal

import typer
from pydantic import Field

from maestro.bootstrap.flow import build_operator
from maestro.cli.framework.commands import QueryOptions, build_input, read_time
from maestro.cli.framework.operations import ACTOR, OperationCommands, open_context
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import (
    Columns,
    Portrait,
    Result,
    align_rows,
    field_lines,
    join_parts,
    list_lines,
    local_time_text,
    plain_line,
    price_text,
    text_lines,
    titled_table,
    write_output,
)
from maestro.domain.columns import LARGEST
from maestro.domain.context.views import RecordedCallView
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import BatchAction, BatchRequest, BatchView
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobEdits, JobStatus
from maestro.domain.jobs.replay import ReplayMode, ReplayPreview
from maestro.domain.jobs.views import JobDetail, first_line
from maestro.domain.llm.prompts import Role, ToolCall
from maestro.domain.values import Value
from maestro.operations.jobs import BatchOperations, BatchQuery, ItemQuery, JobOperations, JobQuery
from maestro.settings.addresses import dashboard_url

BATCH_RESULTS = {BatchAction.RESUME: "resumed", BatchAction.RESTART: "restarted", BatchAction.CANCEL: "cancelled"}

JOB_COLUMNS = Columns(
    "id status kind agent channel age=created_at:age attempts error",
    {
        "kind": lambda job: job.schedule or job.kind,
        "channel": lambda job: f"{job.platform}/{job.channel}",
        "error": lambda job: job.error or job.reason,
    },
)
BATCH_COLUMNS = Columns(
    "id does=action age=created_at:age jobs=total waiting begun refused skipped completed failed open"
)
ITEM_COLUMNS = Columns("number=place job=job_id state began status problem")
ERROR_COLUMNS = Columns("jobs=count error step newest:age agents example reason")

JOB_PORTRAIT = Portrait(
    lambda job: f"{job.id}  {job.status}",
    hide="id status platform account thread excerpt priority attempts started_at edits what_if cost_usd "
    "interrupted_cost_usd calls deliveries actions substitution would_act depth erased calls_deleted restarted_from "
    "process trace_url",
    lines_of={
        "channel": lambda job: join_parts(job.platform, job.account, job.channel, job.thread),
        "message": lambda job: job.excerpt if not job.task else "",
        "task": lambda job: first_line(job.task),
        "what if": lambda job: job.restarted_from if job.what_if else "",
        "restarted from": lambda job: "" if job.what_if else job.restarted_from,
        "answered by": lambda job: (
            (by := job.substitution) and f"{by.model} of account {by.account}, because {by.reason}"
        ),
        "chosen agent": lambda job: job.edits and job.edits.agent,
        "chosen model": lambda job: job.edits and job.edits.model,
        "asked instead": lambda job: job.edits and first_line(job.edits.prompt or ""),
        "cost": lambda job: None if job.cost_usd is None else price_text(job.cost_usd),
        "cut off": lambda job: None if job.interrupted_cost_usd is None else price_text(job.interrupted_cost_usd),
        "would answer": lambda job: first_line(job.said) if job.what_if else "",
        "said": lambda job: "" if job.what_if else first_line(job.said),
        "texts": lambda job: "deleted with the conversation" if job.erased else "deleted calls" * job.calls_deleted,
        "model calls": lambda job: job.calls,
        "acted on": lambda job: job.actions,
        "would have acted on": lambda job: job.would_act,
        "sent": lambda job: job.deliveries,
    },
    tables={
        "steps": Columns(
            "step state attempt run started=started_at took=duration_ms:duration error",
            {"error": lambda step: join_parts(step.error, step.detail, separator=": ")},
        ),
        "model calls": Columns(
            "id call for=purpose state provider model account in=input_tokens out=output_tokens "
            "cached=cached_tokens cost=cost_usd:price took=duration_ms:duration tools error",
            {"call": lambda call: f"{call.number}.{call.attempt}"},
        ),
        "tools": Columns(
            "round tool state attempts took=duration_ms:duration result:excerpt",
            {"round": lambda call: f"{call.number}.{call.place}"},
        ),
        "questions": Columns(
            "id round=number asked=text:excerpt state=status answer:excerpt by=answered_by",
            {"id": lambda question: f"#{question.id}"},
        ),
        "acted on": Columns("number=seq tag:lower subject state result=detail"),
        "would have acted on": Columns("number=seq tag:lower subject text:excerpt"),
        "sent": Columns("chunk=seq purpose state attempts platform_id=platform_message_id error"),
    },
)

BatchId = Annotated[str, "ID: The id of the batch, as `maestro jobs batches` lists it."]

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
    with_agent: Annotated[str | None, "SLUG: Restart the jobs with this agent instead of their own."] = None,
    with_model: Annotated[str | None, "NAME: Restart the jobs with this model instead of their agent's."] = None,
    with_prompt: Annotated[str | None, "TEXT: Restart the jobs with this text instead of their message."] = None,
    mode: Annotated[
        Literal["resume", "restart"], "resume: go on at the failed step and keep every result; restart: from the start."
    ] = "resume",
) -> None:
    """Replay every matching job, after showing the effects and the cost of the replays."""
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
    return groups, list_lines(groups, ERROR_COLUMNS, "No failures match.")


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
    return page, list_lines(page, BATCH_COLUMNS, "There are no batches yet.")


@batches.operation("batch-jobs")
def list_batch_jobs(
    batches: BatchOperations, batch_id: BatchId, query: Annotated[ItemQuery, QueryOptions(ItemQuery)]
) -> Result:
    """List the result of each job of a batch, in the order of the batch."""
    page = batches.items(batch_id, query)
    return page, list_lines(page, ITEM_COLUMNS, "No jobs of this batch match.")


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
            write_output(forecast, forecast_lines(forecast), given.as_json and confirmation.dry_run)
            request = request.model_copy(update={"expected": forecast.matching})
        if confirmation.expected is not None:
            request = request.model_copy(update={"expected": confirmation.expected})
        if confirmation.dry_run:
            return
        if not confirmation.yes:
            typer.confirm("Begin the batch?", abort=True, err=True)
        batch = batches.begin(request, ACTOR)
    write_output(batch, progress_lines(batch), given.as_json)


app = OperationCommands(__doc__, lambda at: build_operator(at.store, at.live))
app.list("List jobs, newest first.", JOB_COLUMNS, "No jobs match.", QueryOptions(JobQuery, read_time=read_time))


@app.command()
def show(given: Given, job_id: Id) -> None:
    """Show a job: its steps with every attempt, its model calls, and what it sent."""
    with open_context(given) as at:
        job = build_operator(at.store, at.live).show(job_id)
    dashboard = dashboard_url(at.loaded.settings)
    page = ["", f"page: {dashboard}/queue/{job_id}"] if dashboard else []
    write_output(job, [*JOB_PORTRAIT.lines(job), *page], given.as_json)


@app.operation()
def prompt(
    jobs: JobOperations,
    job_id: Id,
    call: Annotated[
        int | None,
        typer.Option(
            metavar="ID", min=1, max=LARGEST, help="The model call's id in `maestro jobs show`; default: the last."
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
    agent: Annotated[str | None, "SLUG: The agent that answers instead of the job's agent."] = None,
    model: Annotated[str | None, "NAME: The model that is called first instead of the agent's."] = None,
    prompt: Annotated[str | None, "TEXT: The text that the model reads instead of the message or the task."] = None,
    drop_edits: Annotated[bool, "--no-edits: Replay the original input, without the edits of earlier replays."] = False,
    preview: Annotated[bool, "--preview: Only show what the replay would do, cost and repeat."] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the job ends; exit with 1 unless it completed.")
    ] = False,
) -> None:
    """Replay an ended job, and print the id of the job that the replay runs."""
    changes = build_input(JobEdits, agent=agent, model=model, prompt=prompt)
    edits = changes if changes.any or drop_edits else None  # None keeps the edits of earlier replays.
    with open_context(given) as at:
        jobs = build_operator(at.store, at.live)
        if preview:
            outcome = jobs.preview(job_id, mode, edits)
            write_output(outcome, preview_lines(outcome), given.as_json)
            return
        running = asyncio.run(jobs.replay(job_id, mode, ACTOR, edits))
        if not (wait and given.as_json):
            write_output({"id": running}, running, given.as_json)
        if not wait:
            return
        job = _wait_for_end(jobs, running)
    line = plain_line(join_parts(job.status, job.error, job.reason, separator=": "))
    write_output(job.model_dump(mode="json", include={"id", "status", "error", "reason"}), line, given.as_json)
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


def preview_lines(preview: ReplayPreview) -> Iterator[str]:
    """Yield the lines that describe a replay: its first step, its cost, and the effects that it repeats."""
    if not preview.possible:
        yield plain_line(f"{preview.mode} is not possible: {preview.problem}")
        return
    yield f"{preview.mode} would begin at: {preview.step}"
    calls = f"{'at least ' if preview.more else ''}{preview.model_calls}"
    lines = [
        ("keeps", ", ".join(preview.kept)),
        ("model calls", f"{calls}, about {price_text(preview.cost_usd)}" if preview.model_calls else calls),
        (
            "before",
            f"{preview.first_calls} answered, {price_text(preview.first_cost_usd)}" if preview.first_calls else "",
        ),
    ]
    for effect in preview.effects:
        outcome = "stays" if effect.kept else "again" if effect.again else "happens"
        lines.append((outcome, f"{effect.text} ({effect.count})" if effect.count > 1 else effect.text))
    yield from field_lines(lines)
    yield "Nothing was changed."


def forecast_lines(forecast: BatchPreview) -> Iterator[str]:
    """Yield the lines that describe a batch before it begins: its jobs, their first steps, and the cost."""
    yield f"{forecast.matching:,} jobs match; {forecast.possible:,} of them would be {BATCH_RESULTS[forecast.action]}."
    if forecast.action is not BatchAction.CANCEL:
        amount = f"about {price_text(forecast.cost_usd)}"
        if forecast.model_calls and forecast.unknown_cost == forecast.model_calls:
            amount = "their cost is unknown"
        elif forecast.unknown_cost:
            amount += f", and {forecast.unknown_cost:,} of unknown price"
        yield f"They pay for about {forecast.model_calls:,} model calls: {amount}."
    yield from (f"  {step.count:,} from {step.step}" for step in forecast.steps)
    for group in forecast.refused:
        yield f"  {group.count:,} not: {plain_line(group.reason)} (such as {group.example})"


def progress_lines(batch: BatchView) -> Iterator[str]:
    """Yield the lines that count the waiting, begun and ended jobs of a batch."""
    yield f"{batch.id}  {batch.action}{', stopped' if batch.stopped else ''}"
    yield (
        f"  {batch.total:,} jobs: {batch.waiting:,} waiting, {batch.begun:,} begun, {batch.refused:,} refused, "
        f"{batch.skipped:,} skipped"
    )
    yield (
        f"  of those begun: {batch.completed:,} completed, {batch.failed:,} failed, {batch.open:,} open, "
        f"{batch.otherwise:,} ended otherwise"
    )
    if batch.estimated_end is not None:
        yield f"  may end at {local_time_text(batch.estimated_end)}"


def prompt_lines(call: RecordedCallView) -> Iterator[str]:
    """Yield the lines of one attempt at a model call: the layers (sections) of the prompt, its messages, the answer."""
    answer = call.answer
    counted = f", {answer.input_tokens} as counted ({answer.cached_tokens} cached)" if answer is not None else ""
    yield f"{call.job_id}  call {call.id}  {call.purpose} {call.number}.{call.attempt}  {call.state}"
    yield from field_lines(
        [
            ("at", local_time_text(call.started_at)),
            ("error", call.error),
            ("account", call.account),
            ("provider", call.provider),
            ("model", call.model or "the account's own"),
            ("answered by", answer.model if answer is not None else ""),
            ("asked", f"about {call.tokens} tokens as estimated{counted}"),
            ("answer", f"at most {call.max_output_tokens} tokens{', without tools' if call.final else ''}"),
            ("cost", price_text(answer.cost_usd) if answer is not None else ""),
            ("tools", ", ".join(tool.name for tool in call.tools)),
        ]
    )
    yield from titled_table("Layers", Columns("layer=name characters tokens note"), call.layers)
    for message in call.messages:
        tool = f" of {message.tool} ({message.call_id})" if message.role is Role.TOOL else ""
        row = f", message {message.message_id}" if message.message_id is not None else ""
        yield from ("", plain_line(f"== {message.role}{tool}, {message.tokens} tokens{row}"), *text_lines(message.text))
        yield from _tool_call_lines(message.tool_calls)
        yield from (f"  [image {image.content_type} {image.digest}]" for image in message.images)
    if answer is not None:
        yield from ("", f"== answer, {answer.output_tokens} tokens", *text_lines(answer.text))
        yield from _tool_call_lines(answer.tool_calls)


def _tool_call_lines(calls: Iterable[ToolCall]) -> Iterator[str]:
    yield from (f"  [calls {plain_line(call.name)} with {plain_line(call.arguments)}]" for call in calls)
