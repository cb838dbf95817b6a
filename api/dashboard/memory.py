"""The page of an agent's memory: search, correct and delete its facts and states with plain forms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.pages import lead_back, render
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Parts, parts_of
from maestro.domain.agents.agent import Agent
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read
from maestro.domain.memory.memory import FactCategory
from maestro.domain.memory.views import FactChange, FactFilter, NewFact, StateChange
from maestro.operations.memory import MemoryQuery
from maestro.store.transaction import Transaction

PAGE = "/memory"
TITLE = "Memory – Maestro"
SHOWN = 15
MOST_STICKY = 5
MOST_KEPT = 10
MOST_DIGITS = 18
FILTERS = ("q", "category", "source")
DONE = {
    "added": "The agent knows it from the next message on.",
    "changed": "The fact is changed.",
    "forgotten": "It is forgotten.",
    "kept": "The value is kept.",
    "cleared": "The agent has forgotten everything.",
}
"""What was done, by the word that stands in the address: no text of an address is shown."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

RowId = Annotated[int, Form(ge=1, le=LARGEST)]
Slug = Annotated[str, Form()]


class MemoryForm(BaseModel):
    """The form of the memory page; ``number`` is that of the fact to change, empty for a new one."""

    number: str = ""
    content: str = ""
    category: str = FactCategory.USER_PREFERENCE
    confidence: str = ""
    key: str = ""
    value: str = ""
    place: str = ""

    def fact(self) -> NewFact:
        """Return the fact to add."""
        return read(NewFact, {"content": self.content, "category": self.category, "place": self.place})

    def change(self) -> FactChange:
        """Return the changes of a fact; empty fields stay."""
        given = {"content": self.content.strip(), "category": self.category, "confidence": self.confidence.strip()}
        return read(FactChange, {name: text for name, text in given.items() if text})

    def state(self) -> StateChange:
        """Return the value to store under the key."""
        return read(StateChange, {"value": self.value.strip(), "place": self.place})


@dataclass(frozen=True)
class _MemoryPageState:
    """The entered text of the forms and the result of the one that was sent."""

    typed: MemoryForm = field(default_factory=MemoryForm)
    problem: MaestroError | None = None
    done: str = ""


@router.get("")
def show(request: Request, agent: str = "", done: str = "") -> HTMLResponse:
    """Show what an agent remembers; the first agent without a choice."""
    return _page(request, agent, _MemoryPageState(done=done))


@router.post("/facts")
def add(request: Request, parts: Parts, agent: Slug, typed: Annotated[MemoryForm, Form()]) -> Response:
    """Add a fact; a duplicate is refused, with the existing fact named."""
    shown = _MemoryPageState(typed, done="added")
    return _done(request, agent, lambda: parts.memory.add_fact(agent, typed.fact(), OPERATOR), shown)


@router.post("/facts/change")
def change(request: Request, agent: Slug, number: RowId, typed: Annotated[MemoryForm, Form()]) -> Response:
    """Change a fact."""
    memory = parts_of(request).memory
    return _done(
        request,
        agent,
        lambda: memory.change_fact(agent, number, typed.change(), OPERATOR),
        _MemoryPageState(typed, done="changed"),
    )


@router.post("/facts/stick")
def stick(request: Request, parts: Parts, agent: Slug, number: RowId) -> Response:
    """Make a fact part of every prompt."""
    sticky = FactChange(category=FactCategory.STICKY)
    shown = _MemoryPageState(done="changed")
    return _done(request, agent, lambda: parts.memory.change_fact(agent, number, sticky, OPERATOR), shown)


@router.post("/facts/forget")
def forget(request: Request, parts: Parts, agent: Slug, number: RowId) -> Response:
    """Delete a fact."""
    shown = _MemoryPageState(done="forgotten")
    return _done(request, agent, lambda: parts.memory.forget_fact(agent, number, OPERATOR), shown)


@router.post("/states")
def keep(request: Request, parts: Parts, agent: Slug, typed: Annotated[MemoryForm, Form()]) -> Response:
    """Store a value under a key, in place of the old one."""
    return _done(
        request,
        agent,
        lambda: parts.memory.put_state(agent, typed.key.strip(), typed.state(), OPERATOR),
        _MemoryPageState(typed, done="kept"),
    )


@router.post("/states/forget")
def forget_state(
    request: Request, agent: Slug, key: Annotated[str, Form()], place: Annotated[str, Form()] = ""
) -> Response:
    """Delete a key in just its scope."""
    memory = parts_of(request).memory
    shown = _MemoryPageState(done="forgotten")
    return _done(request, agent, lambda: memory.forget_state(agent, key, OPERATOR, place), shown)


@router.post("/clear")
def clear(request: Request, parts: Parts, agent: Slug) -> Response:
    """Delete all facts and states of an agent."""
    return _done(request, agent, lambda: parts.memory.clear(agent, OPERATOR), _MemoryPageState(done="cleared"))


def _done(request: Request, slug: str, operation: Callable[[], object], shown: _MemoryPageState) -> Response:
    return submit(
        operation,
        lambda _: lead_back(PAGE, agent=slug, **_given(request), done=shown.done),
        lambda error: _page(request, slug, _MemoryPageState(shown.typed, error)),
    )


def _given(request: Request) -> dict[str, str]:
    return {name: request.query_params.get(name, "").strip() for name in FILTERS}


def _page(request: Request, slug: str, shown: _MemoryPageState) -> HTMLResponse:
    problem, typed = shown.problem, _given(request)
    with parts_of(request).store.view() as tx:
        slugs = tx.agents.slugs()
        chosen = slug or next(iter(slugs), "")
        values: Mapping[str, object] = _nothing()
        try:
            if chosen:
                place = request.query_params
                wanted = _query(typed, place.get("cursor", ""))
                values = _known(tx, tx.agents.named(chosen), wanted, place.get("kept", ""))
        except MaestroError as error:
            problem = problem or error
    return render(
        request,
        "memory.html",
        at=PAGE,
        title=TITLE,
        slugs=slugs,
        slug=chosen,
        typed=typed,
        form=shown.typed,
        most=SHOWN,
        categories=[category.value for category in FactCategory],
        problem=problem,
        said=DONE.get(shown.done, ""),
        **values,
    )


def _query(typed: Mapping[str, str], cursor: str) -> MemoryQuery:
    given = {name: text for name, text in {**typed, "cursor": cursor}.items() if text}
    return read(MemoryQuery, {**given, "limit": SHOWN})


def _known(tx: Transaction, agent: Agent, wanted: MemoryQuery, kept: str) -> Mapping[str, object]:
    """Return the facts and states to show; where nothing is looked for, the sticky facts come before the others."""
    whole = not (wanted.q or wanted.category or wanted.source)
    others = wanted.model_copy(update={"sticky": False}) if whole else wanted
    facts, following = tx.memory.page(agent, others, wanted.cursor, wanted.limit)
    sticky = FactFilter(category=FactCategory.STICKY)
    first = whole and wanted.cursor is None
    return {
        **_nothing(),
        "sticky": tx.memory.page(agent, sticky, None, MOST_STICKY)[0] if first else (),
        "facts": facts,
        "following": following,
        "first": wanted.cursor is None,
        **(_states_page(tx, agent, kept) if first else {}),
        "counts": tx.memory.counts(agent),
        "whole": whole,
    }


def _states_page(tx: Transaction, agent: Agent, after: str) -> Mapping[str, object]:
    """Return what is kept under keys, from the first on, or what follows the state with this id."""
    number = int(after) if after.isascii() and after.isdecimal() and len(after) <= MOST_DIGITS else None
    states = tx.memory.all_states(agent.id or 0, MOST_KEPT + 1, number)
    return {
        "states": states[:MOST_KEPT],
        "more_states": states[MOST_KEPT - 1].id if len(states) > MOST_KEPT else None,
        "first_states": number is None,
    }


def _nothing() -> Mapping[str, object]:
    facts: dict[str, object] = {
        "sticky": (),
        "facts": (),
        "following": None,
        "first": True,
        "counts": {},
        "whole": True,
    }
    return {**facts, "states": (), "more_states": None, "first_states": True}
