"""The agents that an agent may pass a task to, and no more of them than a prompt tells."""

from sqlalchemy import bindparam, func, or_, text
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.context.persona import Colleague
from maestro.domain.people.permissions import Person
from maestro.store.repository import Repository

MOST = 60
"""How many agents are told: a model that knows more names than that chooses no better."""


class Colleagues(Repository):
    """Who else works here."""

    _ON_LIST = func.instr(" " + col(Agent.allow_users) + " ", " " + bindparam("person") + " ") > 0
    _ACTIVE = (
        select(Agent.slug, Agent.name, Agent.description)
        # The status is written out, and not a parameter, so that an index of just these rows can be used.
        .where(text("agents.status = 'active'"), col(Agent.id) != bindparam("but"))
        .order_by(col(Agent.slug))
        .limit(MOST)
    )
    _OPEN_TO = _ACTIVE.where(or_(col(Agent.allow_users).is_(None), _ON_LIST))

    def of(self, agent_id: int | None, person: Person | None) -> tuple[Colleague, ...]:
        """Return the active agents beside this one that the person may talk to, by slug (decision 13).

        Without a person, as in a scheduled job, those that everybody may talk to.
        """
        if person is not None and person.is_owner:
            rows = self._run(self._ACTIVE, but=agent_id).all()
        else:
            rows = self._run(self._OPEN_TO, but=agent_id, person=str(person.id) if person is not None else "").all()
        return tuple(Colleague(*row) for row in rows)
