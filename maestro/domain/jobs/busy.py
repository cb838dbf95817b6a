"""The rules for messages that arrive while their lane (queue) is busy (docs/decisions.md: busy agents)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.messages import InboxRow

MOST_MERGED = 50
"""The most waiting messages that are answered together with a message; the rest get another answer."""

INTERRUPTED = "interrupted by a newer message"
"""The stored reason of a job that was cancelled because a newer message interrupted it."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A job in a lane (queue), and the incoming message that the job answers."""

    job: Job
    row: InboxRow


def jobs_to_merge(
    first: InboxRow, waiting: Sequence[QueuedMessage], new_inbox_id: int | None, same_agent: Callable[[InboxRow], bool]
) -> tuple[QueuedMessage, ...]:
    """Return the waiting jobs of a lane that are answered together with the message ``first``.

    The job of that message starts now. ``waiting`` holds the later jobs in lane order. The first job that cannot be
    merged ends the selection, so that answers stay in order. A job of another user is not merged, because permissions
    may differ. Nor is a job that ran before, is no plain message, or arrived after the ``/new`` with the inbox id
    ``new_inbox_id``. If ``same_agent`` returns false, another agent or none would answer, so the job is not merged.
    """

    def can_merge(queued: QueuedMessage) -> bool:
        job, row = queued.job, queued.row
        is_new = job.run == 1 and job.started_at is None and job.restarted_from is None
        is_plain = job.kind is JobKind.MESSAGE and not job.stop_requested and not job.notice
        before_new = new_inbox_id is None or (row.id or 0) < new_inbox_id
        return is_new and is_plain and before_new and _same_sender(first, row) and same_agent(row)

    return tuple(takewhile(can_merge, waiting[:MOST_MERGED]))


def jobs_to_interrupt(
    newer: InboxRow, agent_id: int | None, lane: Sequence[QueuedMessage]
) -> tuple[QueuedMessage, ...]:
    """Return the open jobs of a lane that a newer message interrupts: those of the same user and the same agent.

    A job without an agent has not started: when it starts, it is answered together with other messages. A job with a
    stop request is left out, because it ends anyway.
    """
    return tuple(
        queued
        for queued in lane
        if queued.job.agent_id is not None
        and queued.job.agent_id == agent_id
        and not queued.job.stop_requested
        and _same_sender(newer, queued.row)
    )


def _same_sender(message: InboxRow, other: InboxRow) -> bool:
    """Return whether two messages have the same sender, with the same rights at the times when they arrived."""
    return (message.user_id, message.is_owner, message.from_bot) == (other.user_id, other.is_owner, other.from_bot)
