"""Clients: who pays for what agents do, as the configuration says."""

from collections.abc import Mapping

from maestro.domain.budgets import Client
from maestro.domain.errors import ConfigurationError
from maestro.settings import ClientSettings
from maestro.store.transaction import Transaction


class Clients:
    """The clients of the configuration, by name."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids

    def id_of(self, name: str, where: str) -> int | None:
        """Return the id of a client named somewhere in the configuration, None for no name.

        Raises ``ConfigurationError`` when there is none of this name.
        """
        if name and name not in self._ids:
            raise ConfigurationError(
                f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
            )
        return self._ids.get(name)


def enter_clients(tx: Transaction, settings: tuple[ClientSettings, ...]) -> Clients:
    """Enter the configured clients; one that is gone stays, because its usage does, without a budget of its own."""
    entered = {client.name: _enter(tx, client) for client in settings}
    for gone in tx.budgets.clients():
        if gone.configured and gone.name not in entered:
            gone.configured, gone.daily_budget_usd = False, None
            tx.budgets.put_client(gone)
    return Clients(entered)


def _enter(tx: Transaction, settings: ClientSettings) -> int:
    client = tx.budgets.client(settings.name) or Client(name=settings.name)
    client.daily_budget_usd = settings.daily_budget_usd
    client.configured = True
    return tx.budgets.put_client(client).id or 0
