"""Messages of one person that are answered together, in the turn of the job that begins.

See docs/decisions.md: busy agents.
"""

from collections.abc import Callable

from maestro.domain.agents.agent import BusyMode
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.busy import MOST_MERGED, absorbed, collected
from maestro.domain.jobs.job import Ending, Job, JobStatus
from maestro.store.transaction import Transaction


def collect(tx: Transaction, host: Job, mode: BusyMode, goes_along: Callable[[InboxRow], bool]) -> int:
    """Let a job that begins answer for what waits behind it too; return how many messages it answers with its own.

    ``goes_along`` says whether a message would be answered by the same agent. What an earlier message was interrupted
    for is answered as well. Nothing of it can be lost: it happens in the transaction that says who answers. What an
    operator changed is for one message alone.
    """
    if mode is BusyMode.QUEUE or host.edits:
        return 0
    row = tx.inbox.read(host.inbox_id)
    waiting = tx.merges.behind(host, MOST_MERGED)
    ends_at = tx.inbox.next_new_conversation(row, None) if waiting else None
    joining = [one.job.id for one in collected(row, waiting, ends_at, goes_along)]
    for job_id in joining:
        tx.close_job(job_id, Ending(status=JobStatus.MERGED, reason=f"answered together with {host.id}"))
    taken = _interrupted(tx, [host.id, *joining])
    if joining or taken:
        tx.merges.merge([*joining, *taken], host.id)
        tx.conversations.supersede(tx.merges.unheard(taken))
    return len(joining) + len(taken)


def _interrupted(tx: Transaction, ids: list[str]) -> list[str]:
    """Return the jobs that ended for these; one that was answered before it could end keeps its own message."""
    marked = [job for job in tx.merges.into(ids) if job.status is not JobStatus.MERGED]
    tx.merges.release([job.id for job in marked if not absorbed(job)])
    return [job.id for job in marked if absorbed(job)]
