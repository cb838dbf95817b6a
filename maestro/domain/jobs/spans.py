"""Builds the spans of an ended job's trace from the job's rows (docs/howto/trace-a-message.md)."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from maestro.domain.deliveries import DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobStatus, StepState, Wait
from maestro.domain.jobs.steps import StepKind, step_kind
from maestro.domain.jobs.traces import (
    AttributeValue,
    SpanContext,
    SpanRole,
    TracedCall,
    TracedStep,
    TracedTool,
    TraceRecord,
    TraceSpan,
    make_id,
    root_context,
)
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.tools import ToolState

LONGEST_NAME = 80
"""The most characters of a name in an attribute, such as the model that a provider names."""
HASH_CHARS = 16
PLAIN_NAME = re.compile(r"[\w.:/-]+")


def build_trace(record: TraceRecord) -> list[TraceSpan]:
    """Return the spans of an ended job, the root span first."""
    return list(_TraceBuilder(record).build_spans())


class _TraceBuilder:
    """Makes the spans of one job; the attempts at steps are children of the root, and what they did is theirs."""

    def __init__(self, record: TraceRecord) -> None:
        self._record = record
        self._job = record.job
        self._root = root_context(record.job.id, record.job.created_at)
        self._end = record.job.completed_at or record.job.created_at

    def build_spans(self) -> Iterator[TraceSpan]:
        inner = [
            *self._build_start(),
            *self._build_steps(),
            *map(self._build_call, self._record.calls),
            *map(self._build_tool, self._record.tools),
            *self._build_chunks(),
        ]
        yield self._build_root(inner)
        yield from inner

    def _build_root(self, inner: Sequence[TraceSpan]) -> TraceSpan:
        job = self._job
        attributes: dict[str, AttributeValue] = {
            "maestro.job.id": job.id,
            "maestro.job.kind": str(job.kind),
            "maestro.job.status": str(job.status),
            "maestro.job.runs": job.run,
            "maestro.job.what_if": job.what_if,
            "maestro.platform": job.platform,
            "maestro.platform.account": job.account,
            "maestro.lane": hashlib.sha256(job.lane.encode()).hexdigest()[:HASH_CHARS] if job.lane else "",
            "maestro.agent": job.agent or "",
            "maestro.schedule": job.schedule or "",
            "messaging.message.id": job.message_id or "",
        }
        related = {
            "delegated by": job.parent_id,
            "merged into": job.merged_into,
            "what-if of" if job.what_if else "restarted from": job.restarted_from,
        }
        links = {
            relation: root_context(job_id, self._record.related[job_id])
            for relation, job_id in related.items()
            if job_id is not None and job_id in self._record.related
        }
        return TraceSpan(
            context=self._root,
            parent=None,
            name=f"{job.kind} {job.platform}",
            start=min([job.created_at, *(span.start for span in inner)]),
            end=max([self._end, *(span.end for span in inner)]),
            attributes={name: value for name, value in attributes.items() if value != ""},
            role=SpanRole.CONSUMER,
            error=(job.error or "failed") if job.status is JobStatus.FAILED else "",
            process=job.process,
            links=links,
        )

    def _build_start(self) -> Iterator[TraceSpan]:
        """Yield the spans before the first step: receiving the message, accepting it, its lane, its workflow."""
        job = self._job
        if job.sent_at is not None and job.received_at == job.created_at:  # not a later job for the same message
            yield self._span("receive", "receive", (job.sent_at, job.created_at), process=job.process)
        yield self._span("accept", "accept", (job.created_at, job.created_at), process=job.process)
        begun = [step for step in self._record.steps if step.run == job.run]
        if job.claimed_at is None:
            return
        if job.run == 1:
            position = {"maestro.lane.position": job.turn or 0}
            yield self._span("lane", "wait for lane", (job.created_at, job.claimed_at), position, job.process)
        if begun:
            first = min(begun, key=lambda step: step.started_at)
            run: dict[str, AttributeValue] = {"maestro.job.run": job.run, "temporal.run_id": first.workflow_run}
            moments = (job.claimed_at, first.started_at)
            yield self._span(f"start {job.run}", "start workflow", moments, run, first.process)

    def _build_steps(self) -> Iterator[TraceSpan]:
        for number, step in enumerate(self._record.steps):
            kind, ended = step_kind(step.step), step.finished_at or self._end
            failed = step.state in (StepState.FAILED, StepState.INTERRUPTED)
            attributes: dict[str, AttributeValue] = {
                "maestro.step": step.step,
                "maestro.step.attempt": step.attempt,
                "maestro.step.state": str(step.state),
                "maestro.job.run": step.run,
                "temporal.activity": step.activity,
                "temporal.run_id": step.workflow_run,
            }
            yield TraceSpan(
                context=self._step_context(step),
                parent=self._root,
                name=str(kind) if kind is not None else "step",
                start=step.started_at,
                end=max(ended, step.started_at),
                attributes={name: value for name, value in attributes.items() if value != ""},
                error=(step.error or str(step.state)) if failed else "",
                process=step.process,
            )
            resumed = next((later for later in self._record.steps[number + 1 :] if later.step == step.step), None)
            if step.state is StepState.WAITING and resumed is not None:
                reason = {"maestro.wait.reason": str(Wait.model_validate_json(step.result).reason)}
                key = f"wait {step.step} {step.attempt}"
                yield self._span(key, "wait", (ended, resumed.started_at), reason, step.process)

    def _build_call(self, call: TracedCall) -> TraceSpan:
        name = StepKind.MODEL.numbered_step(call.number)
        step = self._find_step(name if call.purpose is CallPurpose.ANSWER else StepKind.COMPACTION, call.started_at)
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call.provider[:LONGEST_NAME],
            "gen_ai.request.model": call.model[:LONGEST_NAME],
            "gen_ai.usage.input_tokens": call.input_tokens,
            "gen_ai.usage.output_tokens": call.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
            "gen_ai.usage.cache_creation.input_tokens": call.cache_write_tokens,
            "gen_ai.response.finish_reasons": call.finish_reason[:LONGEST_NAME],
            "maestro.llm.account": call.account,
            "maestro.llm.purpose": str(call.purpose),
            "maestro.llm.number": call.number,
            "maestro.llm.attempt": call.attempt,
            "maestro.llm.state": str(call.state),
        }
        if call.cost_usd is not None:
            attributes["maestro.llm.cost_usd"] = call.cost_usd
        failed = call.state in (CallState.FAILED, CallState.INTERRUPTED)
        key = f"call {call.purpose} {call.number} {call.attempt}"
        moments = call.started_at, call.finished_at or (step.finished_at if step else None) or call.started_at
        span = self._child(step, key, f"chat {call.model[:LONGEST_NAME]}".strip(), moments, attributes)
        return replace(span, role=SpanRole.CLIENT, error=(call.error or str(call.state)) if failed else "")

    def _build_tool(self, tool: TracedTool) -> TraceSpan:
        step = self._find_step(StepKind.TOOL.numbered_step(tool.number, tool.place))
        # A model may ask for a tool that does not exist, under any name.
        name = tool.tool if PLAIN_NAME.fullmatch(tool.tool) and tool.state is not ToolState.REFUSED else "refused"
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name[:LONGEST_NAME],
            "gen_ai.tool.call.id": f"{tool.number}.{tool.place}",
            "maestro.tool.state": str(tool.state),
            "maestro.tool.attempts": tool.attempts,
        }
        failed = tool.state in (ToolState.FAILED, ToolState.UNKNOWN)
        key, moments = f"tool {tool.number} {tool.place}", (tool.started_at, tool.finished_at or tool.started_at)
        span = self._child(step, key, f"execute_tool {name[:LONGEST_NAME]}", moments, attributes)
        return replace(span, error=str(tool.state) if failed else "")

    def _build_chunks(self) -> Iterator[TraceSpan]:
        has_notice_step = any(step.step == StepKind.NOTICE for step in self._record.steps)
        before: datetime | None = None
        for chunk in sorted(self._record.chunks, key=lambda chunk: (chunk.created_at, chunk.seq)):
            if not chunk.attempts:
                continue
            is_notice = has_notice_step and chunk.purpose is not DeliveryPurpose.ANSWER
            start = chunk.tried_at or max(chunk.created_at, before or chunk.created_at)
            before = chunk.sent_at or start
            attributes: dict[str, AttributeValue] = {
                "messaging.system": chunk.platform,
                "messaging.operation.name": "send",
                "maestro.delivery.id": chunk.id,
                "maestro.delivery.chunk": chunk.seq,
                "maestro.delivery.purpose": str(chunk.purpose),
                "maestro.delivery.state": str(chunk.state),
                "maestro.delivery.attempts": chunk.attempts,
                "maestro.delivery.repeats": chunk.repeats,
            }
            step = self._find_step(StepKind.NOTICE if is_notice else StepKind.DELIVER, start)
            key, moments = f"chunk {chunk.purpose} {chunk.seq}", (start, before)
            span = self._child(step, key, f"send {chunk.platform}", moments, attributes)
            error = "" if chunk.state is DeliveryState.SENT else chunk.error or str(chunk.state)
            yield replace(span, role=SpanRole.CLIENT, error=error)

    def _find_step(self, name: str, at: datetime | None = None) -> TracedStep | None:
        """Return the last attempt at a step that began by ``at`` (None: the last of all), else the first attempt."""
        named = [step for step in self._record.steps if step.step == name]
        begun = [step for step in named if at is None or step.started_at <= at]
        return begun[-1] if begun else named[0] if named else None

    def _step_context(self, step: TracedStep) -> SpanContext:
        return self._context(f"step {step.step} {step.attempt}")

    def _context(self, key: str) -> SpanContext:
        return SpanContext(self._root.trace_id, make_id(f"{self._root.trace_id:032x} {key}", 8))

    def _span(
        self,
        key: str,
        name: str,
        moments: tuple[datetime, datetime],
        attributes: Mapping[str, AttributeValue] | None = None,
        process: str = "",
    ) -> TraceSpan:
        start, end = moments
        # The clocks of two machines may differ, and a clock may be set back: a span never ends before it starts.
        given = {name: value for name, value in (attributes or {}).items() if value != ""}
        return TraceSpan(self._context(key), self._root, name, min(start, end), end, given, process=process)

    def _child(
        self,
        step: TracedStep | None,
        key: str,
        name: str,
        moments: tuple[datetime, datetime],
        attributes: Mapping[str, AttributeValue],
    ) -> TraceSpan:
        """Return a span below an attempt at a step; below the root for a record without an attempt."""
        process = step.process if step is not None else self._job.process
        span = self._span(key, name, moments, attributes, process)
        return replace(span, parent=self._step_context(step)) if step is not None else span
