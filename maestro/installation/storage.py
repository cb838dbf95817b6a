"""Opens the store of a data folder with its configured agents and bindings, and names the files beside it."""

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
from maestro.domain.conducting.teaching import with_conductor_prompt
from maestro.domain.errors import ConfigurationError, InvalidEdit
from maestro.domain.fields import read
from maestro.domain.llm.clients import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.data_folder import FileLock, close_to_others
from maestro.settings import AgentSettings, ChannelSettings, ClientSettings, Settings
from maestro.settings.bots import configured_bots
from maestro.store.engine.schema import check
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

CONFIGURATION = "configuration"
"""The author that an agent's history names for changes that come from the configuration."""

KEY_BYTES = 32


def enter_clients(tx: Transaction, settings: tuple[ClientSettings, ...]) -> None:
    """Write the configured clients into the store; one that was removed stays with its usage, but without a budget.

    Raises ``Conflict`` when an operator created a client with the same slug.
    """
    for client in settings:
        tx.users.clients.set_configured(NewClient.model_validate(client.model_dump(by_alias=False)))
    tx.users.clients.leave_out({client.name for client in settings})


def require_client(tx: Transaction, name: str, where: str) -> None:
    """Raise ``ConfigurationError`` unless a client with this name or slug exists; ``where`` is the setting with it."""
    try:
        tx.users.clients.id_of(name)
    except InvalidEdit:
        raise ConfigurationError(
            f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
        ) from None


def enter(tx: Transaction, settings: Settings) -> None:
    """Write the configured agents, bindings and connectors into the store, and remove those no longer configured.

    A removed agent is archived, because its conversations stay; a removed binding is deleted. Agents and bindings of
    operators are not changed.
    """
    enter_clients(tx, settings.clients)
    for agent in tx.agents.all():
        tx.agents.begin_history(agent)
    for entry in settings.agents:
        _enter_agent(tx, entry)
    _archive_removed(tx, {entry.slug for entry in settings.agents})
    configured = {_enter_binding(tx, binding) for binding in settings.channels}
    for binding in tx.agents.bindings():
        if binding.configured and binding.id not in configured:
            tx.agents.unbind(binding)
    web_agent = _require_agent(tx, settings.web.agent, "web.agent names") if settings.web.agent else None
    tx.agents.set_configured_agent("web", DEFAULT_ACCOUNT, web_agent)
    bots = {(bot.platform, bot.account): bot.agent for bot in configured_bots(settings)}
    tx.bots.set_configured(
        {
            bot: _require_agent(tx, slug, f"the connector {'/'.join(bot)} names").id if slug else None
            for bot, slug in bots.items()
        }
    )


def _enter_agent(tx: Transaction, settings: AgentSettings) -> None:
    """Write an agent if its entry is new, restored or changed; otherwise the edits of operators stay."""
    require_client(tx, settings.client, f"agents: {settings.slug}")
    entry = _entry_digest(settings)
    agent = tx.agents.by_slug(settings.slug)
    if agent is not None and agent.configured and agent.entry == entry:
        return
    new = read(NewAgent, {**settings.model_dump(by_alias=False), "name": settings.display_name})
    if agent is None:
        agent = tx.agents.create(new, CONFIGURATION)
    else:
        fields = with_conductor_prompt(new).model_dump(by_alias=False, exclude={"slug", "status"})
        # An agent that an operator paused stays paused as long as it is configured.
        status = {} if agent.configured else {"status": AgentStatus.ACTIVE}
        tx.agents.change(agent, read(AgentChange, {**fields, **status, "force": True}), CONFIGURATION)
    agent.configured, agent.entry = True, entry
    tx.agents.put(agent)


def _archive_removed(tx: Transaction, named: set[str]) -> None:
    archived = AgentChange(status=AgentStatus.ARCHIVED, force=True)
    for agent in tx.agents.all():
        if agent.configured and agent.slug not in named:
            tx.agents.change(agent, archived, CONFIGURATION, "the configuration no longer names it")
            agent.configured, agent.entry = False, ""
            tx.agents.put(agent)


def _entry_digest(settings: AgentSettings) -> str:
    """Return a digest of the fields that an entry sets itself, so that new defaults of a release do not change it."""
    written = settings.model_dump(mode="json", by_alias=False, exclude_unset=True)
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def _enter_binding(tx: Transaction, settings: ChannelSettings) -> int | None:
    """Write a binding and return its id, or None while its agent is archived."""
    where = f"channels: {settings.platform}/{settings.channel}"
    agent = _require_agent(tx, settings.agent, f"{where} is bound to")
    require_client(tx, settings.client, where)
    if agent.status is AgentStatus.ARCHIVED:
        return None
    fields = settings.model_dump(by_alias=False, exclude={"agent", "permissions"})
    return tx.agents.set_configured_binding(agent, read(NewBinding, {**fields, "permission": settings.permissions})).id


def _require_agent(tx: Transaction, slug: str, subject: str) -> Agent:
    """Return an agent that the configuration names; raises ``ConfigurationError`` if it does not exist."""
    agent = tx.agents.by_slug(slug)
    if agent is None or (agent.status is AgentStatus.ARCHIVED and not agent.configured):
        raise ConfigurationError(
            f"{subject} the agent {slug!r}, which does not exist. Add it to agents, or correct the slug."
        )
    return agent


def open_store(settings: Settings) -> Store:
    """Open the store, migrate it, and write the configured agents and bindings.

    A lock admits one process at a time, so that processes that start together create one store.
    """
    database = settings.database
    with FileLock(settings.data_dir / "start.lock").held():
        if not database.exists():
            # A new database needs a new signing key: old tokens refer to channels and deliveries that no longer exist.
            _signing_key_file(settings).unlink(missing_ok=True)
        store = Store.open(database)
        close_to_others(database.parent.glob(f"{database.name}*"))  # the database may be outside of the locked folder
        with store.begin() as tx:
            # After a restored backup, new rows would get ids that clients have seen with other messages. So ids begin
            # after the present time in milliseconds; JavaScript holds exact integers up to 2**53, the year 287396.
            floor = int(tx.now.timestamp() * 1000)
            tx.deliveries.begin_ids_after(floor)
            tx.chat.begin_ids_after(floor)
            enter(tx, settings)
    return store


def open_existing_store(settings: Settings) -> Store:
    """Open an existing store without migrating it, because a process of another release may use it.

    Raises ``ConfigurationError`` without a store, ``OlderDatabase`` or ``NewerDatabase`` for one of another release.
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
    """Return the folder of the files that users and agents sent."""
    return MediaFolder(settings.data_dir / "media")


def workspaces_folder(settings: Settings) -> Path:
    """Return the folder that holds a workspace for each conversation, in which its agent's tools work.

    The command ``claude`` runs elsewhere, because it obeys settings in its folder, which a tool could write.
    """
    return settings.data_dir / "workspaces"


def upload_folder(settings: Settings) -> Path:
    """Return the folder for files that are still being uploaded."""
    return settings.data_dir / "uploads"


def sweep_uploads(settings: Settings, older_than: timedelta = timedelta()) -> None:
    """Remove incomplete uploads that are older than ``older_than``; another process may still write newer ones."""
    until = time.time() - older_than.total_seconds()
    endpoints.delete_stale_uploads(upload_folder(settings), until)
    open_files(settings).sweep(until)


def signing_key(settings: Settings) -> bytes:
    """Return the key that signs sessions and resume tokens, created on first use, readable by its owner only."""
    return _read_or_create(settings, _signing_key_file(settings), lambda: secrets.token_bytes(KEY_BYTES))


def encryption_key(settings: Settings) -> bytes:
    """Return the key that encrypts the keys of accounts, created on first use, readable by its owner only.

    See docs/decisions.md: secrets at rest.
    """
    return _read_or_create(settings, encryption_file(settings), Fernet.generate_key)


def encryption_file(settings: Settings) -> Path:
    """Return the path of the encryption key; if the file is lost, operators must enter the keys of accounts again."""
    return settings.data_dir / "secrets.key"


def _read_or_create(settings: Settings, path: Path, create: Callable[[], bytes]) -> bytes:
    """Return the content of a file, which one process creates if it is missing."""
    with FileLock(settings.data_dir / "start.lock").held():
        if not path.exists():
            fresh = path.with_suffix(".new")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(create())
            fresh.replace(path)
    return path.read_bytes()


def _signing_key_file(settings: Settings) -> Path:
    return settings.data_dir / "signing.key"
