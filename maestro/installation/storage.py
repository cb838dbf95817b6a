"""Opens and migrates the store, writes the configured agents, accounts and bots to it, and lists folders of files."""

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from connectors.web import endpoints
from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent, NewBinding
from maestro.domain.conducting.conductor import add_conductor_prompt
from maestro.domain.errors import ConfigurationError, DataFolderBusy, InvalidEdit, OlderDatabase, WaitReason
from maestro.domain.llm.accounts import DEMO, AccountSource, ModelAccount, last4
from maestro.domain.llm.budgets import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.entries import AccountSettings, AgentSettings, ChannelSettings
from maestro.domain.values import Value, read
from maestro.installation.data_folder import DataFolder, FileLock, SecretKeys, close_to_others, signing_key_file
from maestro.settings import Settings
from maestro.settings.accounts import columns_of_settings
from maestro.store.engine.schema import check_schema, read_revision
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

CONFIGURATION = "configuration"
"""The author that an agent's history names for changes that come from the configuration."""

WAIT_SECONDS = 3.0
"""Seconds to wait for the lock of the data folder while another process migrates the tables."""


def require_client(tx: Transaction, name: str, where: str) -> None:
    """Raise ``ConfigurationError`` unless a client has this name or slug; ``where`` is the setting that names it."""
    try:
        tx.users.clients.find_id(name)
    except InvalidEdit:
        raise ConfigurationError(
            f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
        ) from None


def write_configured_rows(tx: Transaction, settings: Settings) -> None:
    """Write the configured agents, bindings and connectors into the store, and remove those no longer configured.

    A removed agent is archived, because its conversations stay; a removed binding is deleted. Agents and bindings that
    operators made are not changed. A removed client stays with its usage, but without a budget.

    Raises ``Conflict`` if an operator created a client with the same slug.
    """
    for client in settings.clients:
        tx.users.clients.set_configured(NewClient.model_validate(client.model_dump(by_alias=False)))
    tx.users.clients.remove_from_configuration({client.name for client in settings.clients})
    for agent in tx.agents.list_agents():
        tx.agents.begin_history(agent)
    for entry in settings.agents:
        _enter_agent(tx, entry)
    named, archived = {entry.slug for entry in settings.agents}, AgentChange(status=AgentStatus.ARCHIVED, force=True)
    for agent in tx.agents.list_agents():
        if agent.configured and agent.slug not in named:
            tx.agents.change(agent, archived, CONFIGURATION, "the configuration no longer names it")
            agent.configured, agent.entry = False, ""
            tx.agents.save_agent(agent)
    configured = {_enter_binding(tx, binding) for binding in settings.channels}
    for binding in tx.agents.list_bindings():
        if binding.configured and binding.id not in configured:
            tx.agents.unbind_channel_of(binding)
    web_agent = _require_agent(tx, settings.web.agent, "web.agent names") if settings.web.agent else None
    tx.agents.set_configured_agent("web", DEFAULT_ACCOUNT, web_agent)
    bots = {(bot.platform, bot.account): bot.agent for bot in settings.connectors.enabled_bots()}
    tx.bots.set_configured(
        {
            bot: _require_agent(tx, slug, f"the connector {'/'.join(bot)} names").id if slug else None
            for bot, slug in bots.items()
        }
    )


def _enter_agent(tx: Transaction, settings: AgentSettings) -> None:
    """Write an agent if its configuration entry is new, restored or changed; else the edits of operators stay."""
    require_client(tx, settings.client, f"agents: {settings.slug}")
    # Only the fields that the entry sets itself count, so that new defaults of a release do not change the digest.
    written = settings.model_dump(mode="json", by_alias=False, exclude_unset=True)
    entry = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
    agent = tx.agents.find_agent_by_slug(settings.slug)
    if agent is not None and agent.configured and agent.entry == entry:
        return
    new = read(NewAgent, {**settings.model_dump(by_alias=False), "name": settings.name or settings.slug})
    if agent is None:
        agent = tx.agents.create(new, CONFIGURATION)
    else:
        fields = add_conductor_prompt(new).model_dump(by_alias=False, exclude={"slug", "status"})
        # An agent that an operator paused stays paused as long as it is configured.
        status = {} if agent.configured else {"status": AgentStatus.ACTIVE}
        tx.agents.change(agent, read(AgentChange, {**fields, **status, "force": True}), CONFIGURATION)
    agent.configured, agent.entry = True, entry
    tx.agents.save_agent(agent)


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
    agent = tx.agents.find_agent_by_slug(slug)
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
    with FileLock(settings.data_dir / "start.lock").hold_lock():
        if not database.exists():
            # A new database needs a new signing key: old tokens refer to channels and deliveries that no longer exist.
            signing_key_file(settings).unlink(missing_ok=True)
        store = Store.open(database)
        close_to_others(database.parent.glob(f"{database.name}*"))  # the database may be outside of the locked folder
        with store.begin() as tx:
            # After a restored backup, new rows would get ids that browsers know from other messages. So ids begin
            # after the present time in milliseconds; JavaScript holds exact integers up to 2**53, the year 287396.
            floor = int(tx.now.timestamp() * 1000)
            tx.deliveries.begin_ids_after(floor)
            tx.chat.begin_ids_after(floor)
            write_configured_rows(tx, settings)
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
    check_schema(path)
    return Store(path)


def open_files(settings: Settings) -> MediaFolder:
    """Return the folder of the files that users and agents sent."""
    return MediaFolder(settings.data_dir / "media")


def upload_folder(settings: Settings) -> Path:
    """Return the folder for files that are still being uploaded."""
    return settings.data_dir / "uploads"


def sweep_uploads(settings: Settings, older_than: timedelta = timedelta()) -> None:
    """Remove incomplete uploads that are older than ``older_than``; another process may still write newer ones."""
    until = time.time() - older_than.total_seconds()
    endpoints.delete_stale_uploads(upload_folder(settings), until)
    open_files(settings).delete_stale_folders(until)


def enter_accounts(
    store: Store, settings: Settings, keys: SecretKeys, configured: Sequence[AccountSettings]
) -> Sequence[ModelAccount]:
    """Write the accounts of the configuration into the store, and return all accounts in the store."""
    source = AccountSource.CONFIGURATION if settings.llm.accounts else AccountSource.ENVIRONMENT
    with store.begin() as tx:
        tx.llm.accounts.set_configured([_account_row(account, source, keys, tx.now) for account in configured])
        tx.jobs.wake_for_models(WaitReason.BUDGET)  # The configuration may have raised a budget for which jobs wait.
        return tx.llm.accounts.list_accounts()


def _account_row(settings: AccountSettings, source: AccountSource, keys: SecretKeys, now: datetime) -> ModelAccount:
    key = settings.api_key.get_secret_value()
    return ModelAccount(
        **columns_of_settings(settings),
        source=source,
        fingerprint=keys.keyed_fingerprint(settings.provider, settings.base_url, settings.home_dir, key),
        last4=last4(key),
        created_at=now,
        updated_at=now,
    )


def preferred_models(store: Store) -> list[str]:
    """Return the models that active agents name, as first choice or fallback."""
    with store.view() as tx:
        return [
            model
            for agent in tx.agents.list_active_agents()
            for model in (agent.model, *agent.fallbacks.split())
            if model
        ]


def has_no_account(store: Store) -> bool:
    """Tell whether no account at a model provider exists; then the built-in demo model answers."""
    with store.view() as tx:
        return tx.llm.accounts.find_default_model() == DEMO


def wake_for_models(store: Store, *reasons: WaitReason) -> None:
    """Wake the jobs that wait for a model for one of these reasons; without reasons, all that wait for a model."""
    with store.begin() as tx:
        tx.jobs.wake_for_models(*reasons)


class MigrationOutcome(StrEnum):
    """The result of a migration."""

    CREATED = "created"
    UPGRADED = "upgraded"
    UNCHANGED = "unchanged"


class Migration(Value):
    """A completed migration; ``before`` and ``after`` are schema revisions, ``before`` empty for a new store."""

    outcome: MigrationOutcome
    database: Path
    before: str
    after: str


def migrate(settings: Settings) -> Migration:
    """Create the store or migrate it to this release, and write the configured agents and bindings.

    Several processes may call this at once. Migrating the store of an earlier release needs an exclusive lock on the
    folder, because processes of that release do not know the new tables.

    Raises ``DataFolderBusy`` if another process uses the old tables, and the errors of ``open_store``.
    """
    database = settings.database
    with contextlib.ExitStack() as held:
        _lock_folder(held, settings.data_dir, database)
        before = read_revision(database)
        open_store(settings).close()
        after = read_revision(database)
    outcome = MigrationOutcome.UNCHANGED if before == after else MigrationOutcome.UPGRADED
    return Migration(
        outcome=outcome if before else MigrationOutcome.CREATED, database=database, before=before, after=after
    )


def _lock_folder(held: contextlib.ExitStack, folder: Path, database: Path) -> None:
    """Lock the data folder, exclusively if the store must be migrated; raises ``DataFolderBusy``."""
    until = time.monotonic() + WAIT_SECONDS
    while _needs_migration(database):
        try:
            held.enter_context(DataFolder(folder))
        except DataFolderBusy:
            if time.monotonic() > until:
                raise
        else:
            return
    held.enter_context(DataFolder(folder, shared=True))


def _needs_migration(database: Path) -> bool:
    """Tell whether the store has the tables of an earlier release."""
    if not read_revision(database):
        return False
    try:
        check_schema(database)
    except OlderDatabase:
        return True
    return False
