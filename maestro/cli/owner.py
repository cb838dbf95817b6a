"""``maestro owner``: whose word always counts."""

from collections.abc import Iterator
from typing import Annotated

import typer

from maestro.cli.checked import fits
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import table_page
from maestro.domain.errors import Conflict
from maestro.domain.people.owners import OwnerPage, OwnerView, PersonId, owner_page
from maestro.domain.values import Value
from maestro.domain.words import OwnerId
from maestro.settings import Loaded
from maestro.settings.keys import KEYS

SETTING = "owner.ids"
NOTHING = "There are no owners. Without web.apiKey and webui.password, who uses this machine is one all the same."
COLUMNS = ("owner", "since", "from")

HELP = """Add, list and remove owners.

An owner may talk to every agent, comes before others, and may ask conductors for actions. Owners stand in owner.ids of
the configuration, or are added here; this works beside a running Maestro, from the person's next message on.
"""

app = Commands(HELP)


def _well_formed(text: str) -> str:
    return fits(OwnerId, text)


Person = Annotated[
    str,
    typer.Argument(metavar="PLATFORM:USERID", callback=_well_formed, help="The platform and its id of the person."),
]


class Changed(Value):
    """Who it is about, and whether anything had to be changed."""

    id: str
    changed: bool


@app.command("list")
def list_owners(given: Given) -> None:
    """List the owners, and say where each comes from."""
    with opened(given) as at, at.store.view() as tx:
        page = owner_page(at.loaded.settings.owner.ids, tx.users.owners.all())
    write(page, _listing(page, _place(at.loaded)), given.as_json)


@app.command()
def add(given: Given, owner: Person) -> None:
    """Make a person an owner; it counts from their next message on."""
    person = PersonId.parse(owner)
    with opened(given) as at:
        added = not _configured(at, person) and _add(at, person)
    said = f"{person} is an owner from the next message on" if added else f"{person} is an owner already"
    write(Changed(id=str(person), changed=added), [said], given.as_json)


@app.command()
def remove(given: Given, owner: Person) -> None:
    """Let a person be an owner no longer; it counts from their next message on."""
    person = PersonId.parse(owner)
    with opened(given) as at:
        if _configured(at, person):
            raise Conflict(
                f"{person} is an owner by {_place(at.loaded)}, which a command cannot change. Take the id out there "
                "and restart Maestro."
            )
        removed = _remove(at, person)
    said = f"{person} is no owner any more" if removed else f"{person} is no owner"
    write(Changed(id=str(person), changed=removed), [said], given.as_json)


def _configured(at: Opened, person: PersonId) -> bool:
    return str(person) in at.loaded.settings.owner.ids


def _add(at: Opened, person: PersonId) -> bool:
    with at.store.begin() as tx:
        added = tx.users.owners.add(person, ACTOR)
        if added:
            tx.system.audit.add(ACTOR, "owner.add", str(person))
    return added


def _remove(at: Opened, person: PersonId) -> bool:
    with at.store.begin() as tx:
        removed = tx.users.owners.remove(person)
        if removed:
            tx.system.audit.add(ACTOR, "owner.remove", str(person))
    return removed


def _place(loaded: Loaded) -> str:
    """Say where the configuration names owners."""
    if loaded.origins[SETTING] == "environment":
        return KEYS[SETTING].variables[0]
    return f"{SETTING} in {loaded.file}" if loaded.file else SETTING


def _listing(page: OwnerPage, place: str) -> Iterator[str]:
    yield from table_page(COLUMNS, [_row(person, place) for person in page.items], NOTHING)


def _row(person: OwnerView, place: str) -> tuple[str, str, str]:
    since = person.added_at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if person.added_at else "-"
    origins = (place if person.configured else "", f"added by {person.added_by}" if person.added_at else "")
    return person.id, since, ", ".join(filter(None, origins))
