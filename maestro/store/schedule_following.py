"""How far Temporal has followed what is planned (ADR 17)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import col, select, update

from maestro.domain.agents.agent import Agent
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned
from maestro.store.repository import Repository

KINDS: tuple[type[Planned], ...] = (Heartbeat, Cron)


@dataclass(frozen=True)
class Followed:
    """What became of telling Temporal of a schedule: the digest of what it holds, or why it refused."""

    planned: Planned
    digest: str
    error: str = ""


class ScheduleFollowing(Repository):
    """What is told of what is planned, and what came of it."""

    def all(self) -> Sequence[tuple[Planned, Agent]]:
        """Return everything that is planned, and whose it is."""
        wanted = (select(kind, Agent).join(Agent, col(kind.agent_id) == col(Agent.id)) for kind in KINDS)
        return [(planned, agent) for one in wanted for planned, agent in self._session.exec(one)]

    def note(self, outcomes: Sequence[Followed]) -> None:
        """Note what Temporal holds now; of a row that was changed meanwhile it will be told again."""
        for one in outcomes:
            kind = type(one.planned)
            values = {"followed": one.digest, "follow_error": one.error}
            self._run(update(kind).where(col(kind.id) == one.planned.id).values(values))
