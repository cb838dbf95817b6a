"""The job: one unit of work with one outcome (docs/invariants.md: steps leave rows, no silent end)."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator
from pydantic import Field as ValueField
from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type, partial_index
from maestro.domain.errors import WaitReason
from maestro.domain.messages import MAX_CONTENT_CHARS, Address
from maestro.domain.precedence import Priority
from maestro.domain.texts import storable_text
from maestro.domain.values import ModelName, Payload, Slug, Value, View

CHOSEN = "an operator chose"
"""The routing reason of a job for which an operator chose the agent."""


class JobKind(StrEnum):
    """The origin of a job."""

    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    WEBHOOK = "webhook"
    DELEGATION = "delegation"


class JobStatus(StrEnum):
    """The state of a job; the last five are final (docs/invariants.md: no silent end)."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    MERGED = "merged"

    @property
    def ended(self) -> bool:
        """Whether the state is final; after it, only an operator's replay continues the work."""
        return self not in OPEN


OPEN = frozenset({JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING})
"""The states of a job that has not ended."""


class Job(SQLModel, table=True):
    """A row of ``queue``: one job. ``lane`` is the job's FIFO queue, None without one, and ``turn`` the position in it.

    Times are UTC. ``wake_at`` is when a waiting job continues; ``told_to_wait`` means that the user got a notice.
    ``merged_into`` is the job whose answer covers this job's message. A delegated job has a ``task`` and the delegating
    job as ``parent_id``. ``depth`` counts the delegations from the first job of the chain. ``hears`` means that the
    delegating agent gets the result. ``erased`` means that the job's texts were deleted with its conversation,
    ``calls_deleted`` that the texts of its model and tool calls were (``retention.callsDays``).

    A heartbeat or a cron has its ``schedule``, such as cron-3, and the planned time as ``slot``; a webhook job has its
    ``webhook_id``. These jobs have no conversation: ``task`` is the input of the model, ``said`` the answer.

    ``edits`` is the JSON of an operator's changes for a restart, empty without any. A ``what_if`` job only shows an
    answer: it acts on nothing and sends nothing (docs/decisions.md: what-if). ``process`` is the process that created
    the job, such as connect@host:4711.

    ``backed_up_at`` is the time of the backup from which the job was restored while it was open: an answer may have
    been sent after that time, of which the store knows nothing (ADR 46).
    """

    __tablename__ = "queue"
    __table_args__ = (
        Index("ix_queue_status_turn", "status", "turn"),
        # All columns by which job lists are sorted and filtered, so that a page reads no rows of other jobs.
        Index("ix_queue_listed", "created_at", "id", "status", "kind", "agent_id", "platform", "error", "what_if"),
        Index("ix_queue_inbox_id", "inbox_id", "id"),
        # The columns that a text search reads besides messages; jobs that have none of these texts are not indexed.
        partial_index(
            "ix_queue_told", "error", "reason", "task", "id", where="error != '' OR reason != '' OR task != ''"
        ),
        partial_index("ix_queue_open_lane", "lane", "turn", where="status IN ('pending', 'running')"),
        # One running job per lane; jobs without a lane do not exclude each other.
        partial_index("ux_queue_running_lane", "lane", where="status = 'running'", unique=True),
        partial_index("ix_queue_waiting", "wake_at", where="status = 'waiting'"),
        partial_index("ix_queue_schedule", "schedule", "turn", where="schedule IS NOT NULL"),
        partial_index("ix_queue_completed", "completed_at", "id", where="completed_at IS NOT NULL"),
        partial_index("ix_queue_webhook_id", "webhook_id", "turn", where="webhook_id IS NOT NULL"),
    )

    id: str = Field(primary_key=True)
    kind: JobKind = Field(default=JobKind.MESSAGE, sa_type=enum_column_type(JobKind))
    status: JobStatus = Field(default=JobStatus.PENDING, sa_type=enum_column_type(JobStatus))
    priority: int = Priority.MESSAGE
    lane: str | None = None
    turn: int | None = Field(default=None, index=True)
    inbox_id: int | None = Field(default=None, foreign_key="inbox.id")
    platform: str
    account: str
    channel: str
    thread: str = ""
    agent_id: int | None = Field(default=None, foreign_key="agents.id", index=True)
    client_id: int | None = None
    conversation_id: int | None = Field(default=None, foreign_key="conversations.id", index=True)
    answer_id: int | None = None
    notice: str = ""
    run: int = 1
    recoveries: int = 0
    attempts: int = 0
    error: str = ""
    reason: str = ""
    stop_requested: bool = False
    waits_for: WaitReason | None = Field(default=None, sa_type=enum_column_type(WaitReason))
    waits_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    wake_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    told_to_wait: bool = False
    restarted_from: str | None = Field(default=None, index=True)
    merged_into: str | None = Field(default=None, index=True)
    parent_id: str | None = Field(default=None, index=True)
    depth: int = 0
    task: str = ""
    hears: bool = False
    erased: bool = False
    calls_deleted: bool = False
    schedule: str | None = None
    slot: datetime | None = Field(default=None, sa_type=UtcDateTime)
    webhook_id: int | None = None
    said: str = ""
    edits: str = ""
    what_if: bool = False
    process: str = ""
    backed_up_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    claimed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    claimed_by: str = ""
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    completed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def has_answer(self) -> bool:
        """Whether the job has an answer: a message of its conversation, or ``said`` in a job without one."""
        return self.answer_id is not None or bool(self.said)

    @property
    def address(self) -> Address:
        """The channel or thread that the answer is sent to."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)


FAILURE_NOTICE = "Sorry, I could not answer this message. The operators can see why."
"""The notice to a user, sent once, when Maestro gives up on a message (docs/decisions.md: failure notice)."""

CANCELLED_NOTICE = "An operator cancelled this message, so I will not answer it."
"""The notice to a user, sent once, when an operator cancels the message."""

CANCELLED_BY = "cancelled by "
"""The prefix of the reason of a job that an operator cancelled; the operator's name follows."""

ENDED_IN_TEMPORAL = "its workflow was "
"""The prefix of the reason of a job if an operator ended its workflow in Temporal."""


def new_notice_job(job: Job, notice_id: str, text: str, now: datetime) -> Job:
    """Return a job that sends a notice of Maestro itself to the user of ``job``; it has no lane (queue)."""
    copied = job.model_dump(include={"kind", "inbox_id", *Address.model_fields})
    return Job(**copied, id=notice_id, priority=Priority.OWNER, notice=text, created_at=now)


class StepState(StrEnum):
    """The state of an attempt at a step; interrupted: the process died; waiting: a retry follows after a wait."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class JobStep(SQLModel, table=True):
    """One attempt at one step; ``result`` is the JSON of the outcome that the step returned.

    ``workflow_run`` and ``activity_attempt`` are Temporal's run id and attempt number; they show which of two attempts
    is older. ``activity_attempt`` is 0 for local activities, because a repeated workflow task counts their attempts
    from 1 again. ``process`` is the process that made the attempt, such as worker@host:4711.
    """

    __tablename__ = "job_steps"
    __table_args__ = (
        UniqueConstraint("job_id", "step", "attempt"),
        partial_index("ix_job_steps_failed", "job_id", "id", "step", where="state = 'failed'"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    step: str
    activity: str
    run: int
    attempt: int
    workflow_run: str = ""
    activity_attempt: int = 0
    process: str = ""
    state: StepState = Field(sa_type=enum_column_type(StepState))
    started_at: datetime = Field(sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    result: str = ""
    error: str = ""
    detail: str = ""


class Wait(Payload):
    """The reason of a wait, and the time at which the step continues, None if only an event ends the wait."""

    reason: WaitReason
    wake_at: datetime | None = None


class StepRef(Payload):
    """The payload of an activity: the id of the job and the name of the step."""

    job_id: str
    step: str


class StepGroup(StepRef):
    """The payload of an activity that does several steps, each with a row of its own; ``step`` is the first step."""


class JobEnding(Value):
    """The final status, error and reason of a job, for the job's row and its search attributes in Temporal."""

    status: JobStatus
    error: str = ""
    reason: str = ""

    @property
    def is_by_operator(self) -> bool:
        """Whether an operator cancelled the job, so that the user needs a notice; a user's own stop needs none."""
        return self.status is JobStatus.CANCELLED and self.reason.startswith((CANCELLED_BY, ENDED_IN_TEMPORAL))


class JobRef(Payload):
    """The payload of a workflow: the job, its run, its timeouts in seconds, and the task queues of its activities.

    ``tool_rounds`` is how often the model may call tools before it has to answer. An empty queue name means the task
    queue of the workflow, and for tool calls ``llm_queue``. ``fair`` means that waiting activities are shared fairly
    between clients or channels. ``job_id`` is empty when Temporal starts a run of a ``schedule``, such as cron-3,
    because no job exists yet. ``dashboard`` is the base address for links to the dashboard, empty for no links.
    ``grouped`` means that one activity may do several steps; runs of older releases have one activity for each step.
    """

    job_id: str
    run: int
    heartbeat_seconds: float
    model_seconds: float
    tool_seconds: float
    tool_rounds: int
    llm_queue: str = ""
    connector_queue: str = ""
    tools_queue: str = ""
    schedule: str = ""
    fair: bool = True
    dashboard: str = ""
    grouped: bool = False


def job_details(job_id: str, dashboard: str) -> str:
    """Return a job's Markdown text for the Temporal Web UI: a link to the job's page, no text of users or agents."""
    job = f"[Job `{job_id}`]({dashboard}/queue/{job_id})" if dashboard else f"Job `{job_id}`"
    return f"{job}: its steps, prompts and answer."


def _check_prompt(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text; leave the prompt out to use the original text")
    return storable_text(text)


Prompt = Annotated[str, ValueField(max_length=MAX_CONTENT_CHARS), AfterValidator(_check_prompt)]


class JobEdits(View):
    """An operator's changes for a restart or a what-if; a field that is None stays as it was.

    ``agent`` is the slug of the agent that answers. ``model`` is called first, before the fallbacks of the agent.
    ``prompt`` replaces the message or the task as the model's input. The stored message does not change.
    """

    agent: Slug | None = None
    model: ModelName | None = None
    prompt: Prompt | None = None

    @property
    def any(self) -> bool:
        return self != NO_EDITS

    @property
    def text(self) -> str:
        """The JSON that a job's row stores; empty without changes."""
        return self.model_dump_json(exclude_none=True) if self.any else ""


NO_EDITS = JobEdits()


def job_edits(job: Job) -> JobEdits:
    return JobEdits.model_validate_json(job.edits) if job.edits else NO_EDITS


def task_input(job: Job) -> str:
    """Return the model's input in a job without a message: the edited prompt or the task; empty for other jobs."""
    return (job_edits(job).prompt or job.task) if job.task else ""


def first_model(job: Job, agent_model: str) -> str:
    """Return the model to call first: the operator's choice, else ``agent_model``, which may be empty."""
    return job_edits(job).model or agent_model


BACKGROUND = frozenset({JobKind.HEARTBEAT, JobKind.CRON, JobKind.WEBHOOK})


def is_background(job: Job) -> bool:
    """Return whether a schedule or a webhook started the job; a notice of Maestro itself is not a background job."""
    return job.kind in BACKGROUND and not job.notice


def is_streamed(job: Job) -> bool:
    """Return whether a user sees the answer while the model writes it: only answers to messages, no what-ifs.

    The answer of a restored job may be on the platform already, so it is not shown before the platform was asked.
    """
    is_answer = job.kind is JobKind.MESSAGE and job.parent_id is None and job.inbox_id is not None
    return is_answer and not job.what_if and job.backed_up_at is None
