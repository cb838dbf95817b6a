"""A transaction, and what is done in one across the repositories."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from maestro.domain.errors import Conflict, Forbidden, InvalidEdit, MaestroError, NotFound
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.busy import INTERRUPTED, interrupted
from maestro.domain.jobs.job import Ending, Job, JobStatus
from maestro.domain.messages import LaneKey
from maestro.domain.questions.question import Answer
from maestro.store.repositories import Repositories

Done = TypeVar("Done")


class Transaction(Repositories):
    """One transaction: what takes more than one repository."""

    def close_job(self, job_id: str, ending: Ending) -> bool:
        """End a job, free its places, inbound and outbound, and ask nobody for it any more; false when it had ended.

        The tasks it gave to other agents may begin if it was answered, and who waits to hear of it may go on.
        """
        self.questions.cancel_of(job_id)
        self.calls.close(job_id)
        self.deliveries.abandon(job_id)
        self.deliveries.leave_lanes(job_id)
        ended = self.jobs.end(job_id, ending)
        if ended:
            self.delegations.closed(job_id, ending.status)
        return ended

    def answer(self, answer: Answer, by: str, inbox_id: int | None = None) -> bool:
        """Keep what a person, ``platform:userId`` or the operator, says to a question, and let its job go on.

        ``inbox_id`` is the message that says it. Returns false, and changes nothing, when the question is not open.
        """
        kept = self.questions.settle(answer, by, inbox_id)
        if kept:
            if answer.question.job_id is not None:
                self.jobs.wake(answer.question.job_id)
            self.audit.add(by, answer.action, str(answer.question.id))
        return kept

    def interrupt(self, newer: Job, row: InboxRow, agent_id: int | None, user_id: str | None = None) -> None:
        """Let a newer message, which ``agent_id`` would answer, end what that agent does for the same person.

        It is answered in the turn of the newer one (decision 15). What runs stops at its next step; a chunk that is
        being sent is sent. A person who knows that they have to wait is not told again. What came before a ``/new``,
        that of ``user_id`` alone if one is given, is another conversation and goes on.
        """
        for one in interrupted(row, agent_id, self.merges.open_in(LaneKey(newer.lane or ""))):
            if self.inbox.next_new_conversation(one.row, user_id) is not None:
                continue
            self.jobs.update(one.job.id, merged_into=newer.id)
            if one.job.status is JobStatus.RUNNING:
                self.jobs.request_stop(one.job.id)
            else:
                self.close_job(one.job.id, Ending(status=JobStatus.CANCELLED, reason=INTERRUPTED))
            newer.told_to_wait = newer.told_to_wait or one.job.told_to_wait

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what the block did, and only that, when it raises."""
        self._session.flush()
        with self._session.begin_nested():
            yield
            self._session.flush()

    def attempt(self, wish: Callable[[], Done]) -> Done | MaestroError:
        """Do something, or nothing of it: return instead the error that says what does not fit and how to mend it."""
        try:
            with self.savepoint():
                return wish()
        except (Conflict, Forbidden, InvalidEdit, NotFound) as error:
            return error
