"""``maestro people``, ``pairings`` and ``owner``: the users with access, the codes that give it, and the owners."""

from typing import Annotated

import typer

from maestro.bootstrap.rules import pairing_rules
from maestro.cli.framework.inputs import fits
from maestro.cli.framework.operations import ACTOR, Opened, OperationCommands
from maestro.cli.framework.output import Columns, Result, listing
from maestro.domain.fields import OwnerId
from maestro.domain.people.people import OwnerView
from maestro.domain.people.views import PairingApproval
from maestro.operations.people import OwnerOperations, PeopleOperations
from maestro.settings import Loaded
from maestro.settings.keys import KEYS

SETTING = "owner.ids"
MOST_PAIRINGS = 1000

PEOPLE_HELP = """List and remove people who were let in by a pairing.

Their direct messages are answered. Owners are listed by `maestro owner list`.
"""
NO_PEOPLE = "Nobody was let in yet; `maestro pairings` lets people in."

PAIRINGS_HELP = """List, approve and refuse people who wish to be let in, and invite others.

Where direct messages of strangers are not answered (dmPolicy pairing), a stranger is told a code. Whoever tells you
that code is let in with `approve`. The other way round, `invite` prints a code for a user, who sends `/pair CODE`.
"""
PAIRING_COLUMNS = Columns("id code person name=user_name status until=expires_at by=settled_by")

OWNERS_HELP = """Add, list and remove owners.

An owner may talk to every agent, comes before others, and may ask conductors for actions. Owners stand in owner.ids of
the configuration, or are added here; this works beside a running Maestro, from the person's next message on.
"""
NO_OWNERS = "There are no owners. Without web.apiKey and webui.password, the user of this machine is one all the same."


Person = Annotated[
    str,
    typer.Argument(
        metavar="PLATFORM:USERID",
        callback=lambda text: fits(OwnerId, text),
        help="The platform and its id of the person.",
    ),
]
PairingRef = Annotated[str, "CODE: The code that the person was told, or the id in the list."]
AsOwner = Annotated[bool, "--owner: Make the person an owner too."]


def _operations(at: Opened) -> PeopleOperations:
    return PeopleOperations(at.store, lambda: pairing_rules(at.live.current()))


app = OperationCommands(PEOPLE_HELP, _operations)
app.list("List the people who were let in.", Columns("person=id name=user_name since=added_at by=added_by"), NO_PEOPLE)


@app.operation()
def remove(people: PeopleOperations, person: Person) -> Result:
    """Know a person no longer; it counts from their next message on."""
    people.remove(person, ACTOR)
    return {"id": person, "changed": True}, f"{person} is not known any more"


pairings = OperationCommands(PAIRINGS_HELP, _operations)


@pairings.operation("list")
def list_pairings(people: PeopleOperations) -> Result:
    """List the pairings, newest first: users who asked for access, and those who got it."""
    page = people.pairings(MOST_PAIRINGS)
    return page, listing(page.model_copy(update={"next": None}), PAIRING_COLUMNS, "Nobody wishes to be let in.")


@pairings.operation()
def approve(people: PeopleOperations, pairing: PairingRef, owner: AsOwner = False) -> Result:
    """Let a person in, from their next message on, and tell them."""
    view = people.approve(pairing, ACTOR, PairingApproval(owner=owner))
    return view, f"{view.person} is let in, and an owner" if owner else f"{view.person} is let in"


@pairings.operation()
def refuse(people: PeopleOperations, pairing: PairingRef) -> Result:
    """Keep a person out, without a word to them; `approve` takes that back."""
    view = people.refuse(pairing, ACTOR)
    return view, f"{view.person} is not let in"


@pairings.operation()
def invite(people: PeopleOperations, owner: AsOwner = False) -> Result:
    """Print a code that gives one user access; it is not shown again."""
    invitation = people.invite(ACTOR, PairingApproval(owner=owner))
    until = invitation.expires_at.astimezone().strftime("%H:%M")
    lines = [f"/pair {invitation.code}", f"Whoever sends this line to Maestro until {until} is let in, once."]
    return invitation, lines


owners = OperationCommands(
    OWNERS_HELP, lambda at: OwnerOperations(at.store, at.loaded.settings.owner.ids, _origin(at.loaded))
)


@owners.operation("list")
def list_owners(operations: OwnerOperations) -> Result:
    """List the owners, and say where each comes from."""
    page = operations.list()

    def origins(owner: OwnerView) -> list[str]:
        return [operations.origin] * owner.configured + [f"added by {owner.added_by}"] * (owner.added_at is not None)

    return page, listing(page, Columns("owner=id since=added_at from", {"from": origins}), NO_OWNERS)


@owners.operation("add")
def add_owner(operations: OwnerOperations, owner: Person) -> Result:
    """Make a person an owner; it counts from their next message on."""
    change = operations.add(owner, ACTOR)
    return change, f"{owner} is an owner {'from the next message on' if change.changed else 'already'}"


@owners.operation("remove")
def remove_owner(operations: OwnerOperations, owner: Person) -> Result:
    """Let a person be an owner no longer; it counts from their next message on."""
    change = operations.remove(owner, ACTOR)
    return change, f"{owner} is no owner{' any more' if change.changed else ''}"


def _origin(loaded: Loaded) -> str:
    """Return where the configuration names owners."""
    if loaded.origins[SETTING] == "environment":
        return KEYS[SETTING].variables[0]
    return f"{SETTING} in {loaded.file}" if loaded.file else SETTING
