"""The rules for messages that arrive while their lane is busy (docs/decisions.md: busy agents)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.messages import InboxRow

MOST_MERGED = 50
"""The most waiting messages that one answer covers besides its own message; later ones get another answer."""

INTERRUPTED = "interrupted by a newer message"
"""The reason of a job that a newer message interrupted."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A job of a lane, and the incoming message that it answers."""

    job: Job
    row: InboxRow


def jobs_to_merge(
    first: InboxRow, waiting: Sequence[QueuedMessage], ends_at: int | None, same_agent: Callable[[InboxRow], bool]
) -> tuple[QueuedMessage, ...]:
    """Return the waiting jobs of a lane that are answered together with the message ``first``.

    The job of that message starts now. ``waiting`` is in the order of the lane. The first job that does not fit ends
    the selection, so that answers stay in order: a job of another user, because permissions may differ; one that
    arrived after the ``/new`` with the inbox id ``ends_at``; one that has run before or that an operator started; one
    for which ``same_agent`` returns false, because another agent or none would answer it.
    """

    def can_merge(queued: QueuedMessage) -> bool:
        job, row = queued.job, queued.row
        is_new = job.run == 1 and job.started_at is None and job.restarted_from is None
        is_plain = job.kind is JobKind.MESSAGE and not job.stop_requested and not job.notice
        before_new = ends_at is None or (row.id or 0) < ends_at
        return is_new and is_plain and before_new and _same_sender(first, row) and same_agent(row)

    return tuple(takewhile(can_merge, waiting[:MOST_MERGED]))


def jobs_to_interrupt(
    newer: InboxRow, agent_id: int | None, lane: Sequence[QueuedMessage]
) -> tuple[QueuedMessage, ...]:
    """Return the open jobs of a lane that a newer message interrupts: those of the same user and the same agent.

    A job that has no agent yet is not interrupted: it is answered together with other messages when it starts. A job
    with a stop request is left out, because it ends without an interruption.
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
