"""Values that the metrics count: rows that came in or ended, reduced to names and numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.deliveries import DeliveryState
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.budgets import SpendingLevel
from maestro.domain.llm.calls import CallState

UNDER_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)
"""The states of a chunk that a job is still working on."""


@dataclass(frozen=True)
class MetricMarks:
    """The last row of each table at some moment; jobs are told apart by their turn, for a resumed one takes another."""

    inbox: int
    turn: int
    call: int
    delivery: int


@dataclass(frozen=True)
class OpenJobs:
    """The jobs that have not ended, by turn, and when the one that has waited longest for its first start came."""

    by_turn: Mapping[int, JobStatus]
    oldest_pending: datetime | None


@dataclass(frozen=True)
class EndedJob:
    """How a job ended; ``error`` is the name of a class, ``took`` the time since it came, waiting included."""

    status: JobStatus
    error: str
    took: timedelta


@dataclass(frozen=True)
class CallSample:
    """An attempt at a model call; ``error`` is the name of a class, ``cost_usd`` None when unknown."""

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
    """A chunk and what has become of it."""

    id: int
    state: DeliveryState
    platform: str


@dataclass(frozen=True)
class ConnectorSample:
    """What a connector last said of itself."""

    platform: str
    account: str
    state: str


@dataclass(frozen=True)
class MetricChanges:
    """What is open now, and what happened since the last look: each message, job, call and chunk is told once.

    ``ignored`` counts the messages dropped at the door, by reason. ``spending`` is what all calls together have cost
    today (UTC), and what those under way may still cost.
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
