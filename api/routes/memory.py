"""What an agent remembers: its facts and states, for operators to look at and to mend."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
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
    memory_page,
)

router = APIRouter(route_class=PasswordRoute, tags=["memory"], prefix="/api/agents/{slug}/memory")

Place = Annotated[str, Query(max_length=2_000)]


class MemoryQuery(FactFilter):
    """Which facts, and a page of them; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


@router.get("")
def show_memory(parts: Parts, slug: str, query: Annotated[MemoryQuery, Query()]) -> MemoryPage:
    """List the facts, the newest first or with ``q`` those that fit best, and the states by key."""
    with parts.store.view() as tx:
        agent = tx.agents.named(slug)
        facts, following = tx.memory_edits.page(agent, query, query.cursor, query.limit)
        return memory_page(facts, tx.memory_edits.kept(agent, query.place), following)


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
def clear_memory(parts: Parts, slug: str) -> None:
    """Forget everything the agent knows, facts and states."""
    with parts.store.begin() as tx:
        tx.memory_edits.clear(tx.agents.named(slug), OPERATOR)


@router.post("/facts", status_code=HTTPStatus.CREATED)
def add_fact(parts: Parts, slug: str, new: NewFact) -> FactView:
    """Tell the agent a fact, which is certain; 409 when it knows one that says the same."""
    new = new.without_secrets(parts.redact())
    with parts.store.begin() as tx:
        return FactView.model_validate(tx.memory_edits.add(tx.agents.named(slug), new, OPERATOR))


@router.patch("/facts/{number}")
def change_fact(parts: Parts, slug: str, number: Number, change: FactChange) -> FactView:
    """Change a fact; 409 when it would say the same as another one."""
    change = change.without_secrets(parts.redact())
    with parts.store.begin() as tx:
        return FactView.model_validate(tx.memory_edits.change(tx.agents.named(slug), number, change, OPERATOR))


@router.delete("/facts/{number}", status_code=HTTPStatus.NO_CONTENT)
def forget_fact(parts: Parts, slug: str, number: Number) -> None:
    """Forget a fact."""
    with parts.store.begin() as tx:
        tx.memory_edits.forget(tx.agents.named(slug), number, OPERATOR)


@router.put("/state/{key:path}")
def put_state(parts: Parts, slug: str, key: str, change: StateChange) -> StateView:
    """Keep a value under a key, in the place of the one before; 409 when there are too many keys."""
    change = change.without_secrets(key, parts.redact())
    with parts.store.begin() as tx:
        return StateView.model_validate(tx.memory_edits.put_state(tx.agents.named(slug), key, change, OPERATOR))


@router.delete("/state/{key:path}", status_code=HTTPStatus.NO_CONTENT)
def forget_state(parts: Parts, slug: str, key: str, place: Place = "") -> None:
    """Forget a key."""
    with parts.store.begin() as tx:
        tx.memory_edits.drop_state(tx.agents.named(slug), key, place, OPERATOR)
