"""The store of a data folder, the folders beside it, and the entries of the configuration that it gets."""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from cryptography.fernet import Fernet

from connectors.web import endpoints
from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent, NewBinding
from maestro.domain.conducting.teaching import with_prompt
from maestro.domain.errors import ConfigurationError, InvalidEdit
from maestro.domain.fields import read
from maestro.domain.llm.clients import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.data_folder import FileLock, close_to_others
from maestro.settings import AgentSettings, ChannelSettings, ClientSettings, Settings
from maestro.settings.bots import ConfiguredBot, configured_bots
from maestro.store.engine.schema import check
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

CONFIGURATION = "configuration"
"""The author, in an agent's history, of changes that come from the configuration."""

KEY_BYTES = 32


def enter_clients(tx: Transaction, settings: tuple[ClientSettings, ...]) -> None:
    """Write the configured clients; a removed one stays with its usage, but without a budget of its own.

    Raises ``Conflict`` when an operator created a client with the same slug.
    """
    for client in settings:
        tx.users.clients.enter(NewClient.model_validate(client.model_dump(by_alias=False)))
    tx.users.clients.leave_out({client.name for client in settings})


def require_client(tx: Transaction, name: str, where: str) -> None:
    """Check that a named client exists, by name or slug; raises ``ConfigurationError``."""
    try:
        tx.users.clients.id_of(name)
    except InvalidEdit:
        raise ConfigurationError(
            f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
        ) from None


def enter(tx: Transaction, settings: Settings) -> None:
    """Make the store match the configuration: write its agents and bindings, and take back removed ones.

    A removed agent is archived, because its conversations stay; a removed binding is deleted. Agents and bindings that
    operators made are not changed.
    """
    enter_clients(tx, settings.clients)
    for agent in tx.agents.all():
        tx.agents.begin_history(agent)
    for entry in settings.agents:
        _enter_agent(tx, entry)
    _archive_gone(tx, {entry.slug for entry in settings.agents})
    kept = {_bind(tx, binding) for binding in settings.channels}
    for former in tx.agents.bindings():
        if former.configured and former.id not in kept:
            tx.agents.unbind(former)
    own = _present(tx, settings.web.agent, "web.agent names") if settings.web.agent else None
    tx.agents.enter_instance("web", DEFAULT_ACCOUNT, own)
    tx.bots.keep_configured({(bot.platform, bot.account): _agent_of(tx, bot) for bot in configured_bots(settings)})


def _agent_of(tx: Transaction, bot: ConfiguredBot) -> int | None:
    """Return the id of the agent that answers all messages to a bot, if the configuration names one."""
    return _present(tx, bot.agent, f"the connector {bot.platform}/{bot.account} names").id if bot.agent else None


def _enter_agent(tx: Transaction, settings: AgentSettings) -> None:
    """Write an agent if its entry is new, back or changed; else the edits of operators stay."""
    require_client(tx, settings.client, f"agents: {settings.slug}")
    entry = _digest(settings)
    agent = tx.agents.by_slug(settings.slug)
    if agent is not None and agent.configured and agent.entry == entry:
        return
    said = {**settings.model_dump(by_alias=False), "name": settings.display_name}
    new = read(NewAgent, said)
    if agent is None:
        agent = tx.agents.create(new, CONFIGURATION)
    else:
        wanted = with_prompt(new).model_dump(by_alias=False, exclude={"slug", "status"})
        # An agent that was paused by an operator stays paused while it is configured.
        status = {} if agent.configured else {"status": AgentStatus.ACTIVE}
        tx.agents.change(agent, read(AgentChange, {**wanted, **status, "force": True}), CONFIGURATION)
    agent.configured, agent.entry = True, entry
    tx.agents.put(agent)


def _archive_gone(tx: Transaction, named: set[str]) -> None:
    archived = AgentChange(status=AgentStatus.ARCHIVED, force=True)
    for gone in tx.agents.all():
        if gone.configured and gone.slug not in named:
            tx.agents.change(gone, archived, CONFIGURATION, "the configuration no longer names it")
            gone.configured, gone.entry = False, ""
            tx.agents.put(gone)


def _digest(settings: AgentSettings) -> str:
    """Return a digest of an entry; a default that a later release changes does not change it."""
    written = settings.model_dump(mode="json", by_alias=False, exclude_unset=True)
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def _bind(tx: Transaction, settings: ChannelSettings) -> int | None:
    """Enter a binding and return its id; None while its agent is archived."""
    where = f"channels: {settings.platform}/{settings.channel}"
    agent = _present(tx, settings.agent, f"{where} is bound to")
    require_client(tx, settings.client, where)
    if agent.status is AgentStatus.ARCHIVED:
        return None
    said = settings.model_dump(by_alias=False, exclude={"agent", "permissions"})
    return tx.agents.enter_binding(agent, read(NewBinding, {**said, "permission": settings.permissions})).id


def _present(tx: Transaction, slug: str, who: str) -> Agent:
    """Return an agent that the configuration names; raises ``ConfigurationError`` without one."""
    agent = tx.agents.by_slug(slug)
    if agent is None or (agent.status is AgentStatus.ARCHIVED and not agent.configured):
        raise ConfigurationError(
            f"{who} the agent {slug!r}, which does not exist. Add it to agents, or correct the slug."
        )
    return agent


def open_store(settings: Settings) -> Store:
    """Open the store, bring it up to date and enter the configured agents and bindings.

    One process at a time: several that start together on an empty folder must not each begin afresh.
    """
    database = settings.database
    with FileLock(settings.data_dir / "start.lock").held():
        if not database.exists():
            # A new database needs a new key: old tokens refer to channels and deliveries that no longer exist.
            _key_file(settings).unlink(missing_ok=True)
        store = Store.open(database)
        close_to_others(database.parent.glob(f"{database.name}*"))  # the database may be outside of the data folder
        with store.begin() as tx:
            _renew_ids(tx)
            enter(tx, settings)
    return store


def _renew_ids(tx: Transaction) -> None:
    """Begin the ids that clients remember after the present time, in milliseconds since 1970.

    After an older backup was restored, the store would give ids again that clients have seen with other messages; a web
    client would take new answers for old ones. JavaScript counts exactly up to 2**53, which is the year 287396.
    """
    floor = int(tx.now.timestamp() * 1000)
    tx.deliveries.begin_ids_after(floor)
    tx.chat.begin_ids_after(floor)


def open_existing_store(settings: Settings) -> Store:
    """Open an existing store without migrating it, because another release may use it.

    Raises ``ConfigurationError`` without a store, ``OlderDatabase`` and ``NewerDatabase`` when this release does not
    fit.
    """
    path = settings.database
    if not path.exists():
        raise ConfigurationError(
            f"there is no Maestro database at {path}. Start Maestro once with `maestro up`, or set dataDir "
            "(--data-dir) to its data folder."
        )
    check(path)
    return Store(path)


def open_files(settings: Settings) -> MediaFolder:
    """Return the media folder."""
    return MediaFolder(settings.data_dir / "media")


def workspaces_folder(settings: Settings) -> Path:
    """Return where each conversation has a folder for the tools of its agent.

    It is not that of the command ``claude``: settings for the command that a tool wrote there would be obeyed.
    """
    return settings.data_dir / "workspaces"


def upload_folder(settings: Settings) -> Path:
    """Return the folder for files that are still being uploaded."""
    return settings.data_dir / "uploads"


def sweep_uploads(settings: Settings, older_than: timedelta = timedelta()) -> None:
    """Remove half-received files of an earlier process; in a shared folder, only those that are old enough."""
    until = time.time() - older_than.total_seconds()
    endpoints.sweep(upload_folder(settings), until)
    open_files(settings).sweep(until)


def signing_key(settings: Settings) -> bytes:
    """Return the key that signs sessions and resume tokens; made once, readable by its owner only."""
    return _read_or_make(settings, _key_file(settings), lambda: secrets.token_bytes(KEY_BYTES))


def encryption_key(settings: Settings) -> bytes:
    """Return the key that encrypts the keys of accounts; created once, readable by its owner only.

    See docs/decisions.md: secrets at rest.
    """
    return _read_or_make(settings, encryption_file(settings), Fernet.generate_key)


def encryption_file(settings: Settings) -> Path:
    """Return the file of that key; if it is lost, keys that operators typed have to be entered again."""
    return settings.data_dir / "secrets.key"


def _read_or_make(settings: Settings, path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the content of a file, created if missing; processes that start together create it once."""
    with FileLock(settings.data_dir / "start.lock").held():
        if not path.exists():
            fresh = path.with_suffix(".new")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(make())
            fresh.replace(path)
    return path.read_bytes()


def _key_file(settings: Settings) -> Path:
    return settings.data_dir / "signing.key"
