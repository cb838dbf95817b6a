"""Edits of agents' memory by operators; each edit adds an audit entry without the edited content."""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, delete
from sqlmodel import col, func, not_, select

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.memory.likeness import search_terms
from maestro.domain.memory.memory import (
    CERTAIN,
    STATES,
    Fact,
    FactCategory,
    FactChange,
    FactFilter,
    MemoryFact,
    MemoryState,
    NewFact,
    StateChange,
)
from maestro.store.memory.memory import Memory, facts_with_words
from maestro.store.users.audit import Audit


class MemoryEdits(Memory):
    """Queries for the memory of agents, and edits of it by operators."""

    def list_facts(
        self, agent: Agent, fact_filter: FactFilter, after: int | None, limit: int
    ) -> tuple[Sequence[MemoryFact], int | None]:
        """Return up to ``limit`` facts of all memory scopes, and the id for the next page.

        Facts are sorted newest first. A search returns the best matches first, on one page.
        """
        words, conditions = search_terms(fact_filter.q or ""), tuple(_filter_conditions(fact_filter))
        if words:
            query = facts_with_words(words, agent.id or 0, sqlite=self._link.sqlite)
            return self._find_all(query.where(*conditions).limit(limit)), None
        facts = select(MemoryFact).where(MemoryFact.agent_id == agent.id, *conditions)
        if after is not None:
            facts = facts.where(col(MemoryFact.id) < after)
        rows = self._find_all(facts.order_by(col(MemoryFact.id).desc()).limit(limit + 1))
        return rows[:limit], rows[limit - 1].id if len(rows) > limit else None

    def list_states(self, agent: Agent, memory_scope: str | None) -> Sequence[MemoryState]:
        """Return the states of a memory scope with the global states, or without a scope the states of all scopes."""
        return (
            self.list_states_of_agent(agent.id or 0, STATES)
            if memory_scope is None
            else self.read_states(agent.id or 0, memory_scope)
        )

    def count_by_category(self, agent: Agent) -> Mapping[FactCategory, int]:
        """Return the number of an agent's facts by category."""
        of_agent = select(MemoryFact.category, func.count()).where(MemoryFact.agent_id == agent.id)
        rows = self._session.exec(of_agent.group_by(col(MemoryFact.category)))
        return {FactCategory(category): count for category, count in rows}

    def get_fact(self, agent: Agent, fact_id: int) -> MemoryFact:
        """Return a fact of this agent; raises ``NotFound``."""
        fact = self._session.get(MemoryFact, fact_id)
        if fact is None or fact.agent_id != agent.id:
            raise NotFound(f"{agent.slug} has no fact {fact_id}")
        return fact

    def get_fact_learned_in(self, conversation_id: int, fact_id: int) -> MemoryFact | None:
        """Return a fact if it was learned in this conversation, else None."""
        fact = self._session.get(MemoryFact, fact_id)
        return fact if fact is not None and fact.source_conversation_id == conversation_id else None

    def add_fact(self, agent: Agent, new: NewFact, actor: str) -> MemoryFact:
        """Add a fact from an operator; raises ``Conflict`` if the agent already has an equal fact."""
        self._refuse_repeat(agent.id or 0, new.fact, new.place)
        fact = self.save_fact(
            MemoryFact(
                agent_id=agent.id or 0,
                category=new.category,
                content=new.content,
                place=new.place,
                confidence=CERTAIN,
                created_at=self._now,
            )
        )
        self._add_audit_entry(actor, "memory.add", agent, f"fact {fact.id}")
        return fact

    def change_fact(self, agent: Agent, fact_id: int, change: FactChange, actor: str) -> MemoryFact:
        """Change a fact; raises ``NotFound``, and ``Conflict`` if the fact would equal another fact."""
        fact = self.get_fact(agent, fact_id)
        changed = Fact(change.category or fact.category, change.content or fact.content)
        if changed != (fact.category, fact.content):
            self._refuse_repeat(fact.agent_id, changed, fact.place, excluded_id=fact_id)
        fact.category, fact.content = changed
        fact.confidence = fact.confidence if change.confidence is None else change.confidence
        self._add_audit_entry(actor, "memory.change", agent, f"fact {fact_id}")
        return self.save_fact(fact)

    def delete_fact(self, agent: Agent, fact_id: int, actor: str) -> None:
        """Delete a fact; raises ``NotFound``."""
        self._delete_object(self.get_fact(agent, fact_id))
        self._add_audit_entry(actor, "memory.forget", agent, f"fact {fact_id}")

    def put_state(self, agent: Agent, key: str, change: StateChange, actor: str) -> MemoryState:
        """Set the value of a state's key; raises ``Conflict`` with the reason if the value is refused."""
        problem = self.set_state(agent.id or 0, key, change.value, change.place)
        state = self.find_state(agent.id or 0, key.strip(), change.place)
        if problem or state is None:
            raise Conflict(problem or "the value is empty; forget the key instead")
        self._add_audit_entry(actor, "memory.state.set", agent, f"state {state.id}")
        return state

    def delete_state_of_agent(self, agent: Agent, key: str, memory_scope: str, actor: str) -> None:
        """Delete a state's key in this memory scope only; raises ``NotFound``."""
        state = self.find_state(agent.id or 0, key, memory_scope)
        if state is None:
            raise NotFound(f"{agent.slug} has no state with this key")
        self.delete_state(agent.id or 0, key, memory_scope)
        self._add_audit_entry(actor, "memory.state.forget", agent, f"state {state.id}")

    def delete_all(self, agent: Agent, actor: str) -> int:
        """Delete all facts and states of an agent; return the number of deleted facts."""
        self._session.exec(delete(MemoryState).where(col(MemoryState.agent_id) == agent.id))
        count = self._session.exec(delete(MemoryFact).where(col(MemoryFact.agent_id) == agent.id)).rowcount
        self._add_audit_entry(actor, "memory.clear", agent, f"{count} facts")
        return count

    def _refuse_repeat(self, agent_id: int, fact: Fact, memory_scope: str, excluded_id: int | None = None) -> None:
        known = self.find_repeated(agent_id, fact, memory_scope, excluded_id)
        if known is not None:
            raise Conflict(f"fact {known.id} has the same content already; change that fact instead")

    def _add_audit_entry(self, actor: str, action: str, agent: Agent, detail: str) -> None:
        Audit(self._link, self._now).add_entry(actor, action, agent.slug, detail)


def _filter_conditions(chosen: FactFilter) -> Iterator[ColumnElement[bool]]:
    if chosen.category is not None:
        yield col(MemoryFact.category) == chosen.category
    if chosen.place is not None:
        yield col(MemoryFact.place).in_({"", chosen.place})
    if chosen.sticky is not None:
        is_sticky = col(MemoryFact.category) == FactCategory.STICKY
        yield is_sticky if chosen.sticky else not_(is_sticky)
    if chosen.source is not None:
        yield col(MemoryFact.source_conversation_id) == chosen.source
