"""What a conductor may be asked to do, and by whom (specification 003, 11; decisions 3 and 7)."""

from dataclasses import dataclass

from maestro.domain.actions import ActionState
from maestro.domain.agents import CONDUCTOR, Agent
from maestro.domain.messages import Address


@dataclass(frozen=True)
class Requester:
    """On whose word an answer acts: the answering agent, and the person (``platform:userId``) who asked it.

    ``person`` is empty where nobody did: a schedule has no requester. ``allowed`` says that the settings name the
    person, ``address`` is where they asked.
    """

    agent: Agent
    person: str
    is_owner: bool
    allowed: bool
    address: Address
    job_id: str

    @property
    def may_conduct(self) -> bool:
        """Say whether a conductor's tags are acted on: the agent is one, and an owner or an allowed person asked."""
        return self.agent.role == CONDUCTOR and bool(self.person) and (self.is_owner or self.allowed)


@dataclass(frozen=True)
class Performed:
    """What came of one tag: ``detail`` is the sentence that people are told, ``subject`` what it was about."""

    state: ActionState
    detail: str
    subject: str = ""
