"""Samples for the metrics: messages, jobs, calls and deliveries reduced to names and numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.deliveries import DeliveryState
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.budgets import SpendingLevel
from maestro.domain.llm.calls import CallState

UNDER_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)
"""The states of a chunk that its job is still sending."""


@dataclass(frozen=True)
class MetricMarks:
    """The last row of each table at a moment; a job is identified by its position, because a resume changes it."""

    inbox: int
    position: int
    call: int
    delivery: int


@dataclass(frozen=True)
class OpenJobs:
    """The status of each job that has not ended, by position, and the creation time of the oldest pending job."""

    by_position: Mapping[int, JobStatus]
    oldest_pending: datetime | None


@dataclass(frozen=True)
class EndedJob:
    """The end of a job; ``error`` is a class name, ``took`` the time from its creation, waits included."""

    status: JobStatus
    error: str
    took: timedelta


@dataclass(frozen=True)
class CallSample:
    """An attempt at a model call; ``error`` is a class name, ``cost_usd`` is None if unknown."""

    id: int
    state: CallState
    provider: str
    model: str
    error: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


@dataclass(frozen=True)
class DeliverySample:
    """A chunk and its state."""

    id: int
    state: DeliveryState
    platform: str


@dataclass(frozen=True)
class ConnectorSample:
    """The last reported state of a connector."""

    platform: str
    account: str
    state: str


@dataclass(frozen=True)
class MetricChanges:
    """The open work now, and the events since the previous collection; each event is reported once.

    ``ignored`` counts by reason the messages that were ignored before a job was created. ``spending`` is the cost of
    all calls of today (UTC), with the reservations of calls in progress.
    """

    open_jobs: OpenJobs
    calls_open: int
    deliveries_open: int
    connectors: Sequence[ConnectorSample]
    received: Mapping[str, int]
    ignored: Mapping[str, int]
    ended: Sequence[EndedJob]
    calls: Sequence[CallSample]
    deliveries: Sequence[DeliverySample]
    spending: SpendingLevel
