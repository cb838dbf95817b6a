"""The operations on the memory of agents: facts and states."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from maestro.domain.columns import LARGEST
from maestro.domain.memory.memory import FactChange, FactFilter, FactView, MemoryPage, NewFact, StateChange, StateView
from maestro.domain.redaction import Redact
from maestro.operations.inputs import RowId
from maestro.store.store import Store

Scope = Annotated[str, Field(max_length=2_000)]


class MemoryQuery(FactFilter):
    """A filter of facts and the page of its result to return; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=100, ge=1, le=1000)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


class MemoryOperations:
    """The operations on the memory of one agent; ``redact`` returns the function that removes secrets at present."""

    def __init__(self, store: Store, redact: Callable[[], Redact]) -> None:
        self._store = store
        self._redact = redact

    def show(self, slug: str, query: MemoryQuery) -> MemoryPage:
        """List an agent's facts, newest first or, with ``q``, best match first, and the agent's states by key."""
        with self._store.view() as tx:
            agent = tx.agents.get_agent_by_slug(slug)
            facts, following = tx.memory.list_facts(agent, query, query.cursor, query.limit)
            states = tx.memory.list_states(agent, query.place)
            return MemoryPage(
                items=tuple(map(FactView.model_validate, facts)),
                states=tuple(map(StateView.model_validate, states)),
                next=str(following) if following is not None else None,
            )

    def clear(self, slug: str, actor: str) -> int:
        """Delete all facts and states of an agent, and return the number of deleted facts."""
        with self._store.begin() as tx:
            return tx.memory.delete_all(tx.agents.get_agent_by_slug(slug), actor)

    def add_fact(self, slug: str, new: NewFact, actor: str) -> FactView:
        """Add a fact to an agent's memory with full confidence; 409 when a fact has the same content."""
        new = new.redact_secrets(self._redact())
        with self._store.begin() as tx:
            return FactView.model_validate(tx.memory.add_fact(tx.agents.get_agent_by_slug(slug), new, actor))

    def change_fact(self, slug: str, number: RowId, change: FactChange, actor: str) -> FactView:
        """Change a fact of an agent; 409 when another fact of the agent has the same content."""
        change = change.redact_secrets(self._redact())
        with self._store.begin() as tx:
            return FactView.model_validate(
                tx.memory.change_fact(tx.agents.get_agent_by_slug(slug), number, change, actor)
            )

    def forget_fact(self, slug: str, number: RowId, actor: str) -> None:
        """Delete a fact of an agent."""
        with self._store.begin() as tx:
            tx.memory.delete_fact(tx.agents.get_agent_by_slug(slug), number, actor)

    def put_state(self, slug: str, key: str, change: StateChange, actor: str) -> StateView:
        """Store a value under a key in an agent's memory, or replace it; 409 when the agent has too many keys."""
        change = change.redact_secrets(key, self._redact())
        with self._store.begin() as tx:
            return StateView.model_validate(tx.memory.put_state(tx.agents.get_agent_by_slug(slug), key, change, actor))

    def forget_state(self, slug: str, key: str, actor: str, place: Scope = "") -> None:
        """Delete the value under a key in an agent's memory; ``place`` is the memory scope of the value."""
        with self._store.begin() as tx:
            tx.memory.delete_state_of_agent(tx.agents.get_agent_by_slug(slug), key, place, actor)
