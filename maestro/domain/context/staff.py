"""Who works here, and whom an agent may pass a task to for a person (docs/decisions.md: delegation)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from maestro.domain.context.persona import Colleague
from maestro.domain.people.permissions import Person

MOST = 60
"""How many agents are told: a model that knows more names than that chooses no better."""

EVERYBODY = "*"
"""The circle of an owner."""
PUBLIC = ""
"""The circle of who is on no agent's list, and of nobody, as in a scheduled job."""


@dataclass(frozen=True)
class Member:
    """An active agent; ``people`` are those who may talk to it, as ``platform:userId``, None for all."""

    agent_id: int
    colleague: Colleague
    people: frozenset[str] | None


@dataclass(frozen=True)
class Staff:
    """The active agents by slug.

    A *circle* stands for all people who may talk to the same agents: an owner's, the public one, or one person's who is
    on a list. There are as many as there are people on lists, and not as many as there are people.
    """

    members: Sequence[Member]

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset().union(*(member.people for member in self.members if member.people is not None))

    def circle(self, person: Person | None) -> str:
        """Return the circle of a person."""
        if person is None:
            return PUBLIC
        if person.is_owner:
            return EVERYBODY
        return str(person.id) if str(person.id) in self._listed else PUBLIC

    def colleagues(self, agent_id: int, circle: str) -> tuple[Colleague, ...]:
        """Return the agents beside this one that a circle may talk to, and no more of them than a prompt tells."""
        open_ones = (
            member.colleague
            for member in self.members
            if member.agent_id != agent_id and (member.people is None or circle == EVERYBODY or circle in member.people)
        )
        return tuple(islice(open_ones, MOST))
