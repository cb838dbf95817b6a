"""The operations on clients."""

from maestro.domain.llm.budgets import ClientChange, ClientPage, ClientView, NewClient, client_page
from maestro.operations.inputs import LIMIT, Limit
from maestro.store.store import Store


class ClientOperations:
    """The operations on clients; each raises ``NotFound`` for an unknown name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> ClientPage:
        """List the clients by name; the cursor is the last name of the page before."""
        with self._store.view() as tx:
            return client_page(tx.llm.budgets.clients(), tx.llm.budgets.client_levels(), cursor, limit)

    def show(self, name: str) -> ClientView:
        """Return a client by its name or its slug."""
        with self._store.view() as tx:
            return tx.llm.budgets.client_view(tx.users.clients.get(name))

    def add(self, new: NewClient, actor: str) -> ClientView:
        """Create a client, which agents and channels may name; 409 when its name or slug is taken."""
        with self._store.begin() as tx:
            return tx.llm.budgets.client_view(tx.users.clients.create(new, actor))

    def change(self, name: str, change: ClientChange, actor: str) -> ClientView:
        """Change the fields that are given; 409 for a client of the configuration."""
        with self._store.begin() as tx:
            return tx.llm.budgets.client_view(tx.users.clients.change(tx.users.clients.get(name), change, actor))

    def remove(self, name: str, actor: str) -> None:
        """Remove a client; 409 for one of the configuration, and while agents, channels or usage refer to it."""
        with self._store.begin() as tx:
            tx.users.clients.remove(tx.users.clients.get(name), actor)
