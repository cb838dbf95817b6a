"""The operations on owners, pairings, users with access by a pairing, and clients (paying customers)."""

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
    """The operations on pairings and users with access; ``settings`` returns the current pairing settings."""

    def __init__(self, store: Store, settings: Callable[[], PairingSettings]) -> None:
        self._store = store
        self._settings = settings

    def pairings(self, limit: Limit = LIMIT, cursor: RowCursor = None) -> PairingPage:
        """List the pairings (requests for access), newest first, with their codes."""
        with self._store.view() as tx:
            rows = tx.users.pairings.list_pairing_page(int(cursor) if cursor else None, limit + 1)
            items = tuple(pairing_view(row, tx.now) for row in rows[:limit])
        return PairingPage(items=items, next=str(items[-1].id) if len(rows) > limit else None)

    def invite(self, actor: str, approval: PairingApproval | None = None) -> InvitationView:
        """Create a code by which one user gets access with `/pair CODE`; only this response shows the code."""
        as_owner = approval is not None and approval.owner
        with self._store.begin() as tx:
            code, expires_at = create_invitation(tx, self._settings(), actor, as_owner=as_owner)
        return InvitationView(code=code, owner=as_owner, expires_at=expires_at)

    def approve(self, pairing: str, actor: str, approval: PairingApproval | None = None) -> PairingView:
        """Approve a pairing, given by id or code, and notify its user; 409 when the code expired."""
        as_owner = approval is not None and approval.owner
        with self._store.begin() as tx:
            return pairing_view(approve_pairing(tx, pairing, actor, as_owner=as_owner), tx.now)

    def refuse(self, pairing: str, actor: str) -> PairingView:
        """Refuse a pairing without notifying its user; 409 when the user already has access."""
        with self._store.begin() as tx:
            return pairing_view(refuse_pairing(tx, pairing, actor), tx.now)

    def list(self, limit: Limit = LIMIT, cursor: OwnerId | None = None) -> PersonPage:
        """List the users with access by a pairing, ordered by platform and user id, including paired owners."""
        with self._store.view() as tx:
            rows = tx.users.pairings.list_known_users(PersonId.parse_text(cursor) if cursor else None, limit + 1)
        items = tuple(map(person_view, rows[:limit]))
        return PersonPage(items=items, next=items[-1].id if len(rows) > limit else None)

    def remove(self, person: OwnerId, actor: str) -> None:
        """Revoke the access of a user, written `platform:userId`, from the user's next message on."""
        with self._store.begin() as tx:
            revoke_access(tx, PersonId.parse_text(person), actor)

    def ignored(self, limit: Limit = LIMIT, cursor: RowCursor = None) -> IgnoredPage:
        """Count the messages that Maestro dropped on arrival, by channel and reason, the largest counts first."""
        offset = int(cursor or 0)
        with self._store.view() as tx:
            rows = tx.inbox.ignored.list_ignored_page(offset, limit + 1)
        items = tuple(map(IgnoredView.model_validate, rows[:limit]))
        return IgnoredPage(items=items, next=str(offset + limit) if len(rows) > limit else None)


class OwnerChange(Value):
    """The id of an added or removed owner, and whether the operation changed anything."""

    id: str
    changed: bool


class OwnerOperations:
    """The operations on owners; ``configured`` are the owners in the configuration, ``origin`` names their setting."""

    def __init__(self, store: Store, configured: Collection[str], origin: str) -> None:
        self._store = store
        self._configured = configured
        self.origin = origin

    def list(self) -> OwnerPage:
        """List the owners, ordered by platform and user id."""
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
        """Remove an owner; 409 for an owner from the configuration."""
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
    """The operations on clients, the customers who pay for answers; an unknown name raises ``NotFound``."""

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> ClientPage:
        """List the clients by name; ``cursor`` is the last name of the previous page."""
        with self._store.view() as tx:
            following = [client for client in tx.llm.budgets.list_clients() if cursor is None or client.name > cursor]
            levels = tx.llm.budgets.read_client_levels()
        page = tuple(client_view(client, levels[client.name]) for client in following[:limit])
        return ClientPage(items=page, next=page[-1].name if len(following) > limit else None)

    def show(self, name: str) -> ClientView:
        """Return the client with this name or slug."""
        with self._store.view() as tx:
            return tx.llm.budgets.build_client_view(tx.users.clients.get_client(name))

    def add(self, new: NewClient, actor: str) -> ClientView:
        """Create a client, to which agents and channels can be assigned; 409 when its name or slug is taken."""
        with self._store.begin() as tx:
            return tx.llm.budgets.build_client_view(tx.users.clients.create_client(new, actor))

    def change(self, name: str, change: ClientChange, actor: str) -> ClientView:
        """Change the given fields of a client; 409 for a client from the configuration."""
        with self._store.begin() as tx:
            return tx.llm.budgets.build_client_view(
                tx.users.clients.change_client(tx.users.clients.get_client(name), change, actor)
            )

    def remove(self, name: str, actor: str) -> None:
        """Remove a client; 409 for one from the configuration, or while agents, channels or usage refer to it."""
        with self._store.begin() as tx:
            tx.users.clients.remove_client(tx.users.clients.get_client(name), actor)
