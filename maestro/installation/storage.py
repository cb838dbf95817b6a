"""Opens and migrates the store, writes the configured agents, accounts and bots to it, and lists folders of files."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType

from connectors.web import endpoints
from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent, NewBinding
from maestro.domain.conducting.conductor import add_conductor_prompt
from maestro.domain.errors import ConfigurationError, InvalidEdit, OlderReleaseRuns, WaitReason
from maestro.domain.llm.accounts import DEMO, AccountSource, ModelAccount, last4
from maestro.domain.llm.budgets import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.entries import AccountSettings, AgentSettings, ChannelSettings
from maestro.domain.values import Value, read
from maestro.installation.data_folder import (
    RETRY_SECONDS,
    DataFolder,
    FileLock,
    KeyName,
    SecretKeys,
    close_to_others,
    fingerprint_of,
    key_source,
    signing_key_file,
)
from maestro.installation.leases import hold_start_lock
from maestro.settings import Settings
from maestro.settings.accounts import columns_of_settings
from maestro.store.engine.database import CONTRACT, name_of
from maestro.store.engine.schema import FIRST_CONTRACT, check_schema, find_next_contract, read_revision, running_message
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

CONFIGURATION = "configuration"
"""The author that an agent's history names for changes that come from the configuration."""

WAIT_SECONDS = 3.0
"""Seconds for which a migration waits for the end of processes that use what the migration removes."""


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
    with hold_start_lock(settings):
        if not store_exists(settings):
            # A new database needs a new signing key: old tokens refer to channels and deliveries that no longer exist.
            signing_key_file(settings).unlink(missing_ok=True)
        store = Store.open(database)
        if isinstance(database, Path):  # it may be outside of the locked folder
            close_to_others(database.parent.glob(f"{database.name}*"))
        with store.begin() as tx:
            # After a restored backup, new rows would get ids that browsers know from other messages. So ids begin
            # after the present time in milliseconds; JavaScript holds exact integers up to 2**53, the year 287396.
            floor = int(tx.now.timestamp() * 1000)
            tx.deliveries.begin_ids_after(floor)
            tx.chat.begin_ids_after(floor)
            write_configured_rows(tx, settings)
    return store


def require_same_keys(store: Store, settings: Settings) -> None:
    """Record the fingerprints of this host's keys in a store that hosts share, or compare them with those recorded.

    Raises ``ConfigurationError`` with the fix if this host has other keys (ADR 43).
    """
    if isinstance(settings.database, Path):
        return
    with store.begin() as tx:
        for name in KeyName:
            if not tx.system.fingerprints.record_fingerprint(name, fingerprint_of(settings, name)):
                raise ConfigurationError(describe_other_key(settings, name))


def accept_keys(settings: Settings) -> None:
    """Record the keys of this host as those of the store, for a deliberate change of keys."""
    with contextlib.closing(open_existing_store(settings)) as store, store.begin() as tx:
        for name in KeyName:
            tx.system.fingerprints.replace_fingerprint(name, fingerprint_of(settings, name))


def describe_other_key(settings: Settings, name: KeyName) -> str:
    """Return a sentence for a key that is not the one of the store, and further ones for the fix."""
    setting = f"keys.{name} (MAESTRO_KEYS_{name.upper()})"
    effect = "refuse its logins" if name is KeyName.SIGNING else "not be able to read the keys of accounts and bots"
    reading = "`base64 < signing.key`" if name is KeyName.SIGNING else "the content of secrets.key"
    return (
        f"{key_source(settings, name)} is another key than that of the store {name_of(settings.database)}: "
        f"other hosts would {effect}. Give all hosts the same {setting}: {reading} in the data folder of the host that "
        "was started first. After a deliberate change of keys, run `maestro migrate --accept-keys`."
    )


def store_exists(settings: Settings) -> bool:
    """Return whether there is a database file, or a PostgreSQL database with tables; raises ``StoreUnreadable``."""
    database = settings.database
    return database.exists() if isinstance(database, Path) else bool(read_revision(database))


def open_existing_store(settings: Settings) -> Store:
    """Open an existing store without migrating it, because a process of another release may use it.

    Raises ``ConfigurationError`` without a store, ``OlderDatabase`` or ``NewerDatabase`` for one of another release.
    """
    database = settings.database
    if not store_exists(settings):
        raise ConfigurationError(
            f"there is no Maestro database at {name_of(database)}. Start Maestro once with `maestro up`, or set "
            "dataDir (--data-dir) to its data folder."
        )
    check_schema(database)
    return Store(database)


def open_files(settings: Settings) -> MediaFolder:
    """Return the storage of the files that users and agents sent; it connects at its first use.

    Raises ``ConfigurationError`` if ``media.url`` needs a package that is not installed.
    """
    media, folder = settings.media, MediaFolder(settings.data_dir / "media")
    if not media.url:
        return folder
    bucket = _import_bucket_module()
    name, _, prefix = media.url.removeprefix("s3://").partition("/")
    address = bucket.BucketAddress(
        bucket=name,
        prefix=prefix.rstrip("/"),
        endpoint=media.endpoint.rstrip("/"),
        region=media.region,
        access_key_id=media.access_key_id,
        secret_access_key=media.secret_access_key,
        seconds=media.timeout_seconds,
    )
    files: MediaFolder = bucket.MediaBucket(settings.data_dir / "media-cache", address, media.cache_bytes, folder)
    return files


def _import_bucket_module() -> ModuleType:
    """Import the module for object storage, which only installations with ``media.url`` need."""
    try:
        return import_module("maestro.store.bucket")
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
    raise ConfigurationError(
        "media.url needs the package obstore, which is not installed. Install it with `pip install "
        "'maestro-agents[s3]'`, or leave media.url out to keep files in the data folder."
    )


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
        # The configuration may have raised a budget, and a new process does not know that a provider failed.
        tx.jobs.wake_for_models(WaitReason.BUDGET, WaitReason.PROVIDER)
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
    database: str
    before: str
    after: str


def migrate(settings: Settings) -> Migration:
    """Create the store or migrate it to this release, and write the configured agents and bindings.

    Several processes may call this at once, also beside processes of an earlier release as long as the migration only
    expands the tables (ADR 41).

    Raises ``DataFolderBusy`` if another process has the folder for itself, ``OlderReleaseRuns`` if a process still uses
    what the migration removes, and the errors of ``open_store``.
    """
    database = settings.database
    with DataFolder(settings.data_dir, shared=True):
        before = read_revision(database)
        until = time.monotonic() + WAIT_SECONDS
        while not _migrate_when_alone(settings, wait=time.monotonic() < until):
            time.sleep(RETRY_SECONDS)
        after = read_revision(database)
    outcome = MigrationOutcome.UNCHANGED if before == after else MigrationOutcome.UPGRADED
    return Migration(
        outcome=outcome if before else MigrationOutcome.CREATED, database=name_of(database), before=before, after=after
    )


def _migrate_when_alone(settings: Settings, *, wait: bool) -> bool:
    """Migrate the store; with ``wait``, return false while processes of an earlier contract hinder the migration."""
    try:
        with contextlib.ExitStack() as held:
            for contract in range(FIRST_CONTRACT, find_next_contract(settings.database)):
                held.enter_context(_hold_without_processes(settings, contract))
            open_store(settings).close()
    except OlderReleaseRuns:
        if not wait:
            raise
        return False
    return True


@contextlib.contextmanager
def _hold_without_processes(settings: Settings, contract: int) -> Iterator[None]:
    """Hold the lock of a contract alone; raises ``OlderReleaseRuns`` while a process shares it."""
    lock = contract_lock(settings, contract)
    if not lock.take_lock():
        raise OlderReleaseRuns(running_message(name_of(settings.database)))
    try:
        yield
    finally:
        lock.release_lock()


def contract_lock(settings: Settings, contract: int) -> FileLock:
    """Return the lock that each process shares while it uses the tables by a contract.

    A migration that begins a later contract needs the locks of the earlier contracts for itself.
    """
    return FileLock(settings.data_dir / f"contract-{contract}.lock")


@contextlib.contextmanager
def hold_contract(settings: Settings) -> Iterator[None]:
    """Hold the lock of this release's contract during the block, waiting for the end of a migration."""
    lock = contract_lock(settings, CONTRACT)
    lock.take_lock(shared=True, wait=True)
    try:
        yield
    finally:
        lock.release_lock()
