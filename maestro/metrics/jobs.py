"""Metrics of jobs: those that wait, those that ended, and the ledger that reads them from the store."""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from maestro.domain.errors import Quarantined
from maestro.domain.jobs.job import OPEN, JobStatus
from maestro.domain.llm.budgets import BudgetScope
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.errors import BudgetExceeded
from maestro.domain.metrics import UNDER_WAY, EndedJob, MetricChanges, OpenJobs
from maestro.metrics.labels import Vocabulary
from maestro.store.store import Store

ANSWER_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Seconds."""


class Ledger:
    """Returns each new message, ended job, ended call and ended chunk once, counted from its creation.

    Present table contents are no counters: a resumed job is no longer failed, and old rows may be deleted. Work of any
    process is found here. Creation and reads are short transactions; two threads must not read at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.view() as tx:
            self._marks = tx.system.figures.marks()
            self._turns: Collection[int] = tx.system.figures.open_jobs().by_turn.keys()
            self._calls = tx.system.figures.open_calls()
            self._deliveries = tx.system.figures.open_deliveries()
            self._ignored = tx.inbox.ignored.by_reason()

    def read(self) -> MetricChanges:
        """Return what is new since the last read; raises ``StoreBusy``, and the next read includes it."""
        with self._store.view() as tx:
            figures = tx.system.figures
            marks, open_jobs = figures.marks(), figures.open_jobs()
            gone = [turn for turn in self._turns if turn not in open_jobs.by_turn]
            ended = figures.ended_jobs(self._marks.turn, gone)
            received = figures.received(self._marks.inbox)
            calls = figures.calls(self._marks.call, self._calls)
            deliveries = figures.deliveries(self._marks.delivery, self._deliveries)
            connectors = figures.connectors()
            ignored = tx.inbox.ignored.by_reason()
            spending = tx.llm.budgets.level((BudgetScope.DAY, ""))
        self._marks, self._turns = marks, open_jobs.by_turn.keys()
        before, self._ignored = self._ignored, ignored
        self._calls = {call.id for call in calls if call.state is CallState.SENT}
        self._deliveries = {chunk.id for chunk in deliveries if chunk.state in UNDER_WAY}
        return MetricChanges(
            open_jobs=open_jobs,
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


class WaitingJobs:
    """The instruments for open jobs."""

    def __init__(self, registry: CollectorRegistry, max_pending: Callable[[], int]) -> None:
        self._open = Gauge("maestro_jobs", "Jobs that have not ended, by status.", ["status"], registry=registry)
        self._oldest = Gauge(
            "maestro_jobs_oldest_pending_age_seconds",
            "Age of the job that has waited longest for its first start; 0 when none waits.",
            registry=registry,
        )
        self._limit = Gauge(
            "maestro_jobs_pending_limit",
            "Pending jobs beyond which new messages are refused (jobs.maxPending).",
            registry=registry,
        )
        self._max_pending = max_pending

    def update(self, jobs: OpenJobs, now: datetime) -> None:
        """Set the number of open jobs, and the limit."""
        self._limit.set(self._max_pending())
        counted = Tally(jobs.by_turn.values())
        for status in OPEN:
            self._open.labels(status).set(counted[status])
        age = (now - jobs.oldest_pending).total_seconds() if jobs.oldest_pending else 0
        self._oldest.set(max(age, 0))  # not negative, even if the system clock was set back


class EndedJobs:
    """The instruments for ended jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = Vocabulary()
        self._ended = Counter("maestro_jobs_ended", "Jobs that ended, by status.", ["status"], registry=registry)
        self._failures = Counter(
            "maestro_job_failures", "Jobs that failed, by the class of their error.", ["error"], registry=registry
        )
        self._skipped = Counter(
            "maestro_schedule_runs_skipped",
            "Runs of schedules that were skipped because no model could be asked, by the class of the reason.",
            ["reason"],
            registry=registry,
        )
        self._took = Histogram(
            "maestro_job_duration_seconds",
            "Time from the arrival of a job to its end, of completed jobs; waiting included.",
            buckets=ANSWER_BUCKETS,
            registry=registry,
        )
        # Every series starts at 0, because Prometheus sees no increase in one that starts at 1.
        for status in filter(lambda status: status.ended, JobStatus):
            self._ended.labels(status)
        self._failures.labels(self._errors.word(Quarantined.__name__))
        self._skipped.labels(self._errors.word(BudgetExceeded.__name__))

    def update(self, jobs: Iterable[EndedJob]) -> None:
        """Count the jobs."""
        for job in jobs:
            self._ended.labels(job.status).inc()
            if job.status is JobStatus.FAILED:
                self._failures.labels(self._errors.word(job.error)).inc()
            if job.status is JobStatus.DROPPED and job.error:
                self._skipped.labels(self._errors.word(job.error)).inc()
            if job.status is JobStatus.COMPLETED:
                self._took.observe(max(job.took.total_seconds(), 0))
