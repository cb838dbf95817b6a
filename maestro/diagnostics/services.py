"""The diagnosis of what Maestro connects to: Temporal, the platforms and the accounts of providers."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from connectors.base import ConnectorState
from maestro.connector_runtime.factory import ConnectorFactory
from maestro.diagnostics.ports import PortUse, answers, port_uses
from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.llm.models import FALLBACK_WINDOW, bare
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import ConnectorStatus
from maestro.installation.keys import SecretKeys, existing_keys, last4
from maestro.llm.accounts import account_of_row
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.key_check import KeyCheck, KeyStatus, check_key
from maestro.llm.model_map import model_table
from maestro.llm.protocols import Account
from maestro.llm.translation import base_url
from maestro.settings import PROVIDER_VARIABLES, AccountSettings, Settings, found_accounts, variable_of
from maestro.settings.accounts import account_of, models_of, real_accounts
from maestro.settings.addresses import endpoint_of
from maestro.settings.bots import configured_bots
from maestro.store.inspection import stored_accounts
from temporal.diagnosis import diagnose
from temporal.dispatcher import Queues
from temporal.endpoint import Endpoint
from temporal.server_process import HOST

CHECK = "Temporal"

WEB = "web"

SET_AGAIN = "Correct it in the configuration and restart, or with `maestro connectors set`, which counts at once."

ACCOUNTS_CHECK = "accounts"

ASK_SECONDS = 3.0

NO_ACCOUNT = "no account at a provider: the built-in demo model answers, on the web connector only"
ADD_ONE = "Set ANTHROPIC_API_KEY (or another provider's) and restart, or let `maestro init` write an account."
COPY_AGAIN = "Copy the key again, without quotes and line breaks."
KEYLESS = frozenset({"ollama"})
ACCOUNT_VARIABLES = ("MAESTRO_LLM_ACCOUNTS", "MAESTRO__LLM__ACCOUNTS")


async def engine(subject: Examined) -> list[Diagnosis]:
    """Check the server, the namespace, the search attributes and the pollers of the queues."""
    if subject.settings.temporal.embedded and not subject.holder.running:
        return [_at_rest(subject)]
    return list(await diagnose(_endpoint(subject), queue_names(subject.settings)))


def queue_names(settings: Settings) -> list[str]:
    """Return the names of the queues that need a poller."""
    temporal = settings.temporal
    if temporal.embedded:
        return [temporal.task_queue]
    queues = Queues(temporal.task_queue, temporal.llm_queue, temporal.connector_queue)
    web = [queues.connector("web", DEFAULT_ACCOUNT)] if settings.web.enabled else []
    return [queues.main, queues.llm, *web, *(queues.connector(*place) for place in _bots(settings))]


def _bots(settings: Settings) -> list[tuple[str, str]]:
    try:
        return [(bot.platform, bot.account) for bot in configured_bots(settings)]
    except ConfigurationError:  # the check of connectors reports it
        return []


def _at_rest(subject: Examined) -> Diagnosis:
    server = subject.server
    if server is not None:
        found = f"the server of an earlier run (process {server.pid}) was left behind at {HOST}:{server.port}"
        return note(CHECK, found, "Nothing to do: the next `maestro up` takes it over.")
    return note(CHECK, "the embedded server is not running", "`maestro up` starts it.")


def _endpoint(subject: Examined) -> Endpoint:
    """Return where Temporal is; an embedded server may have been started on another port than is configured."""
    endpoint, server = endpoint_of(subject.settings), subject.server
    if subject.settings.temporal.embedded and server is not None:
        return replace(endpoint, address=f"{HOST}:{server.port}")
    return endpoint


async def connectors(subject: Examined, said: Sequence[ConnectorStatus]) -> list[Diagnosis]:
    """One line for the web connector."""
    own = [status for status in said if status.platform == WEB]
    return await asyncio.gather(*(_connector(subject, status) for status in own)) if own else [_silent(subject)]


async def _connector(subject: Examined, status: ConnectorStatus) -> Diagnosis:
    if not subject.settings.web.enabled:
        return _silent(subject)
    check = f"connector {status.platform}"
    said = last_report(status)
    if status.state == ConnectorState.FAILED:
        return broken(check, said, "Mend what it says; it is tried again with the next start.")
    if status.state == ConnectorState.STOPPED or not running(subject):
        still = "" if status.state == ConnectorState.STOPPED else "; its process is gone"
        return note(check, f"{said}{still}", _start(subject))
    if status.state != ConnectorState.RUNNING:
        return note(check, said, "If it stays like this, restart it and read what it says.")
    place = _web_port(subject)
    if place is None or await answers(place):
        return fine(check, said)
    fix = "If it was started with other ports, give `maestro doctor` the same options; otherwise restart it."
    return note(check, f"{said}, but nothing of ours answers at {place.url}", fix)


def _silent(subject: Examined) -> Diagnosis:
    if not subject.settings.web.enabled:
        return note("connector web", "switched off (web.enabled)")
    return note("connector web", "it has not run on this store yet", _start(subject))


def _start(subject: Examined) -> str:
    if subject.settings.temporal.embedded:
        return "`maestro up` starts it."
    return "`maestro connect web`, or `maestro up`, starts it."


def last_report(status: ConnectorStatus) -> str:
    """Return the last report of a connector, and its time."""
    age = datetime.now(UTC) - status.changed_at
    detail = f" ({status.detail})" if status.detail else ""
    return (
        f"{status.platform}/{status.account}: {status.state}{detail} since {status.changed_at:%Y-%m-%d %H:%M} UTC"
        + (f", {age.days} days ago" if age.days else "")
    )


def running(subject: Examined) -> bool:
    """Say whether connectors may be running: on a cluster they may run on another machine."""
    return subject.holder.running or not subject.settings.temporal.embedded


def _web_port(subject: Examined) -> PortUse | None:
    return next((place for place in port_uses(subject.settings) if place.health == "/health"), None)


def bots(subject: Examined, said: Sequence[ConnectorStatus], rows: Sequence[BotInstance]) -> list[Diagnosis]:
    """One line for each bot of the store, and for each that the configuration will add to it."""
    try:
        workshop = ConnectorFactory.of(subject.settings, existing_keys(subject.settings, subject.environment))
        configured = configured_bots(subject.settings)
    except ConfigurationError as error:
        return [broken("connectors", str(error), "Install the package that connects it, or correct the name.")]
    statuses = {(status.platform, status.account): status for status in said}
    known = {(row.platform, row.account) for row in rows}
    new = [
        BotInstance(platform=bot.platform, account=bot.account, configured=True)
        for bot in configured
        if (bot.platform, bot.account) not in known
    ]
    return [_bot(subject, workshop, row, statuses.get((row.platform, row.account))) for row in (*rows, *new)]


def _bot(subject: Examined, workshop: ConnectorFactory, row: BotInstance, status: ConnectorStatus | None) -> Diagnosis:
    check = f"connector {row.place}"
    if not row.enabled:
        return note(check, "switched off", f"`maestro connectors enable {row.place}` connects it.")
    try:
        workshop.instance(row)
    except ConfigurationError as error:
        return broken(check, str(error), SET_AGAIN)
    if status is None:
        return note(check, "it has not been connected yet", "`maestro up`, or `maestro connect`, connects it.")
    if status.state == ConnectorState.FAILED:
        again = f"Once it is mended on the platform, `maestro connectors enable {row.place}` tries again at once."
        return broken(check, last_report(status), f"{SET_AGAIN} {again}")
    if status.state == ConnectorState.STOPPED or not running(subject):
        return note(check, last_report(status), "`maestro up`, or `maestro connect`, connects it.")
    if status.state != ConnectorState.RUNNING:
        return note(check, last_report(status), "If it stays like this, see what the platform says of its own state.")
    return fine(check, last_report(status))


def stored_rows(subject: Examined) -> Sequence[ModelAccount]:
    """Return the accounts in the store; none if it cannot be read, which the check of the store reports."""
    if not os.path.exists(subject.settings.database):
        return ()
    try:
        return stored_accounts(subject.settings.database)
    except MaestroError:
        return ()


def account_states(rows: Sequence[ModelAccount]) -> list[Diagnosis]:
    """Return a line for each account that is not asked at present."""
    now = datetime.now(UTC)
    told = [said for row in rows if (said := _state(row, now)) is not None]
    if rows and all(row.status is AccountStatus.DISABLED for row in rows):
        enable = "Give one a working key, or enable it with `maestro accounts enable NAME`."
        told.append(broken(ACCOUNTS_CHECK, "every account is disabled: no message can be answered", enable))
    return told


def check_command(account: Account, path: str) -> Diagnosis:
    """Check that a subscription's command can be run; its login is not checked, because that would cost a call."""
    check = f"account {account.name}"
    what = f"{account.provider}/{account.model}"
    found = shutil.which(CLAUDE, path=path)
    if found is None:
        return broken(
            check,
            f"{what} needs the command {CLAUDE}, which is not on the PATH",
            "Install Claude Code and log in with it, or take the account out.",
        )
    if account.home_dir and not Path(account.home_dir).expanduser().is_dir():
        login = f"Log in with CLAUDE_CONFIG_DIR={account.home_dir} {CLAUDE}, or correct homeDir."
        return broken(check, f"{what}: there is no folder {account.home_dir} with its login", login)
    return fine(check, f"{what} through {found}; whether it is logged in shows at the first call")


def _state(row: ModelAccount, now: datetime) -> Diagnosis | None:
    check = f"account {row.name}"
    if row.status is AccountStatus.DISABLED:
        why = f" after {row.last_error}" if row.last_error else ""
        fix = f"Give it a working key, or `maestro accounts enable {row.name}`."
        return note(check, f"it is disabled{why} and is not asked", fix)
    if row.rate_limited_until is not None and row.rate_limited_until > now:
        until = f"{row.rate_limited_until:%Y-%m-%d %H:%M:%S} UTC"
        return note(check, f"it, or a model of it, is left alone until {until} ({row.last_error})")
    return None


async def accounts(subject: Examined) -> list[Diagnosis]:
    """Return a line for each account that would be asked, or a note that there is none; no request costs anything."""
    try:
        found = found_accounts(subject.environment)
        real = real_accounts(subject.settings, found)
    except ConfigurationError as error:
        return [broken(ACCOUNTS_CHECK, str(error), "Correct or unset that variable.")]
    rows = await asyncio.to_thread(stored_rows, subject)
    made = [row for row in rows if row.source is AccountSource.API]
    if not real and not made:
        return [note(ACCOUNTS_CHECK, NO_ACCOUNT, ADD_ONE)]
    keys = await asyncio.to_thread(existing_keys, subject.settings, subject.environment)
    looks = [_account(subject, account) for account in real] + [_made(subject, row, keys) for row in made]
    named = [f"{account.provider}/{model}" for account in real for model in (account.model, *account.models)]
    return [*await asyncio.gather(*looks), *account_states(rows), *_windows(subject, [*named, *models_of(made)])]


def _windows(subject: Examined, models: list[str]) -> Iterator[Diagnosis]:
    """Propose the setting for each model of unknown context window."""
    for model in model_table(subject.settings.llm.models).of_unknown_window(models):
        found = f"its context window is not known, so prompts are kept within {FALLBACK_WINDOW:,} tokens"
        entry = f'{{"llm": {{"models": [{{"name": "{bare(model)}", "window": TOKENS}}]}}}}'
        yield note(f"model {model}", found, f"Put {entry} into maestro.json, with the TOKENS that its provider states.")


async def _made(subject: Examined, row: ModelAccount, keys: SecretKeys) -> Diagnosis:
    """Check an account that an operator added at run time."""
    try:
        account = account_of_row(row, keys.reveal(row.secret) if row.secret else SecretStr(""))
    except ConfigurationError as error:
        return broken(f"account {row.name}", f"{row.provider}/{row.model}: {error}", "Mend that, or give it a new key.")
    if account.type is AccountType.CLI:
        return check_command(account, subject.environment.get("PATH", ""))
    described = f"{row.provider}/{row.model}, added with `maestro accounts` or the API"
    return _diagnose(described, account, await check_key(account, ASK_SECONDS))


async def _account(subject: Examined, settings: AccountSettings) -> Diagnosis:
    if account_of(settings).type is AccountType.CLI:
        return check_command(account_of(settings), subject.environment.get("PATH", ""))
    check = f"account {settings.name}"
    what = f"{settings.provider}/{settings.model}"
    variable = PROVIDER_VARIABLES.get(settings.provider, "")
    if not settings.api_key and not settings.base_url and variable and settings.provider not in KEYLESS:
        fix = f'Set its apiKey in llm.accounts, best as "env:{variable}", or take the account out.'
        return broken(check, f"{what} has no key", fix)
    if not re.fullmatch(r"[!-~]*", settings.api_key.get_secret_value()):
        place = _key_source(subject, settings)
        return broken(check, f"{what}: the key from {place} has a blank or another odd character in it", COPY_AGAIN)
    source = _source(subject, settings)
    described = f"{what}, {source}" if source else what
    account = account_of(settings)
    return _diagnose(described, account, await check_key(account, ASK_SECONDS))


def _diagnose(what: str, account: Account, asked: KeyCheck) -> Diagnosis:
    """Return the diagnosis of an account.

    A public provider that cannot be reached is only a note, because the network may recover before the next message.
    The operator has to start a local server, such as Ollama.
    """
    check, address = f"account {account.name}", _host(base_url(account))
    if asked.status is KeyStatus.REFUSED:
        fix = "Make a new key at the provider and put it where this one comes from, then restart."
        return broken(check, f"{what}: {address} refuses the key as expired or wrong ({asked.detail})", fix)
    if asked.status is KeyStatus.UNREACHABLE:
        found = f"{what}: {address} cannot be reached ({asked.detail})"
        if account.base_url or account.provider in KEYLESS:
            return broken(check, found, f"Start the server there, or correct the baseUrl of {account.name}.")
        return note(check, found, "Look at the network of this machine; whether the key is taken is not known.")
    if asked.status is KeyStatus.UNKNOWN:
        return note(check, f"{what}; whether its key is taken is not known ({asked.detail})")
    if account.provider == "ollama" and account.model not in _spellings(asked.models):
        installed = ", ".join(asked.models) or "none"
        return broken(check, f"{what} is not installed there; installed: {installed}", f"`ollama pull {account.model}`")
    return fine(check, f"{what}; {address} answers" if account.provider in KEYLESS else f"{what}; the key is taken")


def _host(address: str | None) -> str:
    """Return host and port of an address, without a user's name or anything else that may be a secret."""
    parts = urlsplit(address or "")
    return parts.netloc.rpartition("@")[2] or "its provider"


def _spellings(models: tuple[str, ...]) -> set[str]:
    """Return the installed models by every name they answer to: ``llama3`` is ``llama3:latest``."""
    return {*models, *(name.removesuffix(":latest") for name in models)}


def _source(subject: Examined, settings: AccountSettings) -> str:
    """Say where the key comes from, and how it ends."""
    key = settings.api_key.get_secret_value()
    if not key:
        return ""
    ending = f" …{last4(key)}" if last4(key) else ""
    return f"key{ending} from {_key_source(subject, settings)}"


def _key_source(subject: Examined, settings: AccountSettings) -> str:
    if not subject.settings.llm.accounts:
        return f"the environment variable {variable_of(settings)}"
    if any(subject.environment.get(variable) for variable in ACCOUNT_VARIABLES):
        return ACCOUNT_VARIABLES[0]
    for entry in _entries(subject.survey.written):
        reference = entry.get("apiKey")
        if entry.get("name") == settings.name and isinstance(reference, str):
            kind, _, rest = reference.partition(":")
            if kind == "env":
                return f"the environment variable {rest}"
            return f"the file {rest}" if kind == "file" else f"{subject.survey.file} itself"
    return f"{subject.survey.file}"


def _entries(written: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the valid account entries of the file."""
    llm = written.get("llm")
    listed = llm.get("accounts") if isinstance(llm, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
