"""The page of an agent's memory: search, change and delete its facts and states."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormRow, FormText, read_filters, submit, without_empty
from api.dashboard.pages import redirect_to_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import MaestroError
from maestro.domain.memory.memory import FactCategory, FactChange, FactFilter, NewFact, StateChange
from maestro.domain.values import read
from maestro.operations.memory import MemoryQuery
from maestro.store.transaction import Transaction

PAGE = "/memory"
FACTS = 15
STICKY_FACTS = 5
STATES = 10
MAX_DIGITS = 18
FILTERS = ("q", "category", "source")
NOTICES = {
    "added": "The fact was added. The agent knows it from the next message on.",
    "changed": "The fact was changed.",
    "forgotten": "The entry was deleted.",
    "kept": "The value was stored.",
    "cleared": "All facts and states of the agent were deleted.",
}
"""Notices after a completed form; the page's address holds only their keys, so that it cannot inject a text."""
EMPTY_CONTENT: Mapping[str, object] = {
    "sticky": (),
    "facts": (),
    "following": None,
    "first": True,
    "counts": {},
    "whole": True,
    "states": (),
    "more_states": None,
    "first_states": True,
}

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class MemoryForm(BaseModel):
    """The form of the memory page; ``number`` is the id of the fact to change, empty for a new fact."""

    number: str = ""
    content: str = ""
    category: str = FactCategory.USER_PREFERENCE
    confidence: str = ""
    key: str = ""
    value: str = ""
    place: str = ""

    def new_fact(self) -> NewFact:
        """Return the fact to add."""
        return read(NewFact, {"content": self.content, "category": self.category, "place": self.place})

    def fact_change(self) -> FactChange:
        """Return the changes of a fact, without empty fields."""
        fields = {"content": self.content.strip(), "category": self.category, "confidence": self.confidence.strip()}
        return read(FactChange, without_empty(fields))

    def new_state(self) -> StateChange:
        """Return the value of a state, which is stored under its key."""
        return read(StateChange, {"value": self.value.strip(), "place": self.place})


@router.get("")
def show_memory(request: Request, agent: str = "", done: str = "") -> HTMLResponse:
    """Show the memory of the agent with this slug; without a slug, of the first agent."""
    return _render_page(request, agent, notice=NOTICES.get(done, ""))


@router.post("/facts")
def add_fact(request: Request, parts: Parts, agent: FormText, form: Annotated[MemoryForm, Form()]) -> Response:
    """Add a fact; a duplicate is refused with a message that names the existing fact."""
    return submit_form(request, agent, lambda: parts.memory.add_fact(agent, form.new_fact(), OPERATOR), "added", form)


@router.post("/facts/change")
def change_fact(
    request: Request, parts: Parts, agent: FormText, number: FormRow, form: Annotated[MemoryForm, Form()]
) -> Response:
    """Change a fact."""
    return submit_form(
        request, agent, lambda: parts.memory.change_fact(agent, number, form.fact_change(), OPERATOR), "changed", form
    )


@router.post("/facts/stick")
def make_fact_sticky(request: Request, parts: Parts, agent: FormText, number: FormRow) -> Response:
    """Make a fact sticky, so that it is part of every prompt."""
    sticky = FactChange(category=FactCategory.STICKY)
    return submit_form(request, agent, lambda: parts.memory.change_fact(agent, number, sticky, OPERATOR), "changed")


@router.post("/facts/forget")
def forget_fact(request: Request, parts: Parts, agent: FormText, number: FormRow) -> Response:
    """Delete a fact."""
    return submit_form(request, agent, lambda: parts.memory.forget_fact(agent, number, OPERATOR), "forgotten")


@router.post("/states")
def put_state(request: Request, parts: Parts, agent: FormText, form: Annotated[MemoryForm, Form()]) -> Response:
    """Store a value under a key in an agent's memory, or replace the value."""
    key = form.key.strip()
    return submit_form(
        request, agent, lambda: parts.memory.put_state(agent, key, form.new_state(), OPERATOR), "kept", form
    )


@router.post("/states/forget")
def forget_state(request: Request, parts: Parts, agent: FormText, key: FormText, place: FormText = "") -> Response:
    """Delete a key and its value from an agent's memory, only in the given memory scope."""
    return submit_form(request, agent, lambda: parts.memory.forget_state(agent, key, OPERATOR, place), "forgotten")


@router.post("/clear")
def clear_memory(request: Request, parts: Parts, agent: FormText) -> Response:
    """Delete all facts and states of an agent."""
    return submit_form(request, agent, lambda: parts.memory.clear(agent, OPERATOR), "cleared")


def submit_form(
    request: Request, slug: str, operation: Callable[[], object], done: str, form: MemoryForm | None = None
) -> Response:
    return submit(
        operation,
        lambda _: redirect_to_page(PAGE, agent=slug, **read_filters(request, FILTERS), done=done),
        lambda error: _render_page(request, slug, form, error),
    )


def _render_page(
    request: Request, slug: str, form: MemoryForm | None = None, problem: MaestroError | None = None, notice: str = ""
) -> HTMLResponse:
    filters, cursors = read_filters(request, FILTERS), read_filters(request, ("cursor", "kept"))
    with request_parts(request).store.view() as tx:
        slugs = tx.agents.list_agent_slugs()
        chosen = slug or next(iter(slugs), "")
        content: Mapping[str, object] = EMPTY_CONTENT
        try:
            if chosen:
                fields = {**without_empty({**filters, "cursor": cursors["cursor"]}), "limit": FACTS}
                content = _read_memory(
                    tx, tx.agents.get_agent_by_slug(chosen), read(MemoryQuery, fields), cursors["kept"]
                )
        except MaestroError as error:
            problem = problem or error
    return render(
        request,
        "memory.html",
        at=PAGE,
        slugs=slugs,
        slug=chosen,
        filters=filters,
        form=form or MemoryForm(),
        most=FACTS,
        categories=tuple(FactCategory),
        problem=problem,
        notice=notice,
        **content,
    )


def _read_memory(tx: Transaction, agent: Agent, query: MemoryQuery, after_state: str) -> Mapping[str, object]:
    """Return what the page shows; only the first page without a filter has sticky facts apart, and the states."""
    whole = not (query.q or query.category or query.source)
    others = query.model_copy(update={"sticky": False}) if whole else query
    facts, following = tx.memory.list_facts(agent, others, query.cursor, query.limit)
    content = {
        **EMPTY_CONTENT,
        "facts": facts,
        "following": following,
        "first": query.cursor is None,
        "counts": tx.memory.count_by_category(agent),
        "whole": whole,
    }
    if whole and query.cursor is None:
        content["sticky"] = tx.memory.list_facts(agent, FactFilter(category=FactCategory.STICKY), None, STICKY_FACTS)[0]
        content |= _read_states(tx, agent, after_state)
    return content


def _read_states(tx: Transaction, agent: Agent, after: str) -> Mapping[str, object]:
    """Return the first page of states, or the page after the state with the id ``after``."""
    number = int(after) if after.isascii() and after.isdecimal() and len(after) <= MAX_DIGITS else None
    states = tx.memory.list_states_of_agent(agent.id or 0, STATES + 1, number)
    return {
        "states": states[:STATES],
        "more_states": states[STATES - 1].id if len(states) > STATES else None,
        "first_states": number is None,
    }
