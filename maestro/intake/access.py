"""An incoming message: its sender, the agent that would answer, and the jobs created for the message."""

from collections.abc import Callable
from dataclasses import dataclass

from ulid import ULID

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.agents.routing import Route, choose_route
from maestro.domain.jobs.job import Job, JobEnding, JobKind, JobStatus, new_notice_job
from maestro.domain.messages import FloodState, IncomingMessage, LaneKey, lane_key
from maestro.domain.people.people import AccessRules, DmPolicy, Person, PersonId, access_refusal, is_unknown
from maestro.domain.precedence import message_priority
from maestro.domain.questions.question import Speaker
from maestro.domain.settings.jobs import RoutingSettings
from maestro.store.conversations.inbox import IntakeState
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class ReceivedMessage:
    """An incoming message with its sender, and the stored rows that decide how it is handled.

    ``refusing_policy`` is the access policy that refuses the sender, None if the sender has access.
    """

    message: IncomingMessage
    state: IntakeState
    person: Person
    refusing_policy: DmPolicy | None = None

    @property
    def binding(self) -> AgentChannel | None:
        """The binding of the message's channel to an agent, None without one."""
        return self.state.binding

    @property
    def sole_sender(self) -> str | None:
        """The id of the sender if each user of the channel has a separate conversation; else None."""
        return self.message.user_id if self.binding is not None and self.binding.key_by_user else None

    @property
    def inbound_lane(self) -> LaneKey:
        """The lane (queue of jobs) in which the message waits."""
        return lane_key(self.message.address, self.sole_sender)

    @property
    def sender_key(self) -> Speaker:
        """The sender, in the form that is recorded with the answer to a question."""
        return Speaker(self.person.id, self.person.is_owner)


def message_sender(message: IncomingMessage) -> PersonId:
    """Return the platform and user id of a message's sender."""
    return PersonId(message.address.platform, message.user_id)


def new_job_id() -> str:
    """Return a new id for the job of a message."""
    return f"{JobKind.MESSAGE}-{ULID()}"


def new_job(tx: Transaction, received: ReceivedMessage, *, waits: bool = False) -> Job:
    """Return a new job for the message; with ``waits``, the job gets a position in the message's lane."""
    return Job(
        id=new_job_id(),
        priority=message_priority(from_owner=received.person.is_owner),
        lane=received.inbound_lane if waits else None,
        created_at=tx.now,
        **received.message.address.model_dump(),
    )


def store_dropped(
    tx: Transaction,
    received: ReceivedMessage,
    reason: str,
    *,
    waits: bool = False,
    flood_state: FloodState = FloodState.WITHIN,
) -> Job:
    """Store a message with a dropped job and its reason; with ``waits``, a restarted job waits in its lane."""
    job = new_job(tx, received, waits=waits)
    job.inbox_id = tx.inbox.add(received.message, job.id, flood_state=flood_state).id
    tx.jobs.add(job)
    tx.jobs.close_job(job.id, JobEnding(status=JobStatus.DROPPED, reason=reason))
    return job


def add_notice(tx: Transaction, job: Job, text: str) -> None:
    """Add a job that sends a text written by Maestro itself to the user of another job."""
    tx.jobs.add(new_notice_job(job, new_job_id(), text, tx.now))


@dataclass(frozen=True)
class AccessControl:
    """Decides about routing and access from the current rows of the store (docs/decisions.md: routing, access)."""

    access: AccessRules
    routing: RoutingSettings

    def build_person_with_access(
        self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None
    ) -> Person:
        """Return the sender of a message with the access that the store grants now."""
        person_id = message_sender(message)
        return self.build_person(
            message, binding, lambda: tx.users.owners.is_owner(person_id), lambda: tx.users.pairings.is_known(person_id)
        )

    def build_person(
        self,
        message: IncomingMessage,
        binding: AgentChannel | None,
        is_listed: Callable[[], bool],
        is_paired: Callable[[], bool],
    ) -> Person:
        """Return the sender of a message; ``known`` is also true where unknown users are answered.

        ``is_listed`` (as an owner) and ``is_paired`` describe the time before this message: new rights count from the
        next message on.
        """
        person_id = message_sender(message)
        is_owner = message.is_owner or str(person_id) in self.access.owners or is_listed()
        bound = binding is not None and binding.permission is Permission.FULL
        exempt = is_owner or bound or not message.is_direct
        policy = self.access.policy(person_id.platform)
        return Person(person_id, is_owner, known=exempt or policy is DmPolicy.OPEN or is_paired())

    def choose_route(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> Route:
        """Return the agent that answers a message, and the routing rule that chose the agent."""
        return choose_route(message, tx.agents.routing.read_snapshot(message, binding, self.routing))

    def find_refusing_policy(
        self, person: Person, agent: Agent | None, message: IncomingMessage, binding: AgentChannel | None
    ) -> DmPolicy | None:
        """Return the policy that refuses a direct message of an unknown user, or None."""
        policy = self.access.policy(message.address.platform)
        strange = message.is_direct and policy is not DmPolicy.OPEN and is_unknown(person, agent, binding)
        return policy if strange else None

    def choose_agent(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> Agent | None:
        """Return the agent that answers a message; None if no agent does."""
        agent = self.choose_route(tx, message, binding).agent
        return tx.agents.read(agent.id) if agent is not None else None

    def find_refusal(
        self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None, person: Person
    ) -> str | None:
        """Return why a user's commands are refused in a channel, or None; without an agent, the binding decides."""
        if person.is_owner:
            return None
        return access_refusal(person, self.choose_agent(tx, message, binding), binding)
