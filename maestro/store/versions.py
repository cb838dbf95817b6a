"""What agents were after each of their edits."""

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentVersion
from maestro.domain.agents.edits import AgentFields
from maestro.domain.agents.versions import fields_at
from maestro.domain.errors import NotFound
from maestro.store.repository import Repository


class AgentVersions(Repository):
    """The history of every agent."""

    def add(self, agent: Agent, snapshot: str, actor: str, reason: str = "") -> AgentVersion:
        """Keep what an agent is now, under the number it bears."""
        version = AgentVersion(
            agent_id=agent.id or 0,
            version=agent.version,
            at=self._now,
            actor=actor,
            reason=reason,
            snapshot=snapshot,
        )
        self._session.add(version)
        self._session.flush()
        return version

    def of(self, agent: Agent, before: int | None = None, limit: int | None = None) -> Sequence[AgentVersion]:
        """Return the versions of an agent, newest first; ``before`` leaves out that number and later ones."""
        wanted = select(AgentVersion).where(AgentVersion.agent_id == agent.id)
        if before is not None:
            wanted = wanted.where(AgentVersion.version < before)
        return self._session.exec(wanted.order_by(col(AgentVersion.version).desc()).limit(limit)).all()

    def pair(self, agent: Agent, number: int, against: int | None) -> tuple[AgentVersion, AgentVersion | None]:
        """Return a version and the one to compare it with: ``against``, or the one before; raises ``NotFound``."""
        version = self.get(agent, number)
        if against is not None:
            return version, self.get(agent, against)
        return version, next(iter(self.of(agent, before=number, limit=1)), None)

    def fields_then(self, agent: Agent, moment: datetime) -> AgentFields | None:
        """Return what people could edit of an agent at a moment, None where it was never edited."""
        mine = select(AgentVersion).where(AgentVersion.agent_id == agent.id).limit(1)
        earlier = mine.where(AgentVersion.at <= moment).order_by(col(AgentVersion.version).desc())
        found = (
            self._session.exec(earlier).first() or self._session.exec(mine.order_by(col(AgentVersion.version))).first()
        )
        return fields_at(found) if found is not None else None

    def get(self, agent: Agent, number: int) -> AgentVersion:
        """Return one version of an agent; raises ``NotFound``."""
        wanted = select(AgentVersion).where(AgentVersion.agent_id == agent.id, AgentVersion.version == number)
        # A number may be larger than the store has any.
        found = self._session.exec(wanted).first() if 1 <= number <= agent.version else None
        if found is None:
            raise NotFound(f"agent {agent.slug} has no version {number}; the newest is {agent.version}")
        return found
