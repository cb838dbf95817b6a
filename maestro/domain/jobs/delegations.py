"""The rules of delegation, and the model's input in jobs without a message (docs/decisions.md: delegation)."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.jobs.job import Job, JobKind, JobStatus, task_input
from maestro.domain.tags.grammar import Tag
from maestro.domain.texts import NAME_CHARS, quote_text, quoted_lines

MAX_DEPTH = 3
"""The largest number of delegations in a chain, the first one included."""

MOST_TASKS = 5
"""The most tasks that one answer may delegate: each costs at least one model call."""

TASK_CHARS = 20_000

ANSWER_PERSON = "Answer the person now, with what you know. They have not seen these results."


SILENT = "[SILENT]"
"""The answer of an agent that has nothing to post."""

_STARTED_BY = {
    JobKind.HEARTBEAT: "This is a heartbeat of yours",
    JobKind.CRON: "This is a scheduled job of yours",
    JobKind.WEBHOOK: "An external program started this job",
}
_ANSWER_IS_POSTED = "; no user is waiting for you, so ask nothing back. Your answer is posted in the channel."
_MAY_BE_SILENT = f" If there is nothing worth telling, answer only {SILENT}, and nothing is posted."
_SILENT_LINE = re.compile(r"(?:^|\n)[ \t>*_`]*\[SILENT\][ \t.!*_`]*(?=\n|$)", re.IGNORECASE)


@dataclass(frozen=True)
class DelegatedTask:
    """A task for another agent; ``hears`` means that the delegating agent gets the result and goes on with it."""

    slug: str
    task: str
    hears: bool

    @classmethod
    def from_tag(cls, tag: Tag) -> "DelegatedTask":
        """Read the task in a delegate tag; the agent's slug may begin with ``@`` and is not case-sensitive."""
        return cls(tag.key.lstrip("@").lower(), tag.body.strip(), "wait" in (word.lower() for word in tag.options))


@dataclass(frozen=True)
class Delegator:
    """The agent that delegates a task, the ``depth`` of its job, and the ids of the agents before it in the chain."""

    agent: Agent
    depth: int
    chain: Collection[int]


def tag_problem(delegated: DelegatedTask, tag: Tag) -> str | None:
    """Return what is wrong with a delegate tag itself, as a sentence for users; None if the tag is valid."""
    if not tag.complete:
        return "A task was not passed on: its closing tag is missing."
    if not delegated.slug:
        return "A task was not passed on: it names no agent."
    if not delegated.task:
        return f"Nothing was passed on to @{delegated.slug}: the task was empty."
    if len(delegated.task) > TASK_CHARS:
        return f"The task was not passed on to @{delegated.slug}: it has more than {TASK_CHARS} characters."
    return None


def delegation_refusal(delegated: DelegatedTask, target: Agent | None, delegator: Delegator) -> str | None:
    """Return why the target agent may not get the task, as a sentence for users; None if it may.

    Refused are unknown and inactive agents, the delegator itself, an agent above the delegator in the chain, and a task
    beyond ``MAX_DEPTH`` delegations (docs/decisions.md: delegation).
    """
    if target is None or target.status is AgentStatus.ARCHIVED:
        return f"The task was not passed on: there is no agent @{delegated.slug}."
    if target.status is not AgentStatus.ACTIVE:
        return f"The task was not passed on to @{target.slug}: the agent is {target.status}."
    if target.id == delegator.agent.id:
        return f"The task was not passed on: @{target.slug} cannot give a task to itself."
    if target.id in delegator.chain:
        return f"The task was not passed on to @{target.slug}: the request came from there and would go in a circle."
    if delegator.depth >= MAX_DEPTH:
        return f"The task was not passed on to @{target.slug}: it was handed on {MAX_DEPTH} times already."
    return None


def task_text(delegator: Agent, user_name: str, job: Job) -> str:
    """Return the model's input for a delegated task, which is quoted line by line as text of the delegator."""
    person = f" on behalf of a person called {quote_text(user_name, NAME_CHARS)}" if user_name.strip() else ""
    reader = (
        f"Only @{delegator.slug} reads your answer, and goes on with it."
        if job.hears
        else "Your answer is posted in the channel, after theirs."
    )
    return f"The agent @{delegator.slug} gives you this task{person}:\n{quoted_lines(task_input(job))}\n\n{reader}"


@dataclass(frozen=True)
class TaskResult:
    """The result of a delegated task: the agent's slug, its answer (None without one), and the state of its job."""

    slug: str
    task: str
    answer: str | None
    status: JobStatus


def results_text(results: Sequence[TaskResult], go_on: str) -> str:
    """Return the delegating agent's model input after all its tasks ended; ``go_on`` is the closing instruction."""
    texts = ["Results of the tasks that you passed on:"]
    for result in results:
        failure = f"The agent could not finish this ({result.status})."
        outcome = f"It answered:\n{quoted_lines(result.answer)}" if result.answer is not None else failure
        texts.append(f"@{result.slug} was asked:\n{quoted_lines(result.task)}\n{outcome}")
    return "\n\n".join([*texts, go_on])


def background_text(job: Job, zone: ZoneInfo) -> str:
    """Return the model's input for a background job: the task and why it runs now, with times in ``zone``."""
    slot = job.slot.astimezone(zone) if job.slot is not None else None
    planned = f", planned for {slot:%A %Y-%m-%d %H:%M} ({zone.key})" if slot is not None else ""
    return f"{task_input(job)}\n\n({_STARTED_BY[job.kind]}{planned}{_ANSWER_IS_POSTED}{_silence_hint(job)})"


def continuation_text(job: Job) -> str:
    """Return the instruction for an agent that has the results of all tasks it delegated in this job."""
    return f"Go on with your work now, with what you know{_ANSWER_IS_POSTED}{_silence_hint(job)}"


def remove_silent_lines(text: str) -> str:
    """Return an answer without its ``SILENT`` lines; empty if there is no other text, so that nothing is posted."""
    return _SILENT_LINE.sub("", text).strip()


def _silence_hint(job: Job) -> str:
    return _MAY_BE_SILENT if job.kind is not JobKind.CRON else ""
