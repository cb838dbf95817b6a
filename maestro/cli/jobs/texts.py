"""Texts about jobs on a terminal: lists, timelines, previews of replays, batches, and the prompts of model calls."""

from collections.abc import Iterable, Iterator

from maestro.cli.framework.output import (
    Columns,
    Portrait,
    field_lines,
    join,
    moment,
    plain,
    price,
    text_lines,
    titled_table,
)
from maestro.domain.context.views import RecordedCallView
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import BatchAction, BatchView
from maestro.domain.jobs.replay import ReplayPreview
from maestro.domain.jobs.views import excerpt
from maestro.domain.llm.prompts import Role, ToolCall

BATCH_RESULTS = {BatchAction.RESUME: "resumed", BatchAction.RESTART: "restarted", BatchAction.CANCEL: "cancelled"}

JOB_COLUMNS = Columns(
    "id status kind agent channel age=created_at:age attempts error",
    {
        "kind": lambda job: job.schedule or job.kind,
        "channel": lambda job: f"{job.platform}/{job.channel}",
        "error": lambda job: job.error or job.reason,
    },
)
STEP_COLUMNS = Columns(
    "step state attempt run started=started_at took=duration_ms:duration error",
    {"error": lambda step: join(step.error, step.detail, by=": ")},
)
CALL_COLUMNS = Columns(
    "id call for=purpose state provider model account in=input_tokens out=output_tokens "
    "cached=cached_tokens cost=cost_usd:price took=duration_ms:duration tools error",
    {"call": lambda call: f"{call.number}.{call.attempt}"},
)
TOOL_COLUMNS = Columns(
    "round tool state attempts took=duration_ms:duration result:excerpt",
    {"round": lambda call: f"{call.number}.{call.place}"},
)
QUESTION_COLUMNS = Columns(
    "id round=number asked=text:excerpt state=status answer:excerpt by=answered_by",
    {"id": lambda question: f"#{question.id}"},
)
ACTION_COLUMNS = Columns("place=seq tag:lower about=subject state outcome=detail")
WOULD_ACT_COLUMNS = Columns("place=seq tag:lower about=subject text:excerpt")
BATCH_COLUMNS = Columns(
    "id does=action age=created_at:age jobs=total waiting begun refused skipped completed failed open"
)
ITEM_COLUMNS = Columns("place job=job_id state began status why_not=problem")
ERROR_COLUMNS = Columns("jobs=count error step newest:age agents example reason")

JOB_PORTRAIT = Portrait(
    lambda job: f"{job.id}  {job.status}",
    hide="id status platform account thread excerpt priority attempts started_at edits what_if cost_usd "
    "interrupted_cost_usd calls deliveries actions substitution would_act depth erased restarted_from",
    lines_of={
        "channel": lambda job: join(job.platform, job.account, job.channel, job.thread),
        "message": lambda job: job.excerpt if not job.task else "",
        "task": lambda job: excerpt(job.task),
        "what if": lambda job: job.restarted_from if job.what_if else "",
        "restarted from": lambda job: "" if job.what_if else job.restarted_from,
        "answered by": lambda job: (
            (by := job.substitution) and f"{by.model} of account {by.account}, because {by.reason}"
        ),
        "chosen agent": lambda job: job.edits and job.edits.agent,
        "chosen model": lambda job: job.edits and job.edits.model,
        "asked instead": lambda job: job.edits and excerpt(job.edits.prompt or ""),
        "cost": lambda job: None if job.cost_usd is None else price(job.cost_usd),
        "cut off": lambda job: None if job.interrupted_cost_usd is None else price(job.interrupted_cost_usd),
        "would answer": lambda job: excerpt(job.said) if job.what_if else "",
        "said": lambda job: "" if job.what_if else excerpt(job.said),
        "texts": lambda job: "deleted with the conversation" if job.erased else "",
        "model calls": lambda job: job.calls,
        "acted on": lambda job: job.actions,
        "would have acted on": lambda job: job.would_act,
        "sent": lambda job: job.deliveries,
    },
    tables={
        "steps": STEP_COLUMNS,
        "model calls": CALL_COLUMNS,
        "tools": TOOL_COLUMNS,
        "questions": QUESTION_COLUMNS,
        "acted on": ACTION_COLUMNS,
        "would have acted on": WOULD_ACT_COLUMNS,
        "sent": Columns("chunk=seq purpose state attempts platform_id=platform_message_id error"),
    },
)


def preview_lines(preview: ReplayPreview) -> Iterator[str]:
    """Yield the lines about what a replay would do, cost and repeat."""
    if not preview.possible:
        yield plain(f"{preview.mode} is not possible: {preview.problem}")
        return
    yield f"{preview.mode} would begin at: {preview.step}"
    calls = f"{'at least ' if preview.more else ''}{preview.model_calls}"
    lines = [
        ("keeps", ", ".join(preview.kept)),
        ("model calls", f"{calls}, about {price(preview.cost_usd)}" if preview.model_calls else calls),
        ("before", f"{preview.first_calls} answered, {price(preview.first_cost_usd)}" if preview.first_calls else ""),
    ]
    for effect in preview.effects:
        outcome = "stays" if effect.kept else "again" if effect.again else "happens"
        lines.append((outcome, f"{effect.text} ({effect.count})" if effect.count > 1 else effect.text))
    yield from field_lines(lines)
    yield "Nothing was changed."


def forecast_lines(forecast: BatchPreview) -> Iterator[str]:
    """Yield the lines about what a batch would do."""
    yield f"{forecast.matching:,} jobs match; {forecast.possible:,} of them would be {BATCH_RESULTS[forecast.action]}."
    if forecast.action is not BatchAction.CANCEL:
        amount = f"about {price(forecast.cost_usd)}"
        if forecast.model_calls and forecast.unknown_cost == forecast.model_calls:
            amount = "their cost is unknown"
        elif forecast.unknown_cost:
            amount += f", and {forecast.unknown_cost:,} of unknown price"
        yield f"They pay for about {forecast.model_calls:,} model calls: {amount}."
    yield from (f"  {step.count:,} from {step.step}" for step in forecast.steps)
    for group in forecast.refused:
        yield f"  {group.count:,} not: {plain(group.reason)} (such as {group.example})"


def progress_lines(batch: BatchView) -> Iterator[str]:
    """Yield the lines about the progress of a batch."""
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
        yield f"  may end at {moment(batch.estimated_end)}"


def prompt_lines(call: RecordedCallView) -> Iterator[str]:
    """Yield one attempt at one model call: the request by layers, the whole messages, and the answer."""
    answer = call.answer
    counted = f", {answer.input_tokens} as counted ({answer.cached_tokens} cached)" if answer is not None else ""
    yield f"{call.job_id}  call {call.id}  {call.purpose} {call.number}.{call.attempt}  {call.state}"
    yield from field_lines(
        [
            ("at", moment(call.started_at)),
            ("error", call.error),
            ("account", call.account),
            ("provider", call.provider),
            ("model", call.model or "the account's own"),
            ("answered by", answer.model if answer is not None else ""),
            ("asked", f"about {call.tokens} tokens as estimated{counted}"),
            ("answer", f"at most {call.max_output_tokens} tokens{', without tools' if call.final else ''}"),
            ("cost", price(answer.cost_usd) if answer is not None else ""),
            ("tools", ", ".join(tool.name for tool in call.tools)),
        ]
    )
    yield from titled_table("Layers", Columns("layer=name characters tokens note"), call.layers)
    for message in call.messages:
        tool = f" of {message.tool} ({message.call_id})" if message.role is Role.TOOL else ""
        row = f", message {message.message_id}" if message.message_id is not None else ""
        yield from ("", plain(f"== {message.role}{tool}, {message.tokens} tokens{row}"), *text_lines(message.text))
        yield from _tool_call_lines(message.tool_calls)
        yield from (f"  [image {image.content_type} {image.digest}]" for image in message.images)
    if answer is not None:
        yield from ("", f"== answer, {answer.output_tokens} tokens", *text_lines(answer.text))
        yield from _tool_call_lines(answer.tool_calls)


def _tool_call_lines(calls: Iterable[ToolCall]) -> Iterator[str]:
    yield from (f"  [calls {plain(call.name)} with {plain(call.arguments)}]" for call in calls)
