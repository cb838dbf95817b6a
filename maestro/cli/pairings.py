"""``maestro pairings``: people who wish to be let in, and codes for those who are to be."""

from collections.abc import Iterator
from typing import Annotated

import typer

from maestro.bootstrap.rules import pairing_rules
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import table_page
from maestro.domain.people.views import Approval, PairingPage, PairingView
from maestro.operations.people import PeopleOperations

MOST = 1000
NOTHING = "Nobody wishes to be let in."
COLUMNS = ("id", "code", "person", "name", "status", "until", "by")

HELP = """List, approve and refuse people who wish to be let in, and invite others.

Where direct messages of strangers are not answered (dmPolicy pairing), a stranger is told a code. Whoever tells you
that code is let in with `approve`. The other way round, `invite` prints a code for somebody who sends `/pair CODE`.
"""

app = Commands(HELP)

Which = Annotated[str, typer.Argument(metavar="CODE", help="The code that the person was told, or the id in the list.")]
AsOwner = Annotated[bool, typer.Option("--owner", help="Make the person an owner too.")]


def people_operations(at: Opened) -> PeopleOperations:
    """Return the operations on people."""
    return PeopleOperations(at.store, lambda: pairing_rules(at.live.current()))


@app.command("list")
def list_pairings(given: Given) -> None:
    """List who wishes to be let in, and who was, newest first."""
    with opened(given) as at:
        page = people_operations(at).pairings(MOST)
    write(page, _listing(page), given.as_json)


@app.command()
def approve(given: Given, which: Which, owner: AsOwner = False) -> None:
    """Let a person in, from their next message on, and tell them."""
    with opened(given) as at:
        found = people_operations(at).approve(which, ACTOR, Approval(owner=owner))
    said = f"{found.person} is let in, and an owner" if owner else f"{found.person} is let in"
    write(found, [said], given.as_json)


@app.command()
def refuse(given: Given, which: Which) -> None:
    """Keep a person out, without a word to them; `approve` takes that back."""
    with opened(given) as at:
        found = people_operations(at).refuse(which, ACTOR)
    write(found, [f"{found.person} is not let in"], given.as_json)


@app.command()
def invite(given: Given, owner: AsOwner = False) -> None:
    """Print a code that lets in whoever sends it, once; it is not shown again."""
    with opened(given) as at:
        invitation = people_operations(at).invite(ACTOR, Approval(owner=owner))
    until = invitation.expires_at.astimezone().strftime("%H:%M")
    said = [f"/pair {invitation.code}", f"Whoever sends this line to Maestro until {until} is let in, once."]
    write(invitation, said, given.as_json)


def _listing(page: PairingPage) -> Iterator[str]:
    yield from table_page(COLUMNS, list(map(_row, page.items)), NOTHING)


def _row(wish: PairingView) -> tuple[str, ...]:
    until = wish.expires_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return (str(wish.id), wish.code, wish.person, wish.user_name, wish.status, until, wish.settled_by or "-")
