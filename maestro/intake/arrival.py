"""A message at the door, and the jobs that are made of it."""

from dataclasses import dataclass

from ulid import ULID

from maestro.domain.agents.agent import AgentChannel
from maestro.domain.inbox import Pace
from maestro.domain.jobs.job import Ending, Job, JobKind, JobStatus, notice_of
from maestro.domain.jobs.lanes import lane_of
from maestro.domain.messages import IncomingMessage, LaneKey
from maestro.domain.people.owners import PersonId
from maestro.domain.people.permissions import DmPolicy, Person
from maestro.domain.precedence import priority_of
from maestro.domain.questions.question import Speaker
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class Arrival:
    """A message, the binding of its channel, and who sent it; ``turned_away`` is the policy that keeps them out."""

    message: IncomingMessage
    binding: AgentChannel | None
    person: Person
    turned_away: DmPolicy | None = None

    @property
    def alone(self) -> str | None:
        """The user whose conversation alone is meant, None where everybody in the channel shares one."""
        return self.message.user_id if self.binding is not None and self.binding.key_by_user else None

    @property
    def lane(self) -> LaneKey:
        """Where the message waits."""
        return lane_of(self.message.address, self.alone)

    @property
    def speaker(self) -> Speaker:
        """Who sent it, as somebody who may answer a question."""
        return Speaker(self.person.id, self.person.is_owner)


def person_of(message: IncomingMessage) -> PersonId:
    """Return who sent a message."""
    return PersonId(message.address.platform, message.user_id)


def job_of(tx: Transaction, arrival: Arrival, *, waits: bool = False) -> Job:
    """Return a new job for the message; one that ``waits`` has a place in the lane."""
    return Job(
        id=f"{JobKind.MESSAGE}-{ULID()}",
        priority=priority_of(owner=arrival.person.is_owner),
        lane=arrival.lane if waits else None,
        created_at=tx.now,
        **arrival.message.address.model_dump(),
    )


def dropped(tx: Transaction, arrival: Arrival, reason: str, *, waits: bool = False, pace: Pace = Pace.WITHIN) -> Job:
    """Keep a message and drop it, so that operators see why; one that would have waited can be restarted by them."""
    job = job_of(tx, arrival, waits=waits)
    job.inbox_id = tx.inbox.add(arrival.message, job.id, pace=pace).id
    tx.jobs.add(job)
    tx.close_job(job.id, Ending(status=JobStatus.DROPPED, reason=reason))
    return job


def tell(tx: Transaction, job: Job, text: str) -> None:
    """Have the person of a job told something that Maestro itself has to say."""
    tx.jobs.add(notice_of(job, f"{JobKind.MESSAGE}-{ULID()}", text, tx.now))
