"""Jobs in words for a terminal."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from maestro.cli.pages import table_page
from maestro.cli.table import lines, plain
from maestro.domain.jobs.job import Edits
from maestro.domain.jobs.timeline import (
    ActionView,
    AskedView,
    CallView,
    DeliveryView,
    StepView,
    ToolRunView,
    WouldActView,
    excerpt,
)
from maestro.domain.jobs.views import JobDetail, JobPage, JobSummary

NARROW = 60
"""Characters of a text in a table."""

NOTHING = "There are no such jobs."
UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", timedelta(seconds=1)))

JOB_COLUMNS = ("id", "status", "kind", "agent", "channel", "age", "attempts", "error")
STEP_COLUMNS = ("step", "state", "attempt", "run", "started", "took", "error")
CALL_COLUMNS = (
    "id",
    "call",
    "for",
    "state",
    "provider",
    "model",
    "account",
    "in",
    "out",
    "cached",
    "cost",
    "took",
    "tools",
    "error",
)
TOOL_COLUMNS = ("round", "tool", "state", "attempts", "took", "result")
ASKED_COLUMNS = ("id", "round", "asked", "state", "answer", "by")
WOULD_ACT_COLUMNS = ("place", "tag", "about", "what it holds")
ACTION_COLUMNS = ("place", "tag", "about", "state", "what came of it")
DELIVERY_COLUMNS = ("chunk", "purpose", "state", "attempts", "platform id", "error")


def listing(page: JobPage, now: datetime) -> Iterator[str]:
    """Show a page of jobs."""
    yield from table_page(JOB_COLUMNS, [_row(job, now) for job in page.items], NOTHING, page.next)


def timeline(job: JobDetail, dashboard: str = "") -> Iterator[str]:
    """Show everything about a job, and where its page is."""
    yield f"{job.id}  {job.status}"
    page = f"{dashboard}/queue/{job.id}" if dashboard else ""
    for name, value in (*_facts(job), ("page", page)):
        if value:
            yield f"  {name:<13} {plain(value)}"
    yield from _section("Steps", STEP_COLUMNS, map(_step, job.steps))
    yield from _section("Model calls", CALL_COLUMNS, map(_call, job.calls))
    yield from _section("Tool calls", TOOL_COLUMNS, map(_tool, job.tools))
    yield from _section("Asked people", ASKED_COLUMNS, map(_asked, job.questions))
    yield from _section("Acted on", ACTION_COLUMNS, map(_action, job.actions))
    yield from _section("Would have acted on", WOULD_ACT_COLUMNS, map(_would_act, job.would_act))
    yield from _section("Sent", DELIVERY_COLUMNS, map(_delivery, job.deliveries))


def ending(job: JobSummary) -> str:
    """Say how a job ended, and why."""
    why = ": ".join(filter(None, (job.error, job.reason)))
    return plain(f"{job.status}: {why}" if why else job.status)


def _row(job: JobSummary, now: datetime) -> tuple[str, ...]:
    return (
        job.id,
        job.status,
        job.schedule or job.kind,
        job.agent or "-",
        f"{job.platform}/{job.channel}",
        age(now - job.created_at),
        str(job.attempts),
        job.error or job.reason,
    )


def _facts(job: JobDetail) -> Iterator[tuple[str, str]]:
    yield "kind", job.kind
    yield "agent", job.agent or ""
    yield "channel", "/".join(filter(None, (job.platform, job.account, job.channel, job.thread)))
    yield "from", job.user
    yield "schedule", job.schedule or ""
    yield "webhook", job.webhook or ""
    yield "planned for", moment(job.slot)
    yield "message", job.excerpt if not job.task else ""
    yield "route", job.route
    if job.substitution is not None:
        other = job.substitution
        yield "answered by", f"{other.model} of account {other.account}, because {other.reason}"
    yield from _edits(job.edits)
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


def _edits(edits: Edits | None) -> Iterator[tuple[str, str]]:
    if edits is not None:
        yield "chosen agent", edits.agent or ""
        yield "chosen model", edits.model or ""
        yield "asked instead", excerpt(edits.prompt or "")


def _section(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    table = list(rows)
    if table:
        yield ""
        yield title
        yield from (f"  {line}" for line in lines(head, table))


def _step(step: StepView) -> tuple[str, ...]:
    why = ": ".join(filter(None, (step.error, step.detail)))
    started = moment(step.started_at)
    return step.step, step.state, str(step.attempt), str(step.run), started, _took(step.duration_ms), why


def _call(call: CallView) -> tuple[str, ...]:
    return (
        str(call.id),
        f"{call.number}.{call.attempt}",
        call.purpose,
        call.state,
        call.provider,
        call.model,
        call.account,
        str(call.input_tokens),
        str(call.output_tokens),
        str(call.cached_tokens),
        cost(call.cost_usd),
        _took(call.duration_ms),
        ", ".join(call.tools),
        call.error,
    )


def _delivery(chunk: DeliveryView) -> tuple[str, ...]:
    return str(chunk.seq), chunk.purpose, chunk.state, str(chunk.attempts), chunk.platform_message_id, chunk.error


def _tool(call: ToolRunView) -> tuple[str, ...]:
    number, took = f"{call.number}.{call.place}", _took(call.duration_ms)
    return number, call.tool, call.state, str(call.attempts), took, excerpt(call.result, NARROW)


def _asked(question: AskedView) -> tuple[str, ...]:
    asked = f"#{question.id}", str(question.number), excerpt(question.text, NARROW)
    return *asked, question.status, excerpt(question.answer, NARROW), question.answered_by


def _would_act(tag: WouldActView) -> tuple[str, ...]:
    return str(tag.seq), tag.tag.lower(), tag.subject, excerpt(tag.text, NARROW)


def _action(action: ActionView) -> tuple[str, ...]:
    return str(action.seq), action.tag.lower(), action.subject, action.state, action.detail


def age(time: timedelta) -> str:
    """Show how long ago something was."""
    unit, length = next((unit for unit in UNITS if time >= unit[1]), UNITS[-1])
    return f"{max(time, timedelta()) // length}{unit}"


def moment(at: datetime | None) -> str:
    """Show a time in the zone of this machine, nothing for none."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def _took(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def cost(usd: float | None) -> str:
    """Show an amount of US dollars, None for an unknown one."""
    return "unknown" if usd is None else f"${usd:.4f}"
