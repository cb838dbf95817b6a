"""The operations on owners, pairings, users with access by a pairing, and clients."""

from collections.abc import Callable, Collection

from maestro.domain.errors import Conflict
from maestro.domain.llm.budgets import ClientChange, ClientPage, ClientView, NewClient, client_view
from maestro.domain.people.people import PersonId
from maestro.domain.people.views import (
    IgnoredPage,
    IgnoredView,
    InvitationView,
    OwnerPage,
    PairingApproval,
    PairingPage,
    PairingView,
    PersonPage,
    owner_page,
    pairing_view,
    person_view,
)
from maestro.domain.settings.jobs import PairingSettings
from maestro.domain.values import OwnerId, Value
from maestro.intake.pairing import approve_pairing, create_invitation, refuse_pairing, revoke_access
from maestro.operations.inputs import LIMIT, Limit, RowCursor, StoreOperations
from maestro.store.store import Store


class PeopleOperations:
    """The operations on users with access; ``settings`` returns the current settings of pairing."""

    def __init__(self, store: Store, settings: Callable[[], PairingSettings]) -> None:
        self._store = store
        self._settings = settings

    def pairings(self, limit: Limit = LIMIT, cursor: RowCursor = None) -> PairingPage:
        """List the requests for access, newest first, with their codes."""
        with self._store.view() as tx:
            rows = tx.users.pairings.list_pairing_page(int(cursor) if cursor else None, limit + 1)
            items = tuple(pairing_view(row, tx.now) for row in rows[:limit])
        return PairingPage(items=items, next=str(items[-1].id) if len(rows) > limit else None)

    def invite(self, actor: str, approval: PairingApproval | None = None) -> InvitationView:
        """Create a code that gives one user access, by `/pair CODE`; the code is not shown again."""
        as_owner = approval is not None and approval.owner
        with self._store.begin() as tx:
            code, expires_at = create_invitation(tx, self._settings(), actor, as_owner=as_owner)
        return InvitationView(code=code, owner=as_owner, expires_at=expires_at)

    def approve(self, pairing: str, actor: str, approval: PairingApproval | None = None) -> PairingView:
        """Give access to the user of a pairing, by its id or code, and tell the user; 409 when the code expired."""
        as_owner = approval is not None and approval.owner
        with self._store.begin() as tx:
            return pairing_view(approve_pairing(tx, pairing, actor, as_owner=as_owner), tx.now)

    def refuse(self, pairing: str, actor: str) -> PairingView:
        """Refuse a user without a message; 409 when the user has access."""
        with self._store.begin() as tx:
            return pairing_view(refuse_pairing(tx, pairing, actor), tx.now)

    def list(self, limit: Limit = LIMIT, cursor: OwnerId | None = None) -> PersonPage:
        """List the users with access by pairing, by platform and user id; owners only if they were paired."""
        with self._store.view() as tx:
            rows = tx.users.pairings.list_known_users(PersonId.parse_text(cursor) if cursor else None, limit + 1)
        items = tuple(map(person_view, rows[:limit]))
        return PersonPage(items=items, next=items[-1].id if len(rows) > limit else None)

    def remove(self, person: OwnerId, actor: str) -> None:
        """Revoke the access of a user, `platform:userId`, from the next message on."""
        with self._store.begin() as tx:
            revoke_access(tx, PersonId.parse_text(person), actor)

    def ignored(self, limit: Limit = LIMIT, cursor: RowCursor = None) -> IgnoredPage:
        """Count the messages that were dropped on arrival, by channel and reason, the largest counts first."""
        offset = int(cursor or 0)
        with self._store.view() as tx:
            rows = tx.inbox.ignored.list_ignored_page(offset, limit + 1)
        items = tuple(map(IgnoredView.model_validate, rows[:limit]))
        return IgnoredPage(items=items, next=str(offset + limit) if len(rows) > limit else None)


class OwnerChange(Value):
    """An added or removed owner, and whether the operation changed anything."""

    id: str
    changed: bool


class OwnerOperations:
    """The operations on owners; ``configured`` are the owners of the configuration, and ``origin`` names its key."""

    def __init__(self, store: Store, configured: Collection[str], origin: str) -> None:
        self._store = store
        self._configured = configured
        self.origin = origin

    def list(self) -> OwnerPage:
        """List the owners by platform and user id."""
        with self._store.view() as tx:
            return owner_page(self._configured, tx.users.owners.list_owners())

    def add(self, owner: OwnerId, actor: str) -> OwnerChange:
        """Make a user an owner, from the user's next message on."""
        person = PersonId.parse_text(owner)
        if str(person) in self._configured:
            return OwnerChange(id=str(person), changed=False)
        with self._store.begin() as tx:
            added = tx.users.owners.add_owner(person, actor)
            if added:
                tx.system.audit.add_entry(actor, "owner.add", str(person))
        return OwnerChange(id=str(person), changed=added)

    def remove(self, owner: OwnerId, actor: str) -> OwnerChange:
        """Remove an owner; 409 for an owner of the configuration."""
        person = PersonId.parse_text(owner)
        if str(person) in self._configured:
            raise Conflict(
                f"{person} is an owner by {self.origin}, which a command cannot change. Take the id out there and "
                "restart Maestro."
            )
        with self._store.begin() as tx:
            removed = tx.users.owners.remove_owner(person)
            if removed:
                tx.system.audit.add_entry(actor, "owner.remove", str(person))
        return OwnerChange(id=str(person), changed=removed)


class ClientOperations(StoreOperations):
    """The operations on clients; each raises ``NotFound`` for an unknown name."""

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> ClientPage:
        """List the clients by name; the cursor is the last name of the page before."""
        with self._store.view() as tx:
            following = [client for client in tx.llm.budgets.list_clients() if cursor is None or client.name > cursor]
            levels = tx.llm.budgets.read_client_levels()
        page = tuple(client_view(client, levels[client.name]) for client in following[:limit])
        return ClientPage(items=page, next=page[-1].name if len(following) > limit else None)

    def show(self, name: str) -> ClientView:
        """Return a client by its name or its slug."""
        with self._store.view() as tx:
            return tx.llm.budgets.build_client_view(tx.users.clients.get_client(name))

    def add(self, new: NewClient, actor: str) -> ClientView:
        """Create a client, which agents and channels may name; 409 when its name or slug is taken."""
        with self._store.begin() as tx:
            return tx.llm.budgets.build_client_view(tx.users.clients.create_client(new, actor))

    def change(self, name: str, change: ClientChange, actor: str) -> ClientView:
        """Change the fields that are given; 409 for a client of the configuration."""
        with self._store.begin() as tx:
            return tx.llm.budgets.build_client_view(
                tx.users.clients.change_client(tx.users.clients.get_client(name), change, actor)
            )

    def remove(self, name: str, actor: str) -> None:
        """Remove a client; 409 for one of the configuration, and while agents, channels or usage refer to it."""
        with self._store.begin() as tx:
            tx.users.clients.remove_client(tx.users.clients.get_client(name), actor)
