"""``maestro memory``: what an agent remembers, and how to mend it."""

from typing import Annotated

import typer

from maestro.bootstrap.rules import build_redaction
from maestro.cli.checked import made, row_number
from maestro.cli.commands import Commands
from maestro.cli.memory_texts import facts, states
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, RowCursor
from maestro.domain.memory.memory import FactCategory
from maestro.domain.memory.views import (
    LIMIT,
    FactChange,
    FactFilter,
    MemoryPage,
    NewFact,
    StateChange,
    StateView,
)
from maestro.domain.redaction import TextKind
from maestro.domain.values import Value
from maestro.operations.memory import MemoryOperations

HELP = """Look at what an agent remembers, and mend it.

An agent learns facts from conversations and keeps state under keys. What is told, changed or forgotten here counts from
the next message on; all of this works whether Maestro runs or not.
"""
STATE_HELP = """List, set and forget what an agent keeps under keys."""

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The slug of the agent, as `maestro agents list` shows it.")]
Number = Annotated[
    str, typer.Argument(metavar="FACT", help="The number of the fact, as `maestro memory list` shows it.")
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, such as last-topic.")]
Category = Annotated[FactCategory | None, typer.Option(help="What it is about; a sticky fact is told every time.")]
Place = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="Only what the conversation of this key knows, as the list shows it."),
]
InPlace = Annotated[str, typer.Option(metavar="PLACE", help="Remember it in the conversation of this key only.")]

app = Commands(HELP)
state = Commands(STATE_HELP)
app.add_typer(state, name="state")


class Forgotten(Value):
    """What is gone: a fact by its number, a state by its key, or everything, by the number of facts it was."""

    agent: str
    fact: int | None = None
    key: str | None = None
    facts: int | None = None


class StateList(Value):
    """The states of an agent by key; all of them, so ``next`` is always null."""

    items: tuple[StateView, ...]
    next: str | None = None


@app.command("list")
def list_memory(
    given: Given,
    slug: Slug,
    category: Category = None,
    place: Place = None,
    limit: Limit = LIMIT,
    cursor: RowCursor = None,
) -> None:
    """List the facts, the newest first."""
    page = _page(given, slug, FactFilter(category=category, place=place), cursor, limit)
    write(page, facts(page), given.as_json)


@app.command()
def search(
    given: Given,
    slug: Slug,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Words that stand in the fact, in any script.")],
    category: Category = None,
    place: Place = None,
    limit: Limit = 20,
) -> None:
    """Find facts as the agent itself does, those that fit best first."""
    chosen = FactFilter(q=" ".join(text), category=category, place=place)
    page = _page(given, slug, chosen, None, limit)
    write(page, facts(page), given.as_json)


@app.command()
def add(
    given: Given,
    slug: Slug,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The fact, in a sentence.")],
    category: Annotated[FactCategory, typer.Option(help="What it is about.")] = FactCategory.USER_PREFERENCE,
    place: InPlace = "",
) -> None:
    """Tell the agent a fact; one that says the same as another is refused."""
    with opened(given) as at:
        new = made(NewFact, content=text, category=category, place=place)
        fact = _operations(at).add_fact(slug, new, ACTOR)
    write(fact, [f"{slug} remembers it as fact {fact.id}"], given.as_json)


@app.command()
def change(
    given: Given,
    slug: Slug,
    number: Number,
    text: Annotated[str | None, typer.Option(help="What it says instead.")] = None,
    category: Category = None,
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="How sure it is, from 0 to 1.")] = None,
) -> None:
    """Change what a fact says, its category or how sure it is."""
    with opened(given) as at:
        wanted = made(FactChange, content=text, category=category, confidence=confidence)
        fact = _operations(at).change_fact(slug, _number(number), wanted, ACTOR)
    write(fact, facts(MemoryPage(items=(fact,), states=(), next=None)), given.as_json)


@app.command()
def forget(given: Given, slug: Slug, number: Number) -> None:
    """Forget a fact."""
    with opened(given) as at:
        _operations(at).forget_fact(slug, _number(number), ACTOR)
    write(Forgotten(agent=slug, fact=_number(number)), [f"{slug} has forgotten fact {_number(number)}"], given.as_json)


@app.command()
def clear(
    given: Given,
    slug: Slug,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False,
) -> None:
    """Forget everything the agent knows, facts and states."""
    with opened(given) as at:
        with at.store.view() as tx:
            tx.agents.named(slug)
        if not yes:
            typer.confirm(f"Forget everything that {slug} knows, for good?", abort=True, err=True)
        count = _operations(at).clear(slug, ACTOR)
    write(Forgotten(agent=slug, facts=count), [f"{slug} has forgotten {count} facts and all state"], given.as_json)


@state.command("list")
def list_states(given: Given, slug: Slug, place: Place = None) -> None:
    """List what the agent keeps, by key."""
    with opened(given) as at, at.store.view() as tx:
        kept = tuple(map(StateView.model_validate, tx.memory.kept(tx.agents.named(slug), place)))
    write(StateList(items=kept), states(kept), given.as_json)


@state.command("set")
def set_state(
    given: Given,
    slug: Slug,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What is kept under it.")],
    place: InPlace = "",
) -> None:
    """Keep a value under a key, in the place of the one before."""
    with opened(given) as at:
        kept = _operations(at).put_state(slug, key, made(StateChange, value=value, place=place), ACTOR)
    write(kept, states([kept]), given.as_json)


@state.command("forget")
def forget_state(given: Given, slug: Slug, key: Key, place: InPlace = "") -> None:
    """Forget a key."""
    with opened(given) as at:
        _operations(at).forget_state(slug, key, ACTOR, place)
    write(Forgotten(agent=slug, key=key), [f"{slug} has forgotten what it kept under {key}"], given.as_json)


def _page(given: Given, slug: str, chosen: FactFilter, cursor: int | None, limit: int) -> MemoryPage:
    with opened(given) as at:
        return _operations(at).page(slug, chosen, limit, cursor)


def _operations(at: Opened) -> MemoryOperations:
    return MemoryOperations(at.store, lambda: build_redaction(at.live).of(TextKind.MEMORY)())


def _number(text: str) -> int:
    return row_number(text, "fact", "FACT")
