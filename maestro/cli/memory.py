"""Show and correct what an agent remembers.

An agent learns facts from conversations, and stores state (values under keys). Each change here counts from the next
message on, whether Maestro runs or not.
"""

from dataclasses import replace
from typing import Annotated

import typer

from maestro.bootstrap.tools import build_redaction
from maestro.cli.framework.commands import Fields, InputOptions, Limit, QueryOptions, Yes, build_input, row_number
from maestro.cli.framework.operations import ACTOR, CommandContext, OperationCommands
from maestro.cli.framework.output import Columns, Result, align_rows, list_lines
from maestro.domain.memory.memory import FactChange, NewFact, StateChange, StateView
from maestro.domain.redaction import TextKind
from maestro.domain.values import Page
from maestro.operations.memory import MemoryOperations, MemoryQuery

NO_FACTS = "No fact matches."
FACT_COLUMNS = Columns(
    "fact=id category sure=confidence:.2f learned=created_at:day told place? content",
    {"told": lambda fact: f"{fact.access_count}x"},
)
STATE_COLUMNS = Columns("key since=updated_at:day place? value")
QUERY = QueryOptions(MemoryQuery, leave_out=["q", "sticky", "source"])
SEARCH = replace(QUERY, leave_out=["q", "sticky", "source", "limit", "cursor"])
FACT_CHANGE = InputOptions(FactChange, spelling={"content": "--text"})

Slug = Annotated[str, "SLUG: The slug of the agent, as `maestro agents list` shows it."]
Number = Annotated[int, "FACT: The number of the fact, as `maestro memory list` shows it.", row_number("fact", "FACT")]
Key = Annotated[str, "KEY: The key, such as last-topic."]
Place = Annotated[str, "PLACE: The key of the conversation to which the value belongs."]


def _operations(at: CommandContext) -> MemoryOperations:
    return MemoryOperations(at.store, lambda: build_redaction(at.live).current_redaction(TextKind.MEMORY)())


app = OperationCommands(__doc__, _operations)
state = OperationCommands("List, set and delete the states of an agent.", _operations)
app.add_typer(state, name="state")


@app.operation("list")
def list_facts(memory: MemoryOperations, slug: Slug, query: Annotated[MemoryQuery, QUERY]) -> Result:
    """List the facts, newest first."""
    page = memory.show(slug, query)
    return page, list_lines(page, FACT_COLUMNS, NO_FACTS)


@app.operation()
def search(
    memory: MemoryOperations,
    slug: Slug,
    text: Annotated[list[str], "TEXT...: Words of the fact, in any script."],
    query: Annotated[MemoryQuery, SEARCH],
    limit: Limit = 20,
) -> Result:
    """Search the facts as the agent itself does, best match first."""
    page = memory.show(slug, query.model_copy(update={"q": " ".join(text), "limit": limit}))
    return page, list_lines(page, FACT_COLUMNS, NO_FACTS)


@app.operation()
def add(
    memory: MemoryOperations,
    slug: Slug,
    text: Annotated[str, "TEXT: The fact, in a sentence."],
    options: Annotated[Fields, InputOptions(NewFact, leave_out=["content"])],
) -> Result:
    """Add a fact; a second fact with the same content is refused."""
    fact = memory.add_fact(slug, build_input(NewFact, content=text, **options), ACTOR)
    return fact, f"{slug} remembers it as fact {fact.id}"


@app.operation()
def change(memory: MemoryOperations, slug: Slug, number: Number, options: Annotated[Fields, FACT_CHANGE]) -> Result:
    """Change the content, category or confidence of a fact."""
    fact = memory.change_fact(slug, number, build_input(FactChange, **options), ACTOR)
    return fact, align_rows(FACT_COLUMNS.rows([fact]))


@app.operation()
def forget(memory: MemoryOperations, slug: Slug, number: Number) -> Result:
    """Delete a fact."""
    memory.forget_fact(slug, number, ACTOR)
    return _deleted_fields(slug, fact=number), f"{slug} has forgotten fact {number}"


@app.operation()
def clear(memory: MemoryOperations, slug: Slug, yes: Yes = False) -> Result:
    """Delete all facts and states of an agent."""
    memory.show(slug, MemoryQuery(limit=1))
    if not yes:
        typer.confirm(f"Forget everything that {slug} knows, for good?", abort=True, err=True)
    count = memory.clear(slug, ACTOR)
    return _deleted_fields(slug, facts=count), f"{slug} has forgotten {count} facts and all state"


@state.operation("list")
def list_states(
    memory: MemoryOperations,
    slug: Slug,
    place: Annotated[str | None, "PLACE: Only the states of the conversation with this key."] = None,
) -> Result:
    """List the states of an agent, by key."""
    page = Page[StateView](items=memory.show(slug, MemoryQuery(place=place, limit=1)).states, next=None)
    return page, list_lines(page, STATE_COLUMNS, "The agent keeps no state.")


@state.operation("set")
def set_state(
    memory: MemoryOperations,
    slug: Slug,
    key: Key,
    value: Annotated[str, "VALUE: The value to store."],
    place: Place = "",
) -> Result:
    """Store a value under a key, replacing an earlier value."""
    entry = memory.put_state(slug, key, build_input(StateChange, value=value, place=place), ACTOR)
    return entry, align_rows(STATE_COLUMNS.rows([entry]))


@state.operation("forget")
def forget_state(memory: MemoryOperations, slug: Slug, key: Key, place: Place = "") -> Result:
    """Delete the value under a key."""
    memory.forget_state(slug, key, ACTOR, place)
    return _deleted_fields(slug, key=key), f"{slug} has forgotten the value under {key}"


def _deleted_fields(slug: str, **deleted: object) -> Fields:
    return {"agent": slug, "fact": None, "key": None, "facts": None, **deleted}
