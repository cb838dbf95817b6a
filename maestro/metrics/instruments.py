"""The instruments of Prometheus for figures that are read from the store, and the cursor that reads the changes.

The number of values of each label is limited, because Prometheus keeps each new series for weeks.
"""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from maestro.domain.deliveries import DeliveryState
from maestro.domain.errors import Quarantined
from maestro.domain.jobs.job import OPEN, JobKind, JobStatus
from maestro.domain.llm.budgets import BudgetScope, SpendingLevel
from maestro.domain.llm.calls import BudgetExceeded, CallState
from maestro.domain.people.people import ConnectorStatus
from maestro.store.engine.database import WriteHistory
from maestro.store.overviews.figures import UNDER_WAY, CallSample, DeliverySample, EndedJob, OpenJobs, PendingJobs
from maestro.store.store import Store

ANSWER_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""The upper limits of the histogram's buckets for the duration of a job, in seconds."""

MOST_WORDS = 100
LONGEST = 80
"""The most characters of a label's value; a longer name is cut."""
OTHER = "other"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class MetricChanges:
    """The present open work, and the events since the previous read; each event is reported once.

    ``ignored`` counts, by reason, the messages that were ignored before a job was created. ``spending`` is today's cost
    (UTC) of all calls, with the reservations of calls in progress.
    """

    open_jobs: OpenJobs
    pending: Sequence[PendingJobs]
    calls_open: int
    deliveries_open: int
    connectors: Sequence[ConnectorStatus]
    received: Mapping[str, int]
    ignored: Mapping[str, int]
    ended: Sequence[EndedJob]
    calls: Sequence[CallSample]
    deliveries: Sequence[DeliverySample]
    spending: SpendingLevel


class MetricCursor:
    """A cursor over the rows of messages, jobs, calls and chunks of all processes, so that each row is counted once.

    Counting the rows of a table anew would be wrong: a resumed job is no longer failed, and old rows may be deleted.
    Creation and reads are short transactions; two threads must not read at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.view(settled=True) as tx:
            self._marks = tx.system.figures.read_last_ids()
            self._open_positions: Collection[int] = tx.system.figures.count_open_jobs().by_position.keys()
            self._calls = tx.system.figures.list_open_calls()
            self._deliveries = tx.system.figures.list_open_deliveries()
            self._ignored = tx.inbox.ignored.count_by_reason()

    def read_changes(self) -> MetricChanges:
        """Return the changes since the previous read; after a ``StoreBusy``, the next read returns them all."""
        with self._store.view(settled=True) as tx:
            figures = tx.system.figures
            marks, open_jobs = figures.read_last_ids(), figures.count_open_jobs()
            gone = [position for position in self._open_positions if position not in open_jobs.by_position]
            ended = figures.list_ended_jobs(self._marks.position, gone)
            received = figures.count_received(self._marks.inbox)
            calls = figures.list_calls(self._marks.call, self._calls)
            deliveries = figures.list_deliveries(self._marks.delivery, self._deliveries)
            connectors = figures.list_connector_states()
            pending = figures.count_pending_by_kind()
            ignored = tx.inbox.ignored.count_by_reason()
            spending = tx.llm.budgets.read_level((BudgetScope.DAY, ""))
        self._marks, self._open_positions = marks, open_jobs.by_position.keys()
        before, self._ignored = self._ignored, ignored
        self._calls = {call.id for call in calls if call.state is CallState.SENT}
        self._deliveries = {chunk.id for chunk in deliveries if chunk.state in UNDER_WAY}
        return MetricChanges(
            open_jobs=open_jobs,
            pending=pending,
            calls_open=len(self._calls),
            deliveries_open=len(self._deliveries),
            connectors=connectors,
            received=received,
            ignored={reason: count - before.get(reason, 0) for reason, count in ignored.items()},
            ended=ended,
            calls=[call for call in calls if call.id not in self._calls],
            deliveries=[chunk for chunk in deliveries if chunk.id not in self._deliveries],
            spending=spending,
        )


class LabelValues:
    """The values of one label: the first hundred texts; every further text becomes ``other``."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def label_value(self, text: str) -> str:
        """Return the label value for a text; ``unknown`` for an empty text."""
        value = text[:LONGEST] or UNKNOWN
        if value in self._values or len(self._values) < MOST_WORDS:
            self._values.add(value)
            return value
        return OTHER


class JobMetrics:
    """The Prometheus instruments for jobs; ``max_pending`` returns the limit of pending jobs."""

    def __init__(self, registry: CollectorRegistry, max_pending: Callable[[], int]) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._max_pending = max_pending
        self._errors = LabelValues()
        self._open = gauge(
            "maestro_jobs", "Jobs that have not ended, by status: pending, running, waiting.", ["status"]
        )
        self._oldest = gauge(
            "maestro_jobs_oldest_pending_age_seconds",
            "Age of the job that has waited longest for its first start; 0 when none waits.",
        )
        self._add_pending_gauges(registry)
        self._limit = gauge(
            "maestro_jobs_pending_limit", "Pending jobs beyond which new messages are refused (jobs.maxPending)."
        )
        self._ended = counter(
            "maestro_jobs_ended",
            "Jobs that ended, by status: completed, failed, cancelled, dropped, merged.",
            ["status"],
        )
        self._failures = counter("maestro_job_failures", "Failed jobs, by the class of their error.", ["error"])
        self._skipped = counter(
            "maestro_schedule_runs_skipped",
            "Runs of schedules that were skipped because no model could be called, by the class of the error.",
            ["reason"],
        )
        self._durations = Histogram(
            "maestro_job_duration_seconds",
            "Time from the creation of a job to its end, for completed jobs; includes waiting.",
            buckets=ANSWER_BUCKETS,
            registry=registry,
        )
        # Every series starts at 0, because Prometheus sees no increase in a series that starts at 1.
        for status in filter(lambda status: status.ended, JobStatus):
            self._ended.labels(status)
        self._failures.labels(self._errors.label_value(Quarantined.__name__))
        self._skipped.labels(self._errors.label_value(BudgetExceeded.__name__))

    def update_metrics(self, changes: MetricChanges, now: datetime) -> None:
        """Set the figures of open jobs, count the ended jobs, and observe the duration of completed jobs."""
        self._limit.set(self._max_pending())
        counted, oldest = Tally(changes.open_jobs.by_position.values()), changes.open_jobs.oldest_pending
        for status in OPEN:
            self._open.labels(status).set(counted[status])
        # An age is not negative, even if the system clock was set back.
        self._oldest.set(max((now - oldest).total_seconds() if oldest else 0, 0))
        self._update_pending({jobs.kind: jobs for jobs in changes.pending}, now)
        for job in changes.ended:
            self._ended.labels(job.status).inc()
            if job.status is JobStatus.FAILED:
                self._failures.labels(self._errors.label_value(job.error)).inc()
            if job.status is JobStatus.DROPPED and job.error:
                self._skipped.labels(self._errors.label_value(job.error)).inc()
            if job.status is JobStatus.COMPLETED:
                self._durations.observe(max(job.took.total_seconds(), 0))

    def _add_pending_gauges(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._pending = gauge(
            "maestro_jobs_pending", "Pending jobs by kind: message, heartbeat, cron, webhook, delegation.", ["kind"]
        )
        self._pending_age = gauge(
            "maestro_jobs_pending_age_seconds",
            "Age of the oldest job of a kind that never started, in a long lane as well; 0 if none.",
            ["kind"],
        )
        self._ready = gauge(
            "maestro_jobs_ready", "Claimed jobs by kind that wait for a worker, and for nothing else.", ["kind"]
        )
        self._ready_age = gauge(
            "maestro_jobs_ready_age_seconds",
            "Longest wait of a claimed job for a worker, by kind, the signal for more workers; 0 if none waits.",
            ["kind"],
        )

    def _update_pending(self, pending: Mapping[JobKind, PendingJobs], now: datetime) -> None:
        for kind in JobKind:
            jobs = pending.get(kind, PendingJobs(kind, 0, None, 0, None))
            self._pending.labels(kind).set(jobs.total)
            self._ready.labels(kind).set(jobs.ready)
            self._pending_age.labels(kind).set(max((now - (jobs.since or now)).total_seconds(), 0))
            self._ready_age.labels(kind).set(max((now - (jobs.ready_since or now)).total_seconds(), 0))


class ModelCallMetrics:
    """The Prometheus instruments that count rows of the ``llm_calls`` table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._models, self._errors = LabelValues(), LabelValues()
        self._open = gauge("maestro_llm_calls_in_flight", "Model calls that wait for their answer.")
        self._calls = counter(
            "maestro_llm_calls",
            "Attempts at model calls: answered, failed, or interrupted (the process died, and the call is repeated).",
            ["provider", "model", "outcome"],
        )
        self._failures = counter(
            "maestro_llm_failures",
            "Attempts at model calls that failed, by the class of their error.",
            ["provider", "error"],
        )
        self._tokens = counter(
            "maestro_llm_tokens",
            "Tokens of answered model calls: input, output, and cached, which are input from the provider's cache.",
            ["provider", "model", "direction"],
        )
        self._cost = counter(
            "maestro_llm_cost_usd",
            "US dollars of model calls with a known price; an interrupted call counts its estimated input.",
            ["provider", "model", "outcome"],
        )
        self._spent = gauge(
            "maestro_budget_spent_usd",
            "US dollars that calls with a known price cost today (UTC); interrupted calls count by estimate.",
        )
        self._reserved = gauge("maestro_budget_reserved_usd", "US dollars that calls under way may cost at most.")

    def update_metrics(self, changes: MetricChanges) -> None:
        """Count the calls that ended; set the number of open calls, and today's spending and reservations."""
        self._open.set(changes.calls_open)
        self._spent.set(changes.spending.spent_usd)
        self._reserved.set(changes.spending.reserved_usd)
        for call in changes.calls:
            # Answers name the provider and the model, so the number of such pairs is limited.
            provider, _, model = self._models.label_value(
                f"{call.provider or UNKNOWN}/{call.model or UNKNOWN}"
            ).partition("/")
            site = (provider, model or provider)
            self._calls.labels(*site, call.state).inc()
            if call.cost_usd:
                self._cost.labels(*site, call.state).inc(max(call.cost_usd, 0))
            if call.state is CallState.ANSWERED:
                self._tokens.labels(*site, "input").inc(call.input_tokens)
                self._tokens.labels(*site, "output").inc(call.output_tokens)
                self._tokens.labels(*site, "cached").inc(call.cached_tokens)
            if call.state is CallState.FAILED:
                self._failures.labels(provider, self._errors.label_value(call.error)).inc()


class MessageMetrics:
    """The Prometheus instruments for the tables ``inbox``, ``ignored_lines``, ``deliveries`` and ``connectors``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._platforms, self._reasons = LabelValues(), LabelValues()
        self._received = counter(
            "maestro_messages_received", "Messages received; a repeated delivery counts once.", ["platform"]
        )
        self._ignored = counter(
            "maestro_messages_ignored",
            "Messages that were counted at the intake and not stored: not addressed to an agent, from a bot, "
            "or from an unknown user beyond the rate limit.",
            ["reason"],
        )
        self._open = gauge("maestro_deliveries_open", "Chunks of answers that are still to be sent.")
        self._deliveries = counter(
            "maestro_deliveries",
            "Chunks of answers by state: sent, unconfirmed (only the platform knows its outcome), abandoned, failed.",
            ["platform", "state"],
        )
        self._connectors = gauge(
            "maestro_connector_state",
            "1 for the state that a connector last reported: starting, running, degraded, stopped, failed.",
            ["platform", "account", "state"],
        )

    def update_metrics(self, changes: MetricChanges) -> None:
        """Count messages and chunks; set the number of open chunks and the states of connectors."""
        for platform, messages in changes.received.items():
            self._received.labels(self._platforms.label_value(platform)).inc(messages)
        for reason, messages in changes.ignored.items():
            self._ignored.labels(self._reasons.label_value(reason)).inc(messages)
        self._open.set(changes.deliveries_open)
        for chunk in changes.deliveries:
            self._deliveries.labels(self._platforms.label_value(chunk.platform), chunk.state).inc()
        self._connectors.clear()
        for connector in changes.connectors:
            self._connectors.labels(connector.platform, connector.account, connector.state).set(1)
            # Each series starts at 0 here, because Prometheus sees no increase in a series that starts at 1.
            platform = self._platforms.label_value(connector.platform)
            self._received.labels(platform)
            for state in DeliveryState:
                if state not in UNDER_WAY:
                    self._deliveries.labels(platform, state)


class StoreWriteMetrics:
    """The Prometheus instruments for the writes of this process to the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._counted = WriteHistory()
        self._succeeded = Gauge(
            "maestro_store_last_write_timestamp_seconds",
            "When a write of this process to the store last succeeded, in seconds since 1970; 0 before the first.",
            registry=registry,
        )
        self._failures = counter(
            "maestro_store_write_failures",
            "Failed writes of this process: the store was locked for too long, or its disk was full.",
        )
        self._replaced = counter(
            "maestro_store_writers_replaced", "Writing connections of this process that were lost and replaced."
        )

    def update_metrics(self, history: WriteHistory) -> None:
        """Count the failures and the replaced connections since the previous update."""
        self._succeeded.set(history.succeeded_at)
        self._failures.inc(history.failures - self._counted.failures)
        self._replaced.inc(history.replaced - self._counted.replaced)
        self._counted = history
