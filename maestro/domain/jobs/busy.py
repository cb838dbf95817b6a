"""What becomes of messages that come while an earlier one of their lane is not answered yet.

See docs/decisions.md: busy agents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from maestro.domain.jobs.job import Job, JobKind, JobStatus
from maestro.domain.messages import InboxRow

MOST_MERGED = 50
"""How many waiting messages are answered together with one, at most: more are a turn of their own."""

INTERRUPTED = "interrupted by a newer message"
"""Why a job ended that no person stopped."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A job of a lane, and the message it is to answer."""

    job: Job
    row: InboxRow


def collected(
    host: InboxRow, waiting: Sequence[QueuedMessage], ends_at: int | None, goes_along: Callable[[InboxRow], bool]
) -> tuple[QueuedMessage, ...]:
    """Return which of the waiting jobs, given in their order, are answered in the turn of the one that begins.

    The first that is another matter ends it, so that answers stay in order: one of another person, who may have other
    rights; one that came after the ``/new`` with the id ``ends_at``; one that has begun before, or was asked for by an
    operator; one that ``goes_along`` says would be answered by somebody else, or by nobody.
    """

    def joins(one: QueuedMessage) -> bool:
        before_new = ends_at is None or (one.row.id or 0) < ends_at
        return _unbegun(one.job) and before_new and _same_person(host, one.row) and goes_along(one.row)

    return tuple(takewhile(joins, waiting[:MOST_MERGED]))


def interrupted(newer: InboxRow, agent_id: int | None, lane: Sequence[QueuedMessage]) -> tuple[QueuedMessage, ...]:
    """Return which open jobs of its lane a newer message interrupts: those that answer the same person as its agent.

    One that has not begun is collected when its turn comes, and so is one whose agent is not chosen yet. One that was
    asked to stop ends anyway.
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
    """Say whether a newer message that interrupted this job is answered in its place: it may have been too late."""
    return job.status is JobStatus.CANCELLED


def _unbegun(job: Job) -> bool:
    first = job.run == 1 and job.started_at is None and job.restarted_from is None
    return first and job.kind is JobKind.MESSAGE and not job.stop_requested and not job.notice


def _same_person(one: InboxRow, other: InboxRow) -> bool:
    """Compare within a lane, so on one platform; what somebody is allowed counts when the message came in."""
    return (one.user_id, one.is_owner, one.from_bot) == (other.user_id, other.is_owner, other.from_bot)
