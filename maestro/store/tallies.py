"""How many jobs there are of each kind: by status, and of failures by what went wrong."""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import String, func, type_coerce
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.failures import FailedJob, Failures
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Job, JobStatus
from maestro.store.job_filters import conditions, failed_step
from maestro.store.repository import Repository
from maestro.store.walking import walked


class Tallies(Repository):
    """Reads only."""

    def statuses(self, wanted: JobFilter) -> Mapping[JobStatus, int]:
        """Count the jobs of each status; that of the filter does not matter, so that one look tells every number."""
        others = wanted.model_copy(update={"status": ()})
        status = walked(Job.status)
        found = select(status, func.count()).where(*conditions(others, sifted=True)).group_by(status)
        return dict(self._run(found).all())

    def failures(self, wanted: JobFilter) -> Sequence[Failures]:
        """Return the failed jobs of a filter, or those of its statuses if it has some, by all that tells them apart."""
        chosen = wanted if wanted.status else wanted.model_copy(update={"status": (JobStatus.FAILED,)})
        each = (
            select(Job.id, Job.error, Job.reason, Job.agent_id)
            # As it is stored: of thousands of moments, two are told of each kind.
            .add_columns(
                type_coerce(Job.completed_at, String).label("completed_at"),
                func.coalesce(failed_step(), "").label("step"),
            )
            .where(*conditions(chosen), col(Job.completed_at).is_not(None))
            .subquery()
        )
        kind = (each.c.error, each.c.step, each.c.reason, each.c.agent_id)
        found = (
            select(each.c.error, each.c.step, each.c.reason, Agent.slug)
            .add_columns(func.count(), func.min(each.c.completed_at), func.max(each.c.completed_at))
            .add_columns(func.max(each.c.id))
            .outerjoin_from(each, Agent, col(Agent.id) == each.c.agent_id)
            .group_by(*kind)
        )
        return [Failures(*row) for row in self._run(found).all()]

    def failed(self, wanted: JobFilter) -> Iterator[FailedJob]:
        """Yield the jobs of a filter for failed ones, newest first."""
        found = select(Job.id, Job.reason, Job.created_at).where(*conditions(wanted, sifted=True))
        yield from (
            FailedJob(*row) for row in self._run(found.order_by(col(Job.created_at).desc(), col(Job.id).desc()))
        )
