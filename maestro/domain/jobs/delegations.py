"""Tasks that agents give to each other: who may give which, and what the other hears.

See docs/decisions.md: delegation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.jobs.job import Job, JobStatus, task_of
from maestro.domain.tags.grammar import Tag
from maestro.domain.texts import NAME_CHARS, quoted, quoted_lines

MAX_DEPTH = 3
"""How often a task may be handed on, the first time included."""

MOST_TASKS = 5
"""Tasks that one answer may hand on: each is a model call of its own, and more."""

TASK_CHARS = 20_000

WAIT = "wait"
"""The word after the slug by which a delegator asks to hear the result."""


@dataclass(frozen=True)
class DelegatedTask:
    """A task for another agent; with ``hears`` the delegator hears the result and answers with it."""

    slug: str
    task: str
    hears: bool

    @classmethod
    def of(cls, tag: Tag) -> "DelegatedTask":
        """Read the tag; the slug may be written like a mention, in any case."""
        return cls(tag.key.lstrip("@").lower(), tag.body.strip(), WAIT in (word.lower() for word in tag.options))


@dataclass(frozen=True)
class Delegator:
    """Who hands a task on: the agent, how deep its own job is, and the ids of the agents above it in the chain."""

    agent: Agent
    depth: int
    chain: Collection[int]


def tag_problem(handover: DelegatedTask, tag: Tag) -> str | None:
    """Return why the task cannot be handed to anybody, or None."""
    if not tag.complete:
        return "A task was not passed on: its end was not marked."
    if not handover.slug:
        return "A task was not passed on: it names no agent."
    if not handover.task:
        return f"Nothing was passed on to @{handover.slug}: the task was empty."
    if len(handover.task) > TASK_CHARS:
        return f"The task was not passed on to @{handover.slug}: it has more than {TASK_CHARS} characters."
    return None


def refusal(handover: DelegatedTask, target: Agent | None, by: Delegator) -> str | None:
    """Return why this agent may not be given the task, in a sentence for people, or None.

    Unknown and inactive agents are reported; nobody gives a task to itself or to an agent above it in the chain, and
    the chain has at most ``MAX_DEPTH`` links (docs/decisions.md: delegation).
    """
    if target is None or target.status is AgentStatus.ARCHIVED:
        return f"The task was not passed on: there is no agent @{handover.slug}."
    if target.status is not AgentStatus.ACTIVE:
        return f"The task was not passed on to @{target.slug}: the agent is {target.status}."
    if target.id == by.agent.id:
        return f"The task was not passed on: @{target.slug} cannot give a task to itself."
    if target.id in by.chain:
        return f"The task was not passed on to @{target.slug}: the request came from there and would go in a circle."
    if by.depth >= MAX_DEPTH:
        return f"The task was not passed on to @{target.slug}: it was handed on {MAX_DEPTH} times already."
    return None


def task_text(delegator: Agent, user_name: str, job: Job) -> str:
    """Return what the model of the other agent is asked; the task is the delegator's words, line by line."""
    person = f" on behalf of a person called {quoted(user_name, NAME_CHARS)}" if user_name.strip() else ""
    reader = (
        f"Only @{delegator.slug} reads your answer, and goes on with it."
        if job.hears
        else "Your answer is posted in the channel, after theirs."
    )
    return f"The agent @{delegator.slug} gives you this task{person}:\n{quoted_lines(task_of(job))}\n\n{reader}"


@dataclass(frozen=True)
class TaskResult:
    """What became of a task: the agent's slug and its answer, None when it has none; ``status`` is its job's."""

    slug: str
    task: str
    answer: str | None
    status: JobStatus


def results_text(results: Sequence[TaskResult], go_on: str) -> str:
    """Return what the delegator's model is told when everything it waited for has ended, and how it is to go on."""
    return "\n\n".join(["What became of the tasks that you passed on:", *map(_result_text, results), go_on])


ANSWER_PERSON = "Answer the person now, with what you know. They have not seen these results."


def _result_text(result: TaskResult) -> str:
    task = f"@{result.slug} was asked:\n{quoted_lines(result.task)}"
    if result.answer is None:
        return f"{task}\nIt could not finish this ({result.status})."
    return f"{task}\nIt answered:\n{quoted_lines(result.answer)}"
