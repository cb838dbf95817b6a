"""What agents keep under keys."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, bindparam, tuple_
from sqlmodel import col, delete, select

from maestro.domain.memory.memory import MAX_STATES, MemoryState, state_problem
from maestro.domain.texts import storable
from maestro.store.editions import kept_while
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository


class States(Repository):
    """The states of all agents; a place sees its own values and, where it has none, those that hold everywhere."""

    _SEEN = Prepared(
        select(MemoryState)
        .where(MemoryState.agent_id == bindparam("of_agent"), one_of(col(MemoryState.place), ("", bindparam("at"))))
        .order_by(MemoryState.place)
    )

    @kept_while("memory_state")
    def states(self, agent_id: int, place: str = "") -> Sequence[MemoryState]:
        """Return what is kept, as values, by key; where a place has a value of its own, that one."""
        kept = self._read_all(self._SEEN, MemoryState, of_agent=agent_id, at=place)
        seen = {state.key: state for state in kept}
        return [seen[key] for key in sorted(seen)]

    def all_states(self, agent_id: int, limit: int, after: int | None = None) -> Sequence[MemoryState]:
        """Return what is kept in every place, by key and place; ``after`` is the id of the state before, if any."""
        kept = select(MemoryState).where(MemoryState.agent_id == agent_id)
        last = self._session.get(MemoryState, after) if after is not None else None
        if last is not None:
            kept = kept.where(tuple_(MemoryState.key, MemoryState.place) > (last.key, last.place))
        return self._session.exec(kept.order_by(MemoryState.key, MemoryState.place).limit(limit)).all()

    def state(self, agent_id: int, key: str, place: str = "") -> MemoryState | None:
        """Return what is kept under a key in just this place."""
        return self._session.exec(
            select(MemoryState).where(*_under(agent_id, place), MemoryState.key == key)
        ).one_or_none()

    def set_state(self, agent_id: int, key: str, value: str, place: str = "") -> str:
        """Keep a value under a key, in the place of the one before; without a value the key is forgotten.

        Returns why it cannot be kept, in a sentence for who wanted it, and nothing when it is.
        """
        key, value = storable(key.strip()), storable(value.strip())
        problem = state_problem(key, value)
        if problem:
            return problem
        state = self.state(agent_id, key, place)
        if not value:
            self.forget_state(agent_id, key, place)
            return ""
        if state is None and self._count(agent_id, place) >= MAX_STATES:
            return f"{MAX_STATES} keys are kept already; forget one first"
        state = state or MemoryState(agent_id=agent_id, place=place, key=key, value="", updated_at=self._now)
        state.value, state.updated_at = value, self._now
        self._session.add(state)
        self._session.flush()
        return ""

    def forget_state(self, agent_id: int, key: str, place: str = "") -> bool:
        """Forget a key in just this place; false when there was none."""
        found = delete(MemoryState).where(*_under(agent_id, place), col(MemoryState.key) == key)
        return self._session.exec(found).rowcount > 0

    def forget_states(self, agent_id: int) -> None:
        """Forget every key of an agent."""
        self._session.exec(delete(MemoryState).where(col(MemoryState.agent_id) == agent_id))

    def _count(self, agent_id: int, place: str) -> int:
        return len(self._session.exec(select(MemoryState.id).where(*_under(agent_id, place))).all())


def _under(agent_id: int, place: str) -> tuple[ColumnElement[bool], ...]:
    return col(MemoryState.agent_id) == agent_id, col(MemoryState.place) == place
