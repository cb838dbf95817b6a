"""What prompts share from message to message, kept: making it takes longer than using it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from maestro.domain.agents.agent import Agent
from maestro.domain.context.persona import Persona, persona
from maestro.domain.context.staff import Staff
from maestro.domain.skills.skill import Repertoire
from maestro.store.transaction import Transaction

Key = TypeVar("Key")
Made = TypeVar("Made")

MOST = 1_000
"""Things on one shelf."""


class Shelf(Generic[Key, Made]):
    """Keeps, by key, what was made of rows, for as long as their edition is the same; when it is full it is emptied.

    The database draws a new edition in the transaction that changes the rows, in whatever process. Who reads an edition
    and then the rows, in one transaction, reads what belongs together: so what was made under an edition is what would
    be made now.

    Threads may share a shelf. An edition and its things are one value, which is only ever replaced as a whole: what a
    slow thread still makes of an older edition is put beside things of that edition, or nowhere.
    """

    def __init__(self) -> None:
        self._kept: tuple[int | None, dict[Key, Made]] = (None, {})

    def get(self, edition: int | None, key: Key, make: Callable[[], Made]) -> Made:
        """Return the thing under this key, made now if there is none of this edition."""
        kept, things = self._kept
        if key in things and kept == edition:
            return things[key]
        if kept != edition or len(things) >= MOST:
            things = {}
            self._kept = (edition, things)
        made = things[key] = make()
        return made


class Nature(NamedTuple):
    """What decides how an agent is told who it is, beside its own row.

    ``circle`` is whom it may pass a task to (``Staff``), None for nobody; ``budget`` is that of the prompt.
    """

    tools: frozenset[str]
    circle: str | None
    budget: int


@dataclass(frozen=True)
class Shelves:
    """What the steps of a process keep."""

    agents: Shelf[int, Agent] = field(default_factory=Shelf)
    personas: Shelf[tuple[int | None, Nature], Persona] = field(default_factory=Shelf)
    staff: Shelf[None, Staff] = field(default_factory=Shelf)
    repertoire: Shelf[None, Repertoire] = field(default_factory=Shelf)
    default_model: Shelf[None, str] = field(default_factory=Shelf)


class Kept:
    """What is on the shelves, as it is in one transaction, which changes none of the rows it is made of."""

    def __init__(self, shelves: Shelves, tx: Transaction) -> None:
        self._shelves = shelves
        self._tx = tx
        self._editions = tx.editions.now()

    def agent(self, agent_id: int | None) -> Agent:
        """Return an agent that must exist, as a value."""
        return self._shelves.agents.get(self._editions.agents, agent_id or 0, lambda: self._tx.agents.read(agent_id))

    def staff(self) -> Staff:
        """Return the active agents."""
        return self._shelves.staff.get(self._editions.agents, None, self._tx.colleagues.staff)

    def persona(self, agent: Agent, nature: Nature) -> Persona:
        """Return who an agent is, for its model."""

        def make() -> Persona:
            agent_id, circle = agent.id or 0, nature.circle
            colleagues = self.staff().colleagues(agent_id, circle) if circle is not None else ()
            return persona(agent, nature.tools, colleagues, nature.budget)

        return self._shelves.personas.get(self._editions.agents, (agent.id, nature), make)

    def repertoire(self) -> Repertoire:
        """Return the skills that messages may be given."""
        return self._shelves.repertoire.get(self._editions.skills, None, lambda: Repertoire(self._tx.skills.enabled()))

    def default_model(self) -> str:
        """Return the model of the account that is asked first."""
        return self._shelves.default_model.get(self._editions.accounts, None, self._tx.accounts.default_model)
