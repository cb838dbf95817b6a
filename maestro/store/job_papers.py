"""What was said around one job, read for its page."""

from sqlmodel import col, select

from maestro.domain.context.layers import LAYER_SIZES, LayerSize
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.llm.calls import Prompt
from maestro.domain.messages import InboxRow
from maestro.domain.papers import Answered, Papers
from maestro.store.repository import Repository


class JobPapers(Repository):
    """Reads only."""

    def of(self, job: Job) -> Papers:
        """Return what was said around a job."""
        return Papers(
            message=self._session.get(InboxRow, job.inbox_id) if job.inbox_id is not None else None,
            answer=self.answer(job),
            layers=self._layers(job.id),
            ahead=self._ahead(job),
        )

    def answer(self, job: Job) -> Answered | None:
        """Return what a job answered, None where it did not, or where that was deleted."""
        if job.answer_id is None:
            return Answered(job.said) if job.said else None
        said = self._session.get(Message, job.answer_id) or self._session.get(ArchivedMessage, job.answer_id)
        return Answered(said.content, said.created_at, said.superseded) if said is not None else None

    def _layers(self, job_id: str) -> tuple[LayerSize, ...]:
        kept = self._session.exec(select(Prompt.layers).where(Prompt.job_id == job_id)).first()
        return LAYER_SIZES.validate_json(kept) if kept else ()

    def _ahead(self, job: Job) -> str:
        if job.status is not JobStatus.PENDING or job.lane is None or job.turn is None:
            return ""
        # One that waits for a person or an account has given its place back.
        places = (JobStatus.PENDING, JobStatus.RUNNING)
        earlier = select(Job.id).where(Job.lane == job.lane, col(Job.turn) < job.turn, col(Job.status).in_(places))
        return self._session.exec(earlier.order_by(col(Job.turn).desc()).limit(1)).first() or ""
