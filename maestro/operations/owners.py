"""The operations on owners."""

from collections.abc import Collection

from maestro.domain.errors import Conflict
from maestro.domain.fields import OwnerId
from maestro.domain.people.people import OwnerPage, PersonId, owner_page
from maestro.domain.values import Value
from maestro.store.store import Store


class OwnerChange(Value):
    """An owner, or a former one, and whether anything had to be changed."""

    id: str
    changed: bool


class OwnerOperations:
    """The operations on owners; ``configured`` are those that the configuration names, in ``place``."""

    def __init__(self, store: Store, configured: Collection[str], place: str) -> None:
        self._store = store
        self._configured = configured
        self._place = place

    def list(self) -> OwnerPage:
        """List the owners by platform and user id."""
        with self._store.view() as tx:
            return owner_page(self._configured, tx.users.owners.all())

    def add(self, owner: OwnerId, actor: str) -> OwnerChange:
        """Make a person an owner, from the person's next message on."""
        person = PersonId.parse(owner)
        if str(person) in self._configured:
            return OwnerChange(id=str(person), changed=False)
        with self._store.begin() as tx:
            added = tx.users.owners.add(person, actor)
            if added:
                tx.system.audit.add(actor, "owner.add", str(person))
        return OwnerChange(id=str(person), changed=added)

    def remove(self, owner: OwnerId, actor: str) -> OwnerChange:
        """Remove an owner; 409 for one of the configuration."""
        person = PersonId.parse(owner)
        if str(person) in self._configured:
            raise Conflict(
                f"{person} is an owner by {self._place}, which a command cannot change. Take the id out there and "
                "restart Maestro."
            )
        with self._store.begin() as tx:
            removed = tx.users.owners.remove(person)
            if removed:
                tx.system.audit.add(actor, "owner.remove", str(person))
        return OwnerChange(id=str(person), changed=removed)
