"""Who is to be reminded that the chat is no place to ask."""

from sqlalchemy import bindparam
from sqlmodel import col, delete, not_, or_, select

from maestro.domain.chat.message import ChatReminder
from maestro.domain.jobs.job import OPEN, Job
from maestro.store.prepared import Prepared, insert, one_of
from maestro.store.repository import Repository


class ChatReminders(Repository):
    """One for each agent and job whose last answer did nothing but chat.

    It is shown to the next call of that job, or of any job of the agent when that one has ended without another call.
    """

    _DUE = (
        col(ChatReminder.agent_id) == bindparam("of_agent"),
        or_(
            col(ChatReminder.job_id) == bindparam("for_job"),
            select(Job.id).where(Job.id == ChatReminder.job_id, not_(one_of(col(Job.status), OPEN))).exists(),
        ),
    )
    _IS_DUE = Prepared(select(ChatReminder.job_id).where(*_DUE).limit(1))
    _SHOWN = Prepared(delete(ChatReminder).where(*_DUE))
    _REMIND = Prepared(insert(ChatReminder).on_conflict_do_nothing())

    def due(self, slug: str, job_id: str) -> bool:
        """Say whether the next call of this job reminds its agent."""
        return self._row(self._IS_DUE, of_agent=slug, for_job=job_id) is not None

    def shown(self, slug: str, job_id: str) -> None:
        """Note that a call of this job reminded its agent, and was answered."""
        self._change(self._SHOWN, of_agent=slug, for_job=job_id)

    def remind(self, slug: str, job_id: str) -> None:
        """Let the next call remind the agent."""
        self._change(self._REMIND, agent_id=slug, job_id=job_id)
