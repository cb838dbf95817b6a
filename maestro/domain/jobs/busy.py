"""The rules for messages that arrive while an earlier message of their lane is still being answered.

See docs/decisions.md: busy agents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from maestro.domain.jobs.job import Job, JobKind, JobStatus
from maestro.domain.messages import InboxRow

MOST_MERGED = 50
"""The most waiting messages that are answered together with one; the next ones get an answer of their own."""

INTERRUPTED = "interrupted by a newer message"
"""The reason of a job that a newer message interrupted."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A job of a lane, and the incoming message that it answers."""

    job: Job
    row: InboxRow


def collected(
    host: InboxRow, waiting: Sequence[QueuedMessage], ends_at: int | None, goes_along: Callable[[InboxRow], bool]
) -> tuple[QueuedMessage, ...]:
    """Return the waiting jobs of a lane that are answered together with the job ``host``, which starts now.

    ``waiting`` is in the order of the lane. The first job that does not fit ends the selection, so that answers stay in
    order: a job of another user, because permissions may differ; one that arrived after the ``/new`` with the inbox id
    ``ends_at``; one that has run before or that an operator started; one for which ``goes_along`` returns false,
    because another agent or none would answer it.
    """

    def joins(one: QueuedMessage) -> bool:
        before_new = ends_at is None or (one.row.id or 0) < ends_at
        return _unbegun(one.job) and before_new and _same_person(host, one.row) and goes_along(one.row)

    return tuple(takewhile(joins, waiting[:MOST_MERGED]))


def interrupted(newer: InboxRow, agent_id: int | None, lane: Sequence[QueuedMessage]) -> tuple[QueuedMessage, ...]:
    """Return the open jobs of a lane that a newer message interrupts: those of the same user and the same agent.

    A job that has no agent yet is not interrupted: it is answered together with others when it starts. A job with a
    stop request is left out, because it ends without an interruption.
    """
    return tuple(
        one
        for one in lane
        if one.job.agent_id is not None
        and one.job.agent_id == agent_id
        and not one.job.stop_requested
        and _same_person(newer, one.row)
    )


def absorbed(job: Job) -> bool:
    """Return whether an interrupted job was cancelled, so that the newer message is answered in its place.

    The interruption may have come too late; then the job has another state.
    """
    return job.status is JobStatus.CANCELLED


def _unbegun(job: Job) -> bool:
    first = job.run == 1 and job.started_at is None and job.restarted_from is None
    return first and job.kind is JobKind.MESSAGE and not job.stop_requested and not job.notice


def _same_person(one: InboxRow, other: InboxRow) -> bool:
    """Return whether two messages of a lane have the same sender with the same rights.

    The rights are those at the time when each message arrived.
    """
    return (one.user_id, one.is_owner, one.from_bot) == (other.user_id, other.is_owner, other.from_bot)
