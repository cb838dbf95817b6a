"""The checks of model accounts: where the key comes from, whether the provider accepts it, and the account's state."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.llm.models import FALLBACK_WINDOW, bare
from maestro.installation.keys import SecretKeys, existing_keys, last4
from maestro.llm.accounts import account_of_row
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.key_check import KeyCheck, KeyStatus, check_key
from maestro.llm.model_map import model_table
from maestro.llm.protocols import Account
from maestro.llm.translation import base_url
from maestro.settings import PROVIDER_VARIABLES, AccountSettings, found_accounts, variable_of
from maestro.settings.accounts import account_of, models_of, real_accounts
from maestro.store.inspection import stored_accounts

CHECK = "accounts"

ASK_SECONDS = 3.0

NO_ACCOUNT = "no account at a provider: the built-in demo model answers, on the web connector only"
ADD_ONE = "Set ANTHROPIC_API_KEY (or another provider's) and restart, or let `maestro init` write an account."
COPY_AGAIN = "Copy the key again, without quotes and line breaks."
KEYLESS = frozenset({"ollama"})
ACCOUNT_VARIABLES = ("MAESTRO_LLM_ACCOUNTS", "MAESTRO__LLM__ACCOUNTS")


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
        told.append(broken(CHECK, "every account is disabled: no message can be answered", enable))
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
        return [broken(CHECK, str(error), "Correct or unset that variable.")]
    rows = await asyncio.to_thread(stored_rows, subject)
    made = [row for row in rows if row.source is AccountSource.API]
    if not real and not made:
        return [note(CHECK, NO_ACCOUNT, ADD_ONE)]
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
