"""Clients: who pays for what agents do, as the configuration says."""

from maestro.domain.clients.edits import NewClient
from maestro.domain.errors import ConfigurationError, InvalidEdit
from maestro.settings import ClientSettings
from maestro.store.transaction import Transaction


def enter_clients(tx: Transaction, settings: tuple[ClientSettings, ...]) -> None:
    """Enter the configured clients; one that is gone stays, because its usage does, without a budget of its own.

    Raises ``Conflict`` when a slug is that of a client that was made in another way.
    """
    for client in settings:
        tx.clients.enter(NewClient.model_validate(client.model_dump(by_alias=False)))
    tx.clients.leave_out({client.name for client in settings})


def require_client(tx: Transaction, name: str, where: str) -> None:
    """Make sure that there is a client of this name or slug, if one is named; raises ``ConfigurationError``."""
    try:
        tx.clients.id_of(name)
    except InvalidEdit:
        raise ConfigurationError(
            f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
        ) from None
