"""The operations on the memory of agents."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from maestro.domain.columns import LARGEST
from maestro.domain.memory.views import (
    LIMIT,
    MOST,
    FactChange,
    FactFilter,
    FactView,
    MemoryPage,
    NewFact,
    StateChange,
    StateView,
)
from maestro.domain.redaction import Redact
from maestro.operations.inputs import RowId
from maestro.store.store import Store

Scope = Annotated[str, Field(max_length=2_000)]


class MemoryQuery(FactFilter):
    """Which facts, and a page of them; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


class MemoryOperations:
    """The operations on the memory of the agent with a slug; ``redact`` is asked for at each use."""

    def __init__(self, store: Store, redact: Callable[[], Redact]) -> None:
        self._store = store
        self._redact = redact

    def show(self, slug: str, query: MemoryQuery) -> MemoryPage:
        """List the facts, the newest first or with ``q`` those that fit best, and the states by key."""
        with self._store.view() as tx:
            agent = tx.agents.named(slug)
            facts, following = tx.memory.page(agent, query, query.cursor, query.limit)
            states = tx.memory.list_states(agent, query.place)
            return MemoryPage(
                items=tuple(map(FactView.model_validate, facts)),
                states=tuple(map(StateView.model_validate, states)),
                next=str(following) if following is not None else None,
            )

    def clear(self, slug: str, actor: str) -> int:
        """Forget everything the agent knows, facts and states; return how many facts there were."""
        with self._store.begin() as tx:
            return tx.memory.clear(tx.agents.named(slug), actor)

    def add_fact(self, slug: str, new: NewFact, actor: str) -> FactView:
        """Tell the agent a fact, which is certain; 409 when it knows one that says the same."""
        new = new.without_secrets(self._redact())
        with self._store.begin() as tx:
            return FactView.model_validate(tx.memory.add(tx.agents.named(slug), new, actor))

    def change_fact(self, slug: str, number: RowId, change: FactChange, actor: str) -> FactView:
        """Change a fact; 409 when it would say the same as another one."""
        change = change.without_secrets(self._redact())
        with self._store.begin() as tx:
            return FactView.model_validate(tx.memory.change(tx.agents.named(slug), number, change, actor))

    def forget_fact(self, slug: str, number: RowId, actor: str) -> None:
        """Forget a fact."""
        with self._store.begin() as tx:
            tx.memory.forget(tx.agents.named(slug), number, actor)

    def put_state(self, slug: str, key: str, change: StateChange, actor: str) -> StateView:
        """Keep a value under a key, in the place of the one before; 409 when there are too many keys."""
        change = change.without_secrets(key, self._redact())
        with self._store.begin() as tx:
            return StateView.model_validate(tx.memory.put_state(tx.agents.named(slug), key, change, actor))

    def forget_state(self, slug: str, key: str, actor: str, place: Scope = "") -> None:
        """Forget a key."""
        with self._store.begin() as tx:
            tx.memory.drop_state(tx.agents.named(slug), key, place, actor)
