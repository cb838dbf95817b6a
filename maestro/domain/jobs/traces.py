"""The trace of a job: its rows, its spans, and its ids, which follow from the job (docs/howto/trace-a-message.md).

No span contains text of users, models or tools: only ids, fixed words, numbers, and names that operators chose.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from maestro.domain.deliveries import DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobKind, JobStatus, StepState
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.tools import ToolState

AttributeValue = str | int | float | bool


class SpanRole(StrEnum):
    """The role of a span, as OpenTelemetry names it."""

    INTERNAL = "internal"
    CONSUMER = "consumer"
    CLIENT = "client"


class SpanContext(NamedTuple):
    """The ids of a span: of its trace (16 bytes) and its own (8 bytes)."""

    trace_id: int
    span_id: int


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One span; ``error`` is the class name of a failure, empty without one; ``process`` is the process that worked."""

    context: SpanContext
    parent: SpanContext | None
    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, AttributeValue]
    role: SpanRole = SpanRole.INTERNAL
    error: str = ""
    process: str = ""
    links: Mapping[str, SpanContext] = field(default_factory=dict)


class TracedJob(NamedTuple):
    """The columns of a job, of its message (None without one) and of its agent that its trace shows."""

    id: str
    kind: JobKind
    status: JobStatus
    platform: str
    account: str
    lane: str | None
    turn: int | None
    run: int
    error: str
    schedule: str | None
    what_if: bool
    parent_id: str | None
    merged_into: str | None
    restarted_from: str | None
    process: str
    created_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    agent: str | None
    message_id: str | None
    sent_at: datetime | None
    received_at: datetime | None


class TracedStep(NamedTuple):
    """The columns of an attempt at a step that a trace shows; ``result`` is read only for the reason of a wait."""

    job_id: str
    step: str
    activity: str
    run: int
    attempt: int
    workflow_run: str
    process: str
    state: StepState
    started_at: datetime
    finished_at: datetime | None
    error: str
    result: str


class TracedCall(NamedTuple):
    """The columns of an attempt at a model call that a trace shows."""

    job_id: str
    purpose: CallPurpose
    number: int
    attempt: int
    state: CallState
    provider: str
    model: str
    account: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    cost_usd: float | None
    finish_reason: str
    error: str
    started_at: datetime
    finished_at: datetime | None


class TracedTool(NamedTuple):
    """The columns of a tool call that a trace shows."""

    job_id: str
    number: int
    place: int
    tool: str
    state: ToolState
    attempts: int
    started_at: datetime
    finished_at: datetime | None


class TracedChunk(NamedTuple):
    """The columns of a chunk that a trace shows."""

    job_id: str
    id: int
    purpose: DeliveryPurpose
    seq: int
    platform: str
    state: DeliveryState
    attempts: int
    repeats: int
    error: str
    tried_at: datetime | None
    created_at: datetime
    sent_at: datetime | None


@dataclass(frozen=True)
class TraceRecord:
    """All rows for the trace of one job; ``related`` has the creation time of each job that the job refers to."""

    job: TracedJob
    steps: Sequence[TracedStep] = ()
    calls: Sequence[TracedCall] = ()
    tools: Sequence[TracedTool] = ()
    chunks: Sequence[TracedChunk] = ()
    related: Mapping[str, datetime] = field(default_factory=dict)


def make_id(text: str, length: int) -> int:
    """Return an id of ``length`` bytes that follows from a text; it is never 0, which means no id."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:length], "big") or 1


def root_context(job_id: str, created_at: datetime) -> SpanContext:
    """Return the ids of a job's root span; every process computes the same ids, at any time.

    The creation time is a part of the ids, because the ids of scheduled jobs of two installations may be equal.
    """
    trace_id = make_id(f"{job_id} {created_at.isoformat()}", 16)
    return SpanContext(trace_id, make_id(f"{trace_id:032x} root", 8))


def trace_id_text(job_id: str, created_at: datetime) -> str:
    """Return the id of a job's trace as tracing systems show it: 32 hexadecimal digits."""
    return f"{root_context(job_id, created_at).trace_id:032x}"


def is_sampled(record: TraceRecord, ratio: float) -> bool:
    """Return whether a job's trace is exported: every failed job, and the share ``ratio`` of the others.

    The choice follows from the trace's id as in OpenTelemetry's sampler ``traceidratio``.
    """
    trace_id = root_context(record.job.id, record.job.created_at).trace_id
    return record.job.status is JobStatus.FAILED or trace_id % 2**64 < round(ratio * 2**64)
