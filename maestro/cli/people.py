"""``maestro people``: who was let in."""

from collections.abc import Iterator

from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.owner import Changed, Person
from maestro.cli.pairings import people_operations
from maestro.cli.table import lines
from maestro.domain.people.views import PersonPage

MOST = 10_000
NOTHING = "Nobody was let in yet; `maestro pairings` lets people in."
COLUMNS = ("person", "name", "since", "by")

HELP = """List and remove people who were let in by a pairing.

Their direct messages are answered. Owners are listed by `maestro owner list`.
"""

app = Commands(HELP)


@app.command("list")
def list_people(given: Given) -> None:
    """List the people who were let in."""
    with opened(given) as at:
        page = people_operations(at).list(MOST)
    write(page, _listing(page), given.as_json)


@app.command()
def remove(given: Given, person: Person) -> None:
    """Know a person no longer; it counts from their next message on."""
    with opened(given) as at:
        people_operations(at).remove(person, ACTOR)
    write(Changed(id=person, changed=True), [f"{person} is not known any more"], given.as_json)


def _listing(page: PersonPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    rows = [
        (one.id, one.user_name, one.added_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"), one.added_by)
        for one in page.items
    ]
    yield from lines(COLUMNS, rows)
