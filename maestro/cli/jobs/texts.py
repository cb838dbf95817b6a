"""Jobs in words for a terminal: lists, timelines, previews of replays, batches, and the prompts of model calls."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from maestro.cli.framework.output import Columns, body, facts, joined, moment, plain, section
from maestro.domain.context.views import RecordedCallView, ToolCallView, TurnView
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import BatchAction, BatchView
from maestro.domain.jobs.preview import Effect, ReplayPreview
from maestro.domain.jobs.timeline import excerpt
from maestro.domain.jobs.views import JobDetail
from maestro.domain.llm.prompts import Role

NARROW = 60
"""Characters of a text in a table."""
UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
BATCH_RESULTS = {BatchAction.RESUME: "resumed", BatchAction.RESTART: "restarted", BatchAction.CANCEL: "cancelled"}


def age(time: datetime) -> str:
    """Return how long ago a moment was, in its largest unit."""
    ago = datetime.now(UTC) - time
    unit, length = next((unit for unit in UNITS if ago >= unit[1]), UNITS[-1])
    return f"{max(ago, timedelta()) // length}{unit}"


def cost(usd: float | None) -> str:
    """Return an amount of US dollars, None for an unknown one."""
    return "unknown" if usd is None else f"${usd:.4f}"


def took(view: Any) -> str:
    """Return the duration of a step or a call."""
    ms = view.duration_ms
    return "" if ms is None else f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


JOB_COLUMNS = Columns(
    "id status kind agent channel age attempts error",
    {
        "kind": lambda job: job.schedule or job.kind,
        "channel": lambda job: f"{job.platform}/{job.channel}",
        "age": lambda job: age(job.created_at),
        "error": lambda job: job.error or job.reason,
    },
)
STEP_COLUMNS = Columns(
    "step state attempt run started=started_at took error",
    {"took": took, "error": lambda step: joined(step.error, step.detail, by=": ")},
)
CALL_COLUMNS = Columns(
    "id call for=purpose state provider model account in=input_tokens out=output_tokens "
    "cached=cached_tokens cost took tools error",
    {"call": lambda call: f"{call.number}.{call.attempt}", "cost": lambda call: cost(call.cost_usd), "took": took},
)
TOOL_COLUMNS = Columns(
    "round tool state attempts took result",
    {
        "round": lambda call: f"{call.number}.{call.place}",
        "took": took,
        "result": lambda view: excerpt(view.result, NARROW),
    },
)
QUESTION_COLUMNS = Columns(
    "id round=number asked state=status answer by=answered_by",
    {
        "id": lambda question: f"#{question.id}",
        "asked": lambda view: excerpt(view.text, NARROW),
        "answer": lambda view: excerpt(view.answer, NARROW),
    },
)
ACTION_COLUMNS = Columns(
    "place=seq tag about=subject state what_came_of_it=detail", {"tag": lambda action: action.tag.lower()}
)
WOULD_ACT_COLUMNS = Columns(
    "place=seq tag about=subject what_it_holds",
    {"tag": lambda tag: tag.tag.lower(), "what it holds": lambda view: excerpt(view.text, NARROW)},
)
DELIVERY_COLUMNS = Columns("chunk=seq purpose state attempts platform_id=platform_message_id error")
BATCH_COLUMNS = Columns(
    "id does=action age jobs=total waiting begun refused skipped completed failed open",
    {"age": lambda batch: age(batch.created_at)},
)
ITEM_COLUMNS = Columns("place job=job_id state began status why_not=problem")
ERROR_COLUMNS = Columns(
    "jobs=count error step newest agents example reason", {"newest": lambda group: age(group.newest)}
)
LAYER_COLUMNS = Columns("layer=name characters tokens note")


def timeline(job: JobDetail, dashboard: str = "") -> Iterator[str]:
    """Yield everything about a job, and the address of its page."""
    yield f"{job.id}  {job.status}"
    yield from facts([*_job_facts(job), ("page", f"{dashboard}/queue/{job.id}" if dashboard else "")])
    yield from section("Steps", STEP_COLUMNS, job.steps)
    yield from section("Model calls", CALL_COLUMNS, job.calls)
    yield from section("Tool calls", TOOL_COLUMNS, job.tools)
    yield from section("Asked people", QUESTION_COLUMNS, job.questions)
    yield from section("Acted on", ACTION_COLUMNS, job.actions)
    yield from section("Would have acted on", WOULD_ACT_COLUMNS, job.would_act)
    yield from section("Sent", DELIVERY_COLUMNS, job.deliveries)


def _job_facts(job: JobDetail) -> Iterator[tuple[str, str]]:
    yield "kind", job.kind
    yield "agent", job.agent or ""
    yield "channel", joined(job.platform, job.account, job.channel, job.thread)
    yield "from", job.user
    yield "schedule", job.schedule or ""
    yield "webhook", job.webhook or ""
    yield "planned for", moment(job.slot)
    yield "message", job.excerpt if not job.task else ""
    yield "route", job.route
    if job.substitution is not None:
        other = job.substitution
        yield "answered by", f"{other.model} of account {other.account}, because {other.reason}"
    if job.edits is not None:
        yield "chosen agent", job.edits.agent or ""
        yield "chosen model", job.edits.model or ""
        yield "asked instead", excerpt(job.edits.prompt or "")
    yield "conversation", str(job.conversation_id or "")
    yield "created", moment(job.created_at)
    yield "ended", moment(job.completed_at)
    yield "run", str(job.run)
    yield "error", job.error
    yield "reason", job.reason
    yield "cost", cost(job.cost_usd) if job.cost_usd is not None else ""
    yield "cut off", cost(job.interrupted_cost_usd) if job.interrupted_cost_usd is not None else ""
    yield ("what if" if job.what_if else "restarts"), job.restarted_from or ""
    yield "restarted by", ", ".join(job.restarted_by)
    yield "what-ifs", ", ".join(job.what_ifs)
    yield "merged into", job.merged_into or ""
    yield "task of", job.parent_id or ""
    yield "task", excerpt(job.task)
    yield ("would answer" if job.what_if else "answered"), excerpt(job.said)
    yield "led to", ", ".join(job.led_to)
    yield "answers for", ", ".join(job.merged)
    yield "texts", "deleted with the conversation" if job.erased else ""
    yield "Temporal", job.temporal_url or ""


def replay_preview(preview: ReplayPreview) -> Iterator[str]:
    """Yield what a replay would do, pay and repeat."""
    if not preview.possible:
        yield plain(f"{preview.mode} is not possible: {preview.problem}")
        return
    yield f"{preview.mode} would begin at: {preview.step}"
    calls = f"{'at least ' if preview.more else ''}{preview.model_calls}"
    before = f"{preview.first_calls} answered, {cost(preview.first_cost_usd)}" if preview.first_calls else ""
    yield from facts(
        [
            ("keeps", ", ".join(preview.kept)),
            ("model calls", f"{calls}, about {cost(preview.cost_usd)}" if preview.model_calls else calls),
            ("before", before),
            *map(_effect, preview.effects),
        ]
    )
    yield "Nothing was changed."


def _effect(effect: Effect) -> tuple[str, str]:
    when = "stays" if effect.kept else "again" if effect.again else "happens"
    return when, f"{effect.text} ({effect.count})" if effect.count > 1 else effect.text


def batch_forecast(forecast: BatchPreview) -> Iterator[str]:
    """Yield what a batch would do."""
    yield f"{forecast.matching:,} jobs match; {forecast.possible:,} of them would be {BATCH_RESULTS[forecast.action]}."
    if forecast.action is not BatchAction.CANCEL:
        yield f"They pay for about {forecast.model_calls:,} model calls: {_price(forecast)}."
    yield from (f"  {step.count:,} from {step.step}" for step in forecast.steps)
    for group in forecast.refused:
        yield f"  {group.count:,} not: {plain(group.reason)} (such as {group.example})"


def _price(forecast: BatchPreview) -> str:
    if forecast.unknown_cost == forecast.model_calls and forecast.model_calls:
        return "their cost is unknown"
    unknown = f", and {forecast.unknown_cost:,} of unknown price" if forecast.unknown_cost else ""
    return f"about {cost(forecast.cost_usd)}{unknown}"


def batch_progress(batch: BatchView) -> Iterator[str]:
    """Yield how far a batch is."""
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


def seen_prompt(seen: RecordedCallView) -> Iterator[str]:
    """Yield one attempt at one model call: its request, layer by layer and word by word, and its answer."""
    yield f"{seen.job_id}  call {seen.id}  {seen.purpose} {seen.number}.{seen.attempt}  {seen.state}"
    yield from facts(_call_facts(seen))
    yield from section("Layers", LAYER_COLUMNS, seen.layers)
    for turn in seen.messages:
        yield from ("", _heading(turn), *body(turn.text), *_tool_calls(turn.tool_calls))
        yield from (f"  [image {image.content_type} {image.digest}]" for image in turn.images)
    if seen.answer is not None:
        yield from ("", f"== answer, {seen.answer.output_tokens} tokens")
        yield from (*body(seen.answer.text), *_tool_calls(seen.answer.tool_calls))


def _call_facts(seen: RecordedCallView) -> Iterator[tuple[str, str]]:
    answer = seen.answer
    counted = f", {answer.input_tokens} as counted ({answer.cached_tokens} cached)" if answer is not None else ""
    yield "at", moment(seen.started_at)
    yield "error", seen.error
    yield "account", seen.account
    yield "provider", seen.provider
    yield "model", seen.model or "the account's own"
    yield "answered by", answer.model if answer is not None else ""
    yield "asked", f"about {seen.tokens} tokens as estimated{counted}"
    yield "answer", f"at most {seen.max_output_tokens} tokens{', without tools' if seen.final else ''}"
    yield "cost", cost(answer.cost_usd) if answer is not None else ""
    yield "tools", ", ".join(tool.name for tool in seen.tools)


def _heading(turn: TurnView) -> str:
    tool = f" of {turn.tool} ({turn.call_id})" if turn.role is Role.TOOL else ""
    row = f", message {turn.message_id}" if turn.message_id is not None else ""
    return plain(f"== {turn.role}{tool}, {turn.tokens} tokens{row}")


def _tool_calls(calls: Iterable[ToolCallView]) -> Iterator[str]:
    yield from (f"  [calls {plain(call.name)} with {plain(call.arguments)}]" for call in calls)
