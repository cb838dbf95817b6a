"""A transaction with its repositories, and the changes that involve several repositories."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from sqlmodel import SQLModel
from ulid import ULID

from maestro.domain.errors import Conflict, Forbidden, InvalidEdit, MaestroError, NotFound
from maestro.domain.jobs.busy import INTERRUPTED, jobs_to_interrupt
from maestro.domain.jobs.job import CANCELLED_NOTICE, Job, JobEnding, JobStatus, new_notice_job
from maestro.domain.messages import InboxRow, LaneKey
from maestro.domain.questions.question import QuestionAnswer
from maestro.store.agents.edits import AgentEdits
from maestro.store.background.schedules import ScheduleRuns, Schedules
from maestro.store.background.webhooks import WebhookEndpoints
from maestro.store.cache import RowVersionReader, StoreStates
from maestro.store.chat import Chat
from maestro.store.cluster import KeyFingerprints
from maestro.store.conversations.conversations import Conversations
from maestro.store.conversations.inbox import Inbox
from maestro.store.deliveries.deliveries import Deliveries
from maestro.store.engine.repository import LazyRepository, Link, Repository
from maestro.store.jobs.batches import BatchCandidates, Batches
from maestro.store.jobs.claims import MergedJobs
from maestro.store.jobs.delegations import Delegations
from maestro.store.jobs.jobs import Jobs
from maestro.store.jobs.questions import Actions, Questions, ToolRuns
from maestro.store.jobs.related import DependentRows, JobDependents, ModelCallers
from maestro.store.jobs.steps import StepRecords
from maestro.store.jobs.traces import JobTraces
from maestro.store.llm.accounts import Accounts
from maestro.store.llm.budgets import Budgets, UsageLog
from maestro.store.llm.calls import Calls
from maestro.store.llm.prompts import ModelRequests, Prompts
from maestro.store.maintenance import MaintenanceTasks
from maestro.store.memory.edits import MemoryEdits
from maestro.store.overviews.figures import Latency, MonitoringFigures
from maestro.store.overviews.jobs import JobCounts, JobLists, JobTexts, Overview
from maestro.store.platforms.bots import Bots
from maestro.store.users.audit import Audit, SettingsOverrides
from maestro.store.users.users import WebUsers

metadata = SQLModel.metadata
"""The definitions of all tables, which the imports above have registered."""

Done = TypeVar("Done")


class JobTables(Jobs):
    """Queries for jobs and their lanes (queues), and for all rows about what happens in a job."""

    _noun = Jobs.__name__

    steps = LazyRepository(StepRecords)
    merged = LazyRepository(MergedJobs)
    callers = LazyRepository(ModelCallers)
    dependents = LazyRepository(JobDependents)
    delegations = LazyRepository(Delegations)
    questions = LazyRepository(Questions)
    actions = LazyRepository(Actions)
    tool_runs = LazyRepository(ToolRuns)
    batches = LazyRepository(Batches)
    candidates = LazyRepository(BatchCandidates)
    lists = LazyRepository(JobLists)
    texts = LazyRepository(JobTexts)
    counts = LazyRepository(JobCounts)
    traces = LazyRepository(JobTraces)
    _calls = LazyRepository(Calls)
    _deliveries = LazyRepository(Deliveries)
    _schedule_runs = LazyRepository(ScheduleRuns)
    _inbox = LazyRepository(Inbox)
    _audit = LazyRepository(Audit)

    def close_job(self, job_id: str, ending: JobEnding, dependents: DependentRows | None = None) -> bool:
        """End a job: release its lanes, cancel its questions, settle its rows; return false if it had ended.

        Delegated tasks of a completed job may begin, and a delegator that waits for the job resumes. ``dependents`` are
        the kinds of rows that the end must settle, if the caller has read them in this transaction.
        """
        rows = dependents or self.dependents.find_kinds(job_id)
        if rows.questions:
            self.questions.cancel_open_questions(job_id)
        if rows.calls:
            self._calls.close_calls(job_id)
        if rows.chunks:
            self._deliveries.abandon_chunks(job_id)
        if rows.lanes:
            self._deliveries.release_lanes(job_id)
        ended = self.end_job(job_id, ending)
        if ended and (rows.tasks or rows.delegated):
            self.delegations.settle_end(job_id, ending.status)
        if ended and rows.scheduled:
            self._schedule_runs.count_outcome(job_id, ending.status)
        if ended and ending.is_by_operator:
            self._notify_of_cancellation(self.read(job_id))
        return ended

    def _notify_of_cancellation(self, job: Job) -> None:
        """Notify the user that a message was cancelled, once for all cancelled messages of an address."""
        is_message = job.inbox_id is not None and job.parent_id is None and not (job.notice or job.what_if)
        if is_message and not self.is_pending_notice(job.address, CANCELLED_NOTICE):
            notice = new_notice_job(job, f"{job.kind}-{ULID()}", CANCELLED_NOTICE, self._now)
            # Without an inbox id, the notice is no answer to the message, so an operator can still restart its job.
            notice.inbox_id = None
            self.add(notice)

    def answer_question(self, answer: QuestionAnswer, by: str, inbox_id: int | None = None) -> bool:
        """Store the answer of a user (``platform:userId``) or operator to a question, and resume the question's job.

        ``inbox_id`` is the message that contains the answer. Returns false and changes nothing if the question is not
        open.
        """
        is_open = self.questions.record_answer(answer, by, inbox_id)
        if is_open:
            if answer.question.job_id is not None:
                self.wake_job(answer.question.job_id)
            self._audit.add_entry(by, answer.action, str(answer.question.id))
        return is_open

    def interrupt_jobs(
        self, newer_id: str, lane: LaneKey, row: InboxRow, agent_id: int | None, user_id: str | None = None
    ) -> bool:
        """Let a newer message of a user end the jobs in which ``agent_id`` answers earlier messages of that user.

        The job ``newer_id`` of the newer message answers them (docs/decisions.md: busy agents). A running job stops at
        its next step, but a chunk that is being sent is sent. Returns whether the user was already told about a wait. A
        ``/new`` (with ``user_id``, of that user) begins another conversation: jobs for messages before it continue.
        """
        told_to_wait = False
        for queued in jobs_to_interrupt(row, agent_id, self.merged.list_open_jobs(lane)):
            if self._inbox.find_next_new_command(queued.row, user_id) is not None:
                continue
            self.update_job(queued.job.id, merged_into=newer_id)
            if queued.job.status is JobStatus.RUNNING:
                self.request_stop(queued.job.id)
            else:
                self.close_job(queued.job.id, JobEnding(status=JobStatus.CANCELLED, reason=INTERRUPTED))
            told_to_wait = told_to_wait or queued.job.told_to_wait
        return told_to_wait


class ModelTables(Repository):
    """Queries for accounts of model providers, prompts, model calls, and their costs."""

    accounts = LazyRepository(Accounts)
    prompts = LazyRepository(Prompts)
    calls = LazyRepository(Calls)
    requests = LazyRepository(ModelRequests)
    usage = LazyRepository(UsageLog)
    budgets = LazyRepository(Budgets)


class BackgroundTables(Repository):
    """Queries for heartbeats, crons and webhooks, and for the runs that heartbeats and crons begin."""

    schedules = LazyRepository(Schedules)
    runs = LazyRepository(ScheduleRuns)
    webhooks = LazyRepository(WebhookEndpoints)


class SystemTables(Repository):
    """Queries for the audit log, settings, row versions, fingerprints of keys, metrics, and background work."""

    audit = LazyRepository(Audit)
    settings = LazyRepository(SettingsOverrides)
    versions = LazyRepository(RowVersionReader)
    states = LazyRepository(StoreStates)
    fingerprints = LazyRepository(KeyFingerprints)
    overview = LazyRepository(Overview)
    figures = LazyRepository(MonitoringFigures)
    latency = LazyRepository(Latency)
    maintenance = LazyRepository(MaintenanceTasks)


class Transaction:
    """One transaction with its repositories, which all use the time ``now``."""

    inbox = LazyRepository(Inbox)
    jobs = LazyRepository(JobTables)
    conversations = LazyRepository(Conversations)
    memory = LazyRepository(MemoryEdits)
    agents = LazyRepository(AgentEdits)
    deliveries = LazyRepository(Deliveries)
    llm = LazyRepository(ModelTables)
    bots = LazyRepository(Bots)
    users = LazyRepository(WebUsers)
    background = LazyRepository(BackgroundTables)
    chat = LazyRepository(Chat)
    system = LazyRepository(SystemTables)

    def __init__(self, link: Link, now: datetime) -> None:
        self.now = self._now = now
        self._link = link

    def call_after_commit(self, call: Callable[[], None]) -> None:
        """Register a call to make after the outermost transaction commits; a rollback drops the call."""
        self._link.when_committed.append(call)

    def flush_writes(self) -> None:
        """Write all pending rows now, so that their errors are raised here instead of at the commit."""
        self._link.flush_writes()


@contextmanager
def open_savepoint(tx: Transaction) -> Iterator[None]:
    """Open a savepoint: if the block raises, roll back only the changes of the block."""
    with tx._link.open_savepoint():
        yield


def run_in_savepoint(tx: Transaction, change: Callable[[], Done]) -> Done | MaestroError:
    """Make a change completely or not at all; if it fails, return the error instead of raising it."""
    try:
        with open_savepoint(tx):
            return change()
    except (Conflict, Forbidden, InvalidEdit, NotFound) as error:
        return error
