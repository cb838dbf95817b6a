"""What agents remember."""

from collections.abc import Sequence
from itertools import chain

from sqlalchemy import func
from sqlmodel import col, select, update

from maestro.domain.facts import Fact, normalised
from maestro.domain.memory import FactCategory, MemoryFact
from maestro.store.repository import Repository

EXTRACTED_CONFIDENCE = 0.8
"""How sure we are of what a model read out of a conversation."""

MOST_FACTS = 5000
"""How many facts of an agent a search looks through."""


class Memory(Repository):
    """The facts of all agents."""

    def learn(self, agent_id: int, facts: Sequence[Fact], conversation_id: int) -> int:
        """Keep what the agent does not know yet, in the same words and category; return how many facts are new."""
        known = {
            (fact.category, normalised(fact.content))
            for fact in self._session.exec(select(MemoryFact).where(MemoryFact.agent_id == agent_id))
        }
        new = {(fact.category, normalised(fact.content)): fact for fact in facts}
        for key in new.keys() - known:
            self._session.add(
                MemoryFact(
                    agent_id=agent_id,
                    category=new[key].category,
                    content=new[key].content,
                    confidence=EXTRACTED_CONFIDENCE,
                    source_conversation_id=conversation_id,
                    created_at=self._now,
                )
            )
        self._session.flush()
        return len(new.keys() - known)

    def best(self, agent_id: int, others: int) -> Sequence[MemoryFact]:
        """Return every sticky fact and so many others: those we are surest of, then those told last."""
        of_agent = (
            select(MemoryFact)
            .where(MemoryFact.agent_id == agent_id)
            .order_by(
                col(MemoryFact.confidence).desc(),
                func.coalesce(MemoryFact.last_accessed, MemoryFact.created_at).desc(),
                col(MemoryFact.id).desc(),
            )
        )
        sticky = of_agent.where(MemoryFact.category == FactCategory.STICKY)
        rest = of_agent.where(MemoryFact.category != FactCategory.STICKY).limit(others)
        return list(chain(self._session.exec(sticky), self._session.exec(rest)))

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
