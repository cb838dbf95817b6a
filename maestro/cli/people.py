"""``maestro people``, ``pairings``, ``owner`` and ``clients``: users with access, pairing codes, owners, customers."""

from dataclasses import replace
from typing import Annotated

import typer

from maestro.cli.framework.commands import Fields, InputOptions, validate_input
from maestro.cli.framework.operations import ACTOR, CommandContext, OperationCommands
from maestro.cli.framework.output import Columns, Result, list_lines
from maestro.domain.llm.budgets import ClientChange, NewClient
from maestro.domain.people.views import OwnerView, PairingApproval
from maestro.domain.values import OwnerId, read
from maestro.operations.people import ClientOperations, OwnerOperations, PeopleOperations
from maestro.settings.keys import KEYS

PEOPLE_HELP = """List and remove users with access by a pairing.

Agents answer direct messages of these users. `maestro owner list` lists the owners.
"""

PAIRINGS_HELP = """List, approve and refuse users that ask for access, and invite others.

With dmPolicy pairing, Maestro answers a direct message of an unknown user only with a code. If the user tells you that
code, `approve` gives access. `invite` prints a code; the user that sends `/pair CODE` gets access.
"""
PAIRING_COLUMNS = Columns("id code person name=user_name status until=expires_at by=settled_by")

OWNERS_HELP = """Add, list and remove owners.

An owner may talk to every agent, is answered before other users, and may ask conductors for actions. Owners come from
owner.ids of the configuration or from `add`. A running Maestro applies changes from the next message on.
"""
NO_OWNERS = "There are no owners. Without web.apiKey and webui.password, the user of this machine is an owner anyway."

Person = Annotated[
    str,
    typer.Argument(
        metavar="PLATFORM:USERID",
        callback=lambda text: validate_input(OwnerId, text),
        help="The platform and its id of the user.",
    ),
]
PairingRef = Annotated[str, "CODE: The code that Maestro told the user, or the pairing's id."]
AsOwner = Annotated[bool, "--owner: Make the user an owner too."]


def _operations(at: CommandContext) -> PeopleOperations:
    return PeopleOperations(at.store, lambda: at.live.current().pairing)


app = OperationCommands(PEOPLE_HELP, _operations)
app.list(
    "List users with access by pairing.",
    Columns("person=id name=user_name since=added_at by=added_by"),
    "No user has access by a pairing yet; `maestro pairings` gives access.",
)


@app.operation()
def remove(people: PeopleOperations, person: Person) -> Result:
    """Revoke a user's access, from the user's next message on."""
    people.remove(person, ACTOR)
    return {"id": person, "changed": True}, f"{person} has no access any more"


pairings = OperationCommands(PAIRINGS_HELP, _operations)


@pairings.operation("list")
def list_pairings(people: PeopleOperations) -> Result:
    """List the pairings, newest first: open, approved and refused requests for access."""
    page = people.pairings(1000)
    return page, list_lines(page.model_copy(update={"next": None}), PAIRING_COLUMNS, "No user asks for access.")


@pairings.operation()
def approve(people: PeopleOperations, pairing: PairingRef, owner: AsOwner = False) -> Result:
    """Give a user access, from the user's next message on, and tell the user."""
    view = people.approve(pairing, ACTOR, PairingApproval(owner=owner))
    return view, f"{view.person} has access, and is an owner" if owner else f"{view.person} has access"


@pairings.operation()
def refuse(people: PeopleOperations, pairing: PairingRef) -> Result:
    """Refuse a user access without a message to the user; `approve` reverses that."""
    view = people.refuse(pairing, ACTOR)
    return view, f"{view.person} has no access"


@pairings.operation()
def invite(people: PeopleOperations, owner: AsOwner = False) -> Result:
    """Print a code that gives one user access; it is not shown again."""
    invitation = people.invite(ACTOR, PairingApproval(owner=owner))
    until = invitation.expires_at.astimezone().strftime("%H:%M")
    lines = [f"/pair {invitation.code}", f"The first user to send this line to Maestro until {until} gets access."]
    return invitation, lines


def _owner_operations(at: CommandContext) -> OwnerOperations:
    """Return the operations on owners, with the key or the environment variable that names configured owners."""
    origin = f"owner.ids in {at.loaded.file}" if at.loaded.file else "owner.ids"
    if at.loaded.origins["owner.ids"] == "environment":
        origin = KEYS["owner.ids"].variables[0]
    return OwnerOperations(at.store, at.loaded.settings.owner.ids, origin)


owners = OperationCommands(OWNERS_HELP, _owner_operations)


@owners.operation("list")
def list_owners(operations: OwnerOperations) -> Result:
    """List the owners, and the origin of each."""
    page = operations.list()

    def origins(owner: OwnerView) -> list[str]:
        return [operations.origin] * owner.configured + [f"added by {owner.added_by}"] * (owner.added_at is not None)

    return page, list_lines(page, Columns("owner=id since=added_at from", {"from": origins}), NO_OWNERS)


@owners.operation("add")
def add_owner(operations: OwnerOperations, owner: Person) -> Result:
    """Make a user an owner, from the user's next message on."""
    change = operations.add(owner, ACTOR)
    return change, f"{owner} is an owner {'from the next message on' if change.changed else 'already'}"


@owners.operation("remove")
def remove_owner(operations: OwnerOperations, owner: Person) -> Result:
    """Remove an owner, from the user's next message on."""
    change = operations.remove(owner, ACTOR)
    return change, f"{owner} is no owner{' any more' if change.changed else ''}"


CLIENTS_HELP = """List, add, change and remove clients.

A client is a customer: if an agent or a channel names a client, the client pays for the answers there. Clients come
from the configuration (clients) or from `add`. The commands work whether Maestro runs or not.
"""
CLIENT_COLUMNS = Columns(
    "name slug plan weight a_day=daily_budget_usd:.2f spent_today=spent_usd:.2f from",
    {"from": lambda client: "configuration" if client.configured else "made here"},
)
CLIENT_OPTIONS = InputOptions(NewClient, leave_out=["name"], spelling={"daily_budget_usd": "--daily-budget"})
NO_BUDGET = {"daily_budget_usd": ("--no-daily-budget", "Use budgets.clientDayUsd for the client again.")}

clients = OperationCommands(
    CLIENTS_HELP,
    lambda at: ClientOperations(at.store),
    Annotated[str, "NAME: The name or the slug of the client."],
    "name",
)
clients.list("List the clients by name, with the spend of today.", CLIENT_COLUMNS, "There are no clients.")


@clients.operation("add")
def add_client(
    operations: ClientOperations,
    name: Annotated[str, "NAME: A name of your choice, unique."],
    options: Annotated[Fields, CLIENT_OPTIONS],
) -> Result:
    """Add a client, which agents and channels may name."""
    client = operations.add(read(NewClient, {"name": name, **options}), ACTOR)
    return client, f"{client.name} can be named by agents and channels"


clients.edit(
    "Change a client that was made here or on the API.", ClientChange, replace(CLIENT_OPTIONS, resets=NO_BUDGET)
)
clients.remove("Remove a client to which no agent, channel or usage refers.", by_view=True)
