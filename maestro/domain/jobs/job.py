"""A job is one piece of work with one outcome; its id is the id of its workflow.

See docs/invariants.md: steps leave rows, no silent end.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator
from pydantic import Field as ValueField
from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.errors import WaitReason
from maestro.domain.fields import ModelName, Slug
from maestro.domain.messages import MAX_CONTENT_CHARS, Address
from maestro.domain.precedence import Priority
from maestro.domain.texts import storable
from maestro.domain.values import Value, View

CHOSEN = "an operator chose"
"""Why an agent answers that no rule of routing named."""


class JobKind(StrEnum):
    """What made the job."""

    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    WEBHOOK = "webhook"
    DELEGATION = "delegation"


class JobStatus(StrEnum):
    """Where the job stands; the last five are ends (docs/invariants.md: no silent end)."""

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
        """Say whether nothing more will happen by itself."""
        return self not in OPEN


OPEN = frozenset({JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING})
"""The statuses of a job that still has something to do."""


class Job(SQLModel, table=True):
    """A row of ``queue``; times are UTC, ``turn`` is its place in ``lane`` and absent without one.

    ``wake_at`` is when a waiting job goes on, ``told_to_wait`` whether its person was told that it waits.
    ``merged_into`` is the job that answers in its place. A delegation has the job that gave it as ``parent_id``, its
    ``depth`` below the message that began it all, and the ``task``; ``hears`` says that the delegator wants the result.
    ``erased`` says that what was said in it was deleted with its conversation.

    A heartbeat and a cron have the ``schedule`` they are a run of, such as cron-3, and the ``slot``, the time that was
    planned; a webhook has its ``webhook_id``. Such a job has no conversation: ``task`` is what it is told, ``said``
    what it answers.

    ``edits`` is the JSON of what an operator changed when he had it restarted, empty without. A ``what_if`` job only
    shows what would be answered: it acts on nothing and sends nothing (docs/decisions.md: what-if).
    """

    __tablename__ = "queue"
    __table_args__ = (
        Index("ix_queue_status_turn", "status", "turn"),
        # What lists are sorted and filtered by, so that only the jobs that are shown are read.
        Index("ix_queue_listed", "created_at", "id", "status", "kind", "agent_id", "platform", "error", "what_if"),
        Index("ix_queue_inbox_id", "inbox_id", "id"),
        # What a search reads besides messages: most jobs have none of it, and are not in it.
        Index(
            "ix_queue_told",
            "error",
            "reason",
            "task",
            "id",
            sqlite_where=text("error != '' OR reason != '' OR task != ''"),
            postgresql_where=text("error != '' OR reason != '' OR task != ''"),
        ),
        Index(
            "ix_queue_open_lane",
            "lane",
            "turn",
            sqlite_where=text("status IN ('pending', 'running')"),
            postgresql_where=text("status IN ('pending', 'running')"),
        ),
        Index(
            "ix_queue_waiting",
            "wake_at",
            sqlite_where=text("status = 'waiting'"),
            postgresql_where=text("status = 'waiting'"),
        ),
        Index(
            "ix_queue_schedule",
            "schedule",
            "turn",
            sqlite_where=text("schedule IS NOT NULL"),
            postgresql_where=text("schedule IS NOT NULL"),
        ),
        Index(
            "ix_queue_webhook_id",
            "webhook_id",
            "turn",
            sqlite_where=text("webhook_id IS NOT NULL"),
            postgresql_where=text("webhook_id IS NOT NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    kind: JobKind = Field(default=JobKind.MESSAGE, sa_type=text_of(JobKind))
    status: JobStatus = Field(default=JobStatus.PENDING, sa_type=text_of(JobStatus))
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
    waits_for: WaitReason | None = Field(default=None, sa_type=text_of(WaitReason))
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
    schedule: str | None = None
    slot: datetime | None = Field(default=None, sa_type=UtcDateTime)
    webhook_id: int | None = None
    said: str = ""
    edits: str = ""
    what_if: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    claimed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    completed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def has_answer(self) -> bool:
        """Say whether there is an answer, in the conversation or of a job without one."""
        return self.answer_id is not None or bool(self.said)

    @property
    def address(self) -> Address:
        """Where the answer goes."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)


WAITING_NOTICE = "Every model is busy at the moment. I will answer this as soon as one is free."
"""What a person hears, once, when the answer has to wait for an account (docs/decisions.md: retry)."""

FAILURE_NOTICE = "Sorry, I could not answer this message. The operators can see why."
"""What a person hears, once and without internals, when a message finally failed.

See docs/decisions.md: failure notice.
"""


CANCELLED_NOTICE = "An operator cancelled this message, so I will not answer it."
"""What a person hears, once, whose message an operator cancels."""

CANCELLED_BY = "cancelled by "
"""How the reason of a job begins that an operator cancelled, before the operator's name."""

IN_TEMPORAL = "its workflow was "
"""How the reason of a job begins whose workflow an operator ended in Temporal."""


def notice_of(job: Job, notice_id: str, text: str, now: datetime) -> Job:
    """Return a job without a lane that tells the person of ``job`` something Maestro itself has to say."""
    return Job(
        id=notice_id,
        kind=job.kind,
        inbox_id=job.inbox_id,
        priority=Priority.OWNER,
        notice=text,
        created_at=now,
        **job.address.model_dump(),
    )


class StepState(StrEnum):
    """What became of one attempt at a step; interrupted: its process died, waiting: it is made again after the wait."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class JobStep(SQLModel, table=True):
    """One attempt at one step; ``result`` is the JSON of references it returned.

    ``workflow_run`` and ``activity_attempt`` are Temporal's run id and its number of the attempt: they tell the older
    of two attempts. The number is 0 for local steps, whose numbers begin again when their workflow task is repeated.
    """

    __tablename__ = "job_steps"
    __table_args__ = (
        UniqueConstraint("job_id", "step", "attempt"),
        Index(
            "ix_job_steps_failed",
            "job_id",
            "id",
            "step",
            sqlite_where=text("state = 'failed'"),
            postgresql_where=text("state = 'failed'"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    step: str
    activity: str
    run: int
    attempt: int
    workflow_run: str = ""
    activity_attempt: int = 0
    state: StepState = Field(sa_type=text_of(StepState))
    started_at: datetime = Field(sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    result: str = ""
    error: str = ""
    detail: str = ""


class Wait(Value):
    """What a step waits for, and when it goes on by itself; None when only the event itself ends the wait."""

    reason: WaitReason
    wake_at: datetime | None = None


class StepRef(Value):
    """The one payload of an activity: which step of which job."""

    job_id: str
    step: str


class StepGroup(StepRef):
    """The payload of an activity that does several steps, each with a row of its own; ``step`` is the first of them."""


class JobEnding(Value):
    """How a job ended, for its row and its search attributes."""

    status: JobStatus
    error: str = ""
    reason: str = ""

    @property
    def is_by_operator(self) -> bool:
        """Say whether an operator cancelled the job; its own person, who stopped it, knows of the end."""
        return self.status is JobStatus.CANCELLED and self.reason.startswith((CANCELLED_BY, IN_TEMPORAL))


class JobRef(Value):
    """The one payload of a workflow: which job, its run, how fast it goes (seconds), and on which queues.

    ``tool_rounds`` is how often the model may call tools before it has to answer. An empty queue is the workflow's own.
    With ``fair`` each client or channel gets its share where steps wait for each other.
    Where Temporal begins a run of a ``schedule``, such as cron-3, there is no job yet, and its id is empty.
    ``dashboard`` is the address of its pages, for links, empty without any. Runs that began before steps were done in
    groups are not ``grouped``: what their histories hold is one activity for each step.
    """

    job_id: str
    run: int
    heartbeat_seconds: float
    model_seconds: float
    tool_seconds: float
    tool_rounds: int
    llm_queue: str = ""
    connector_queue: str = ""
    schedule: str = ""
    fair: bool = True
    dashboard: str = ""
    grouped: bool = False


def job_details(job_id: str, dashboard: str) -> str:
    """Return what the Temporal Web UI says of a job, in Markdown: a link to its page, and nothing that was said."""
    job = f"[Job `{job_id}`]({dashboard}/queue/{job_id})" if dashboard else f"Job `{job_id}`"
    return f"{job}: its steps, prompts and answer."


def _something(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text; leave it out to ask what was asked the first time")
    return storable(text)


Prompt = Annotated[str, ValueField(max_length=MAX_CONTENT_CHARS), AfterValidator(_something)]


class JobEdits(View):
    """What is not None stands in the place of what it was the first time.

    ``agent`` is the slug of who answers, ``model`` its first choice, before the agent's own fallbacks, and ``prompt``
    what the model reads instead of the message or the task; the message itself stays as it was said.
    """

    agent: Slug | None = None
    model: ModelName | None = None
    prompt: Prompt | None = None

    @property
    def any(self) -> bool:
        """Say whether something is changed."""
        return self != NO_EDITS

    @property
    def text(self) -> str:
        """What a job's row keeps of them: JSON, empty for none."""
        return self.model_dump_json(exclude_none=True) if self.any else ""


NO_EDITS = JobEdits()


def edits_of(job: Job) -> JobEdits:
    """Return what an operator changed in a job."""
    return JobEdits.model_validate_json(job.edits) if job.edits else NO_EDITS


def task_of(job: Job) -> str:
    """Return what the model is told that a job without a message is to do; empty for one that answers a message."""
    return (edits_of(job).prompt or job.task) if job.task else ""


def model_for(job: Job, own: str) -> str:
    """Return the model that is asked first: the operator's choice, else the agent's ``own``, which may be empty."""
    return edits_of(job).model or own


BACKGROUND = frozenset({JobKind.HEARTBEAT, JobKind.CRON, JobKind.WEBHOOK})


def is_background(job: Job) -> bool:
    """Say whether a job began without a person; what Maestro itself has to say about one is no such job."""
    return job.kind in BACKGROUND and not job.notice


def is_streamed(job: Job) -> bool:
    """Say whether a person watches this job being done: one who wrote a message, and no agent hears the answer."""
    return job.kind is JobKind.MESSAGE and job.parent_id is None and job.inbox_id is not None and not job.what_if
