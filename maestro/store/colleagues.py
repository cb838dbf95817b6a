"""The agents that may be passed a task."""

from sqlalchemy import select, text
from sqlmodel import col

from maestro.domain.agents.agent import Agent
from maestro.domain.context.layers import Colleague, Member, Staff
from maestro.store.editions import kept_while
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Colleagues(Repository):
    """Who works here."""

    _ACTIVE = Prepared(
        select(*(getattr(Agent, name) for name in ("id", "slug", "name", "description", "allow_users")))
        # The status is written out, and not a parameter, so that an index of just these rows can be used.
        .where(text("agents.status = 'active'"))
        .order_by(col(Agent.slug))
    )

    @kept_while("agents")
    def staff(self) -> Staff:
        """Return the active agents."""
        return Staff(
            [
                Member(agent_id, Colleague(*told), frozenset(people.split()) if people is not None else None)
                for agent_id, *told, people in self._rows(self._ACTIVE)
            ]
        )
