"""What agents remember."""

from collections.abc import Sequence
from itertools import chain

from sqlalchemy import ColumnElement, func
from sqlmodel import col, delete, select, update

from maestro.domain.facts import Fact, normalised
from maestro.domain.memory import (
    EXTRACTED_CONFIDENCE,
    MAX_STATES,
    FactCategory,
    MemoryFact,
    MemoryState,
    state_problem,
)
from maestro.store.repository import Repository

MOST_FACTS = 5000
"""How many facts of an agent a search looks through."""


class Memory(Repository):
    """The facts and states of all agents.

    A ``place`` is where an agent remembers something, see ``place_of``: who reads in one sees what holds everywhere
    too, who writes there is read nowhere else.
    """

    def learn(
        self,
        agent_id: int,
        facts: Sequence[Fact],
        *,
        conversation_id: int | None,
        place: str = "",
        confidence: float = EXTRACTED_CONFIDENCE,
    ) -> int:
        """Keep what the agent does not know yet, in the same words and category; return how many facts are new."""
        known = {
            (fact.category, normalised(fact.content))
            for fact in self._session.exec(select(MemoryFact).where(*_seen(agent_id, place)))
        }
        new = {(fact.category, normalised(fact.content)): fact for fact in facts}
        for key in new.keys() - known:
            self._session.add(
                MemoryFact(
                    agent_id=agent_id,
                    category=new[key].category,
                    content=new[key].content,
                    place=place,
                    confidence=confidence,
                    source_conversation_id=conversation_id,
                    created_at=self._now,
                )
            )
        self._session.flush()
        return len(new.keys() - known)

    def best(self, agent_id: int, others: int, place: str = "") -> Sequence[MemoryFact]:
        """Return every sticky fact and so many others: those we are surest of, then those told last."""
        of_agent = (
            select(MemoryFact)
            .where(*_seen(agent_id, place))
            .order_by(
                col(MemoryFact.confidence).desc(),
                func.coalesce(MemoryFact.last_accessed, MemoryFact.created_at).desc(),
                col(MemoryFact.id).desc(),
            )
        )
        sticky = of_agent.where(MemoryFact.category == FactCategory.STICKY)
        rest = of_agent.where(MemoryFact.category != FactCategory.STICKY).limit(others)
        return list(chain(self._session.exec(sticky), self._session.exec(rest)))

    def search(self, agent_id: int, query: str, limit: int, place: str = "") -> Sequence[MemoryFact]:
        """Return the facts that fit any text a person or a model may write, best first; the surest for no words."""
        wanted = select(MemoryFact).where(*_seen(agent_id, place))
        found = wanted.where(col(MemoryFact.content).icontains(query, autoescape=True))
        return self._session.exec(found.order_by(col(MemoryFact.id).desc()).limit(limit)).all()

    def known(self, agent_id: int) -> Sequence[MemoryFact]:
        """Return what an agent knows, the newest facts first, and no more than can be looked through at once."""
        of_agent = select(MemoryFact).where(MemoryFact.agent_id == agent_id)
        return self._session.exec(of_agent.order_by(col(MemoryFact.id).desc()).limit(MOST_FACTS)).all()

    def told(self, facts: Sequence[MemoryFact]) -> None:
        """Note that a model hears these facts now."""
        if facts:
            self._run(
                update(MemoryFact)
                .where(col(MemoryFact.id).in_([fact.id for fact in facts]))
                .values(last_accessed=self._now, access_count=col(MemoryFact.access_count) + 1)
            )

    def states(self, agent_id: int, place: str = "") -> Sequence[MemoryState]:
        """Return what is kept, by key; where a place has a value of its own, that one."""
        kept = self._session.exec(
            select(MemoryState)
            .where(MemoryState.agent_id == agent_id, col(MemoryState.place).in_({"", place}))
            .order_by(MemoryState.place)
        )
        newest = {state.key: state for state in kept}
        return [newest[key] for key in sorted(newest)]

    def set_state(self, agent_id: int, key: str, value: str, place: str = "") -> str:
        """Keep a value under a key, in the place of the one before; without a value the key is forgotten.

        Returns why it cannot be kept, in a sentence for who wanted it, and nothing when it is.
        """
        problem = state_problem(key, value)
        if problem or not value.strip():
            return problem or self._drop(agent_id, key, place)
        kept = self._session.exec(select(MemoryState).where(*_under(agent_id, place))).all()
        state = next((one for one in kept if one.key == key), None)
        if state is None and len(kept) >= MAX_STATES:
            return f"{MAX_STATES} keys are kept already; forget one first, with an empty value"
        state = state or MemoryState(agent_id=agent_id, place=place, key=key, value="", updated_at=self._now)
        state.value, state.updated_at = value, self._now
        self._session.add(state)
        self._session.flush()
        return ""

    def forget_state(self, agent_id: int, key: str, place: str = "") -> bool:
        """Forget a key in just this place; false when there was none."""
        found = delete(MemoryState).where(*_under(agent_id, place), col(MemoryState.key) == key)
        return self._session.exec(found).rowcount > 0

    def _drop(self, agent_id: int, key: str, place: str) -> str:
        self.forget_state(agent_id, key, place)
        return ""


def _seen(agent_id: int, place: str) -> tuple[ColumnElement[bool], ...]:
    return col(MemoryFact.agent_id) == agent_id, col(MemoryFact.place).in_({"", place})


def _under(agent_id: int, place: str) -> tuple[ColumnElement[bool], ...]:
    return col(MemoryState.agent_id) == agent_id, col(MemoryState.place) == place
