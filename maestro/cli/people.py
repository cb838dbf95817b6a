"""``maestro people``: who was let in."""

from collections.abc import Iterator

import typer

from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.cli.owner import Changed, Person
from maestro.cli.table import lines
from maestro.domain.people.owners import PersonId
from maestro.domain.people.views import PersonPage, person_page
from maestro.intake import strangers

MOST = 10_000
NOTHING = "Nobody was let in yet; `maestro pairings` lets people in."
COLUMNS = ("person", "name", "since", "by")

HELP = """List and remove people who were let in by a pairing.

Their direct messages are answered. Owners are listed by `maestro owner list`.
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("list")
def list_people(
    ctx: typer.Context,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """List the people who were let in."""
    with opened(Given.of(ctx, config, data_dir, debug)) as at, at.store.view() as tx:
        page = person_page(tx.pairings.people(None, MOST + 1), MOST)
    write(page, _listing(page), as_json)


@app.command()
def remove(
    ctx: typer.Context,
    person: Person,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Know a person no longer; it counts from their next message on."""
    with opened(Given.of(ctx, config, data_dir, debug)) as at, at.store.begin() as tx:
        strangers.forget(tx, PersonId.parse(person), ACTOR)
    write(Changed(id=person, changed=True), [f"{person} is not known any more"], as_json)


def _listing(page: PersonPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    rows = [
        (one.id, one.user_name, one.added_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"), one.added_by)
        for one in page.items
    ]
    yield from lines(COLUMNS, rows)
