"""Clients: who pays for what agents do, as the configuration says."""

from collections.abc import Mapping

from maestro.domain.client_edits import NewClient
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
    """Enter the configured clients; one that is gone stays, because its usage does, without a budget of its own.

    Raises ``Conflict`` when a slug is that of a client that was made in another way.
    """
    entered = {client.name: _enter(tx, client) for client in settings}
    tx.clients.leave_out(entered)
    return Clients(entered)


def _enter(tx: Transaction, settings: ClientSettings) -> int:
    return tx.clients.enter(NewClient.model_validate(settings.model_dump(by_alias=False))).id or 0
