"""The checks of connections: Temporal, the platforms and the accounts of model providers."""

import asyncio
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from connectors.base import ConnectorState
from maestro.connector_runtime.bots import ConnectorFactory
from maestro.diagnostics.ports import Examined, broken, fine, is_healthy, note, port_uses
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType, ModelAccount, last4
from maestro.domain.llm.models import FALLBACK_WINDOW, remove_provider
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.settings.entries import AccountSettings
from maestro.installation.data_folder import SecretKeys, existing_keys
from maestro.llm.accounts import build_account, build_model_table
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.protocols import Account
from maestro.llm.translation import KeyCheck, KeyStatus, base_url, check_key
from maestro.settings import Settings
from maestro.settings.accounts import convert_account, list_models, real_accounts
from maestro.settings.addresses import temporal_endpoint
from maestro.settings.environment import PROVIDER_VARIABLES, account_variable, found_accounts
from maestro.store.inspection import read_stored_accounts
from temporal.deployments import diagnose_versions
from temporal.dispatcher import Queues
from temporal.namespace import diagnose_temporal
from temporal.server_process import HOST

TEMPORAL_CHECK = "Temporal"
WEB = "web"
WEB_CHECK = "connector web"

SET_AGAIN = "Correct it in the configuration and restart, or with `maestro connectors set`, which counts at once."

ACCOUNTS_CHECK = "accounts"

ASK_SECONDS = 3.0

NO_ACCOUNT = "no account at a provider: the built-in demo model answers, on the web connector only"
KEYLESS = frozenset({"ollama"})
ACCOUNT_VARIABLES = ("MAESTRO_LLM_ACCOUNTS", "MAESTRO__LLM__ACCOUNTS")


async def check_temporal(subject: Examined) -> list[Diagnosis]:
    """Check the Temporal server, its namespace and search attributes, and the pollers of the task queues."""
    return [*_diagnose_encryption(subject), *await _check_server(subject)]


def _diagnose_encryption(subject: Examined) -> list[Diagnosis]:
    """Return which key encrypts payloads; nothing without keys. A wrong key is a problem of the configuration."""
    keys = [entry.id for entry in subject.settings.temporal.codec.keys]
    if not keys:
        return []
    older = f"; {', '.join(keys[1:])} for decryption only" if keys[1:] else ""
    return [fine("encryption", f"the key {keys[0]} encrypts the payloads of workflows{older}")]


async def _check_server(subject: Examined) -> list[Diagnosis]:
    endpoint, server = temporal_endpoint(subject.settings), subject.server
    if not subject.settings.temporal.embedded:
        main = subject.settings.temporal.task_queue
        diagnose = diagnose_temporal(endpoint, queue_names(subject.settings)), diagnose_versions(endpoint, main)
        return [diagnosis for group in await asyncio.gather(*diagnose) for diagnosis in group]
    if subject.holder.running:
        # The embedded server may run on another port than the configured one.
        endpoint = replace(endpoint, address=f"{HOST}:{server.port}") if server is not None else endpoint
        return list(await diagnose_temporal(endpoint, queue_names(subject.settings)))
    if server is None:
        return [note(TEMPORAL_CHECK, "the embedded server is not running", "`maestro up` starts it.")]
    found = f"the server of an earlier run (process {server.pid}) was left behind at {HOST}:{server.port}"
    return [note(TEMPORAL_CHECK, found, "Nothing to do: the next `maestro up` takes it over.")]


def queue_names(settings: Settings) -> list[str]:
    """Return the names of the task queues that need a poller."""
    temporal = settings.temporal
    if temporal.embedded:
        return [temporal.task_queue]
    queues = Queues(temporal.task_queue, temporal.llm_queue, temporal.connector_queue, temporal.tools_queue)
    connectors = [(WEB, DEFAULT_ACCOUNT)] if settings.web.enabled else []
    with suppress(ConfigurationError):  # The diagnosis `check_bots` reports a platform without a connector.
        connectors += [(bot.platform, bot.account) for bot in settings.connectors.enabled_bots()]
    own = filter(None, (queues.main, queues.llm, queues.tools))
    return [*own, *(queues.connector_queue(*connector) for connector in connectors)]


async def check_connectors(subject: Examined, statuses: Sequence[ConnectorStatus]) -> list[Diagnosis]:
    """Return the diagnosis of the web connector."""
    own = [status for status in statuses if status.platform == WEB]
    if not subject.settings.web.enabled:
        return [note(WEB_CHECK, "switched off (web.enabled)")] * max(1, len(own))
    if not own:
        return [note(WEB_CHECK, "it has not run on this store yet", start_instructions(subject))]
    return await asyncio.gather(*(_diagnose_web(subject, status) for status in own))


async def _diagnose_web(subject: Examined, status: ConnectorStatus) -> Diagnosis:
    report = last_report(status)
    if status.state == ConnectorState.FAILED:
        return broken(WEB_CHECK, report, "Correct the reported cause; the next start of Maestro connects it again.")
    if status.state == ConnectorState.STOPPED or not connectors_may_run(subject):
        gone = "" if status.state == ConnectorState.STOPPED else "; its process has ended"
        return note(WEB_CHECK, f"{report}{gone}", start_instructions(subject))
    if status.state != ConnectorState.RUNNING:
        return note(WEB_CHECK, report, "If it stays in this state, restart Maestro and read its log.")
    use = next(use for use in port_uses(subject.settings) if use.health == "/health")
    if await is_healthy(use):
        return fine(WEB_CHECK, report)
    fix = "If Maestro was started with other ports, give `maestro doctor` the same options; otherwise restart it."
    return note(WEB_CHECK, f"{report}, but no Maestro answers at {use.url}", fix)


def start_instructions(subject: Examined) -> str:
    if subject.settings.temporal.embedded:
        return "`maestro up` starts it."
    return "`maestro connect web`, or `maestro up`, starts it."


def last_report(status: ConnectorStatus) -> str:
    """Return the last reported state of a connector, and its time, as one line of text."""
    age = datetime.now(UTC) - status.changed_at
    detail = f" ({status.detail})" if status.detail else ""
    return (
        f"{status.platform}/{status.account}: {status.state}{detail} since {status.changed_at:%Y-%m-%d %H:%M} UTC"
        + (f", {age.days} days ago" if age.days else "")
    )


def connectors_may_run(subject: Examined) -> bool:
    """Tell whether connectors may be running; with a Temporal cluster they may run on another machine."""
    return subject.holder.running or not subject.settings.temporal.embedded


def check_bots(subject: Examined, reported: Sequence[ConnectorStatus], rows: Sequence[BotInstance]) -> list[Diagnosis]:
    """Return a diagnosis for each bot in the store, and for each configured bot that is not in the store yet."""
    try:
        factory = ConnectorFactory.of(subject.settings, existing_keys(subject.settings, subject.environment))
        configured = subject.settings.connectors.enabled_bots()
    except ConfigurationError as error:
        return [broken("connectors", str(error), "Install the package that connects it, or correct the name.")]
    statuses = {(status.platform, status.account): status for status in reported}
    known = {(row.platform, row.account) for row in rows}
    new = [
        BotInstance(platform=bot.platform, account=bot.account, configured=True)
        for bot in configured
        if (bot.platform, bot.account) not in known
    ]
    return [_diagnose_bot(subject, factory, row, statuses.get((row.platform, row.account))) for row in (*rows, *new)]


def _diagnose_bot(
    subject: Examined, factory: ConnectorFactory, row: BotInstance, status: ConnectorStatus | None
) -> Diagnosis:
    check = f"connector {row.name}"
    if not row.enabled:
        return note(check, "switched off", f"`maestro connectors enable {row.name}` connects it.")
    try:
        factory.build_instance(row)
    except ConfigurationError as error:
        return broken(check, str(error), SET_AGAIN)
    if status is None:
        return note(check, "it has not been connected yet", "`maestro up`, or `maestro connect`, connects it.")
    if status.state == ConnectorState.FAILED:
        again = f"Once the cause is corrected on the platform, `maestro connectors enable {row.name}` retries."
        return broken(check, last_report(status), f"{SET_AGAIN} {again}")
    if status.state == ConnectorState.STOPPED or not connectors_may_run(subject):
        return note(check, last_report(status), "`maestro up`, or `maestro connect`, connects it.")
    if status.state != ConnectorState.RUNNING:
        return note(check, last_report(status), "If it stays in this state, look at the status page of the platform.")
    return fine(check, last_report(status))


def _stored_accounts(subject: Examined) -> Sequence[ModelAccount]:
    """Return the accounts in the store; none if the store cannot be read, which the check of the store reports."""
    try:
        return read_stored_accounts(subject.settings.database)
    except MaestroError:
        return ()


def _diagnose_unavailable(rows: Sequence[ModelAccount]) -> list[Diagnosis]:
    found = []
    for row in rows:
        check = f"account {row.name}"
        if row.status is AccountStatus.DISABLED:
            why = f" after {row.last_error}" if row.last_error else ""
            fix = f"Give it a working key, or `maestro accounts enable {row.name}`."
            found.append(note(check, f"the account is disabled{why} and is not called", fix))
        elif row.rate_limited_until is not None and row.rate_limited_until > datetime.now(UTC):
            until = f"{row.rate_limited_until:%Y-%m-%d %H:%M:%S} UTC"
            problem = f"the account, or one of its models, is in cool-down until {until} ({row.last_error})"
            found.append(note(check, problem))
    if rows and all(row.status is AccountStatus.DISABLED for row in rows):
        enable = "Give one a working key, or enable it with `maestro accounts enable NAME`."
        found.append(broken(ACCOUNTS_CHECK, "every account is disabled: no message can be answered", enable))
    return found


def _diagnose_command(account: Account, path: str) -> Diagnosis:
    """Check that the command of a subscription can be run; a check of its login would cost a model call."""
    check = f"account {account.name}"
    what = f"{account.provider}/{account.model}"
    command = shutil.which(CLAUDE, path=path)
    if command is None:
        return broken(
            check,
            f"{what} needs the command {CLAUDE}, which is not on the PATH",
            "Install Claude Code and log in with it, or remove the account.",
        )
    if account.home_dir and not Path(account.home_dir).expanduser().is_dir():
        login = f"Log in with CLAUDE_CONFIG_DIR={account.home_dir} {CLAUDE}, or correct homeDir."
        return broken(check, f"{what}: there is no folder {account.home_dir} with its login", login)
    return fine(check, f"{what} through {command}; the first call shows whether a user is logged in")


async def check_accounts(subject: Examined) -> list[Diagnosis]:
    """Return a diagnosis for each provider account, or a note that there is none; no request costs anything."""
    try:
        found = found_accounts(subject.environment)
        real = real_accounts(subject.settings, found)
    except ConfigurationError as error:
        return [broken(ACCOUNTS_CHECK, str(error), "Correct or unset that variable.")]
    rows = await asyncio.to_thread(_stored_accounts, subject)
    added = [row for row in rows if row.source is AccountSource.API]
    if not real and not added:
        add = "Set ANTHROPIC_API_KEY (or another provider's) and restart, or let `maestro init` write an account."
        return [note(ACCOUNTS_CHECK, NO_ACCOUNT, add)]
    keys = await asyncio.to_thread(existing_keys, subject.settings, subject.environment)
    checks = [_diagnose_configured(subject, account) for account in real]
    checks += [_diagnose_added(subject, row, keys) for row in added]
    models = [f"{account.provider}/{model}" for account in real for model in (account.model, *account.models)]
    unknown = _diagnose_unknown_windows(subject, [*models, *list_models(added)])
    return [*await asyncio.gather(*checks), *_diagnose_unavailable(rows), *unknown]


def _diagnose_unknown_windows(subject: Examined, models: list[str]) -> Iterator[Diagnosis]:
    """Yield a note for each model whose context window is unknown, with the setting that states it."""
    for model in build_model_table(subject.settings.llm.models).list_unknown_windows(models):
        found = f"its context window is not known, so prompts have at most {FALLBACK_WINDOW:,} tokens"
        entry = f'{{"llm": {{"models": [{{"name": "{remove_provider(model)}", "window": TOKENS}}]}}}}'
        yield note(f"model {model}", found, f"Put {entry} into maestro.json, with the provider's number as TOKENS.")


async def _diagnose_added(subject: Examined, row: ModelAccount, keys: SecretKeys) -> Diagnosis:
    """Check an account that an operator added while Maestro ran."""
    try:
        account = build_account(row, keys.reveal_key(row.secret) if row.secret else SecretStr(""))
    except ConfigurationError as error:
        return broken(
            f"account {row.name}", f"{row.provider}/{row.model}: {error}", "Correct that, or enter a new key."
        )
    if account.type is AccountType.CLI:
        return _diagnose_command(account, subject.environment.get("PATH", ""))
    described = f"{row.provider}/{row.model}, added with `maestro accounts` or the API"
    return _diagnose_key(described, account, await check_key(account, ASK_SECONDS))


async def _diagnose_configured(subject: Examined, settings: AccountSettings) -> Diagnosis:
    if convert_account(settings).type is AccountType.CLI:
        return _diagnose_command(convert_account(settings), subject.environment.get("PATH", ""))
    check = f"account {settings.name}"
    what = f"{settings.provider}/{settings.model}"
    variable = PROVIDER_VARIABLES.get(settings.provider, "")
    if not settings.api_key and not settings.base_url and variable and settings.provider not in KEYLESS:
        fix = f'Set its apiKey in llm.accounts, best as "env:{variable}", or remove the account.'
        return broken(check, f"{what} has no key", fix)
    key = settings.api_key.get_secret_value()
    if key:
        source = _key_source(subject, settings)
        if not re.fullmatch(r"[!-~]*", key):
            found = f"{what}: the key from {source} has a blank or an invalid character in it"
            return broken(check, found, "Copy the key again, without quotes and line breaks.")
        what += f", key{f' …{last4(key)}' if last4(key) else ''} from {source}"
    account = convert_account(settings)
    return _diagnose_key(what, account, await check_key(account, ASK_SECONDS))


def _diagnose_key(what: str, account: Account, result: KeyCheck) -> Diagnosis:
    """Return the diagnosis of an account from the check of its key.

    A public provider that cannot be reached is only a note, because the network may recover before the next message.
    The operator has to start a local server, such as Ollama.
    """
    check = f"account {account.name}"
    # Only the host and port of the address are shown: a user name or a query may hold a secret.
    address = urlsplit(base_url(account) or "").netloc.rpartition("@")[2] or "its provider"
    if result.status is KeyStatus.REFUSED:
        fix = "Make a new key at the provider, put it in the place of the old one, then restart."
        return broken(check, f"{what}: {address} refuses the key as expired or wrong ({result.detail})", fix)
    if result.status is KeyStatus.UNREACHABLE:
        found = f"{what}: {address} cannot be reached ({result.detail})"
        if account.base_url or account.provider in KEYLESS:
            return broken(check, found, f"Start the server there, or correct the baseUrl of {account.name}.")
        return note(check, found, "Check the network of this machine; the key was not checked.")
    if result.status is KeyStatus.UNKNOWN:
        return note(check, f"{what}; whether the provider accepts its key is not known ({result.detail})")
    # Ollama also accepts a name without its tag ":latest".
    names = {*result.models, *(name.removesuffix(":latest") for name in result.models)}
    if account.provider == "ollama" and account.model not in names:
        installed = ", ".join(result.models) or "none"
        return broken(check, f"{what} is not installed there; installed: {installed}", f"`ollama pull {account.model}`")
    return fine(check, f"{what}; {address} answers" if account.provider in KEYLESS else f"{what}; the key is accepted")


def _key_source(subject: Examined, settings: AccountSettings) -> str:
    if not subject.settings.llm.accounts:
        return f"the environment variable {account_variable(settings)}"
    if any(subject.environment.get(variable) for variable in ACCOUNT_VARIABLES):
        return ACCOUNT_VARIABLES[0]
    llm = subject.survey.written.get("llm")
    listed = llm.get("accounts") if isinstance(llm, dict) else None
    for entry in filter(lambda entry: isinstance(entry, dict), listed if isinstance(listed, list) else []):
        reference = entry.get("apiKey")
        if entry.get("name") == settings.name and isinstance(reference, str):
            kind, _, rest = reference.partition(":")
            if kind == "env":
                return f"the environment variable {rest}"
            return f"the file {rest}" if kind == "file" else f"{subject.survey.file} itself"
    return f"{subject.survey.file}"
