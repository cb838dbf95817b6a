"""The accounts of the configuration, converted for model calls and for the store."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import DEMO, AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.llm.models import FALLBACK_WINDOW, api_name
from maestro.domain.settings.entries import AccountSettings
from maestro.llm.protocols import Account
from maestro.settings import Settings
from maestro.settings.problems import configuration_error, translate_errors

NO_ACCOUNT = (
    "No model account found: the built-in demo model answers. Set ANTHROPIC_API_KEY or llm.accounts in maestro.json "
    "and restart to use a real model, or add an account with `maestro accounts add`."
)


ACCOUNT_SOURCES = {
    AccountSource.CONFIGURATION: "llm.accounts",
    AccountSource.ENVIRONMENT: "a key found in the environment; calls with this key are paid",
    AccountSource.API: "an account that was added while Maestro ran",
}


def real_accounts(settings: Settings, found: tuple[AccountSettings, ...]) -> list[AccountSettings]:
    """Return the configured accounts, else ``found``, without the demo model (docs/decisions.md: demo model)."""
    return [account for account in settings.llm.accounts or found if account.provider != DEMO]


def convert_account(settings: AccountSettings) -> Account:
    """Convert an account of the configuration for model calls."""
    fields = settings.model_dump(by_alias=False, exclude={"models"})
    model = api_name(settings.provider, settings.model)
    return Account(**{**fields, "type": AccountType(settings.type), "model": model})


def columns_of_settings(settings: AccountSettings) -> dict[str, Any]:
    """Return the columns of an account's row, without the columns for its key."""
    return {
        **settings.model_dump(by_alias=False, exclude={"api_key"}),
        "type": AccountType(settings.type),
        "model": api_name(settings.provider, settings.model),
        "models": " ".join(api_name(settings.provider, model) for model in settings.models),
        "base_url": remove_login(settings.base_url),
    }


def remove_login(address: str) -> str:
    """Return an address without user name and password, which are never shown (docs/decisions.md: secrets at rest)."""
    return re.sub(r"(?<=//)[^/?#]*@", "", address)


def list_models(accounts: Iterable[ModelAccount]) -> list[str]:
    """Return the models of the accounts, as ``provider/model``."""
    return [f"{account.provider}/{model}" for account in accounts for model in (account.model, *account.models.split())]


def account_columns(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of an added account's row; raises ``ConfigurationError`` that names the invalid key."""
    try:
        entry = AccountSettings.model_validate({to_camel(name): value for name, value in fields.items()})
    except ValidationError as error:
        raise configuration_error(translate_errors(error, (), {})) from None
    if remove_login(entry.base_url) != entry.base_url:
        raise ConfigurationError(
            "baseUrl: a user name and a password in the address would be shown; leave them out, or write "
            "the account into llm.accounts of the configuration"
        )
    return columns_of_settings(entry)


def describe_unknown_window(model: str) -> str:
    return (
        f"The context window of {model} is not known: prompts are kept within {FALLBACK_WINDOW:,} tokens. "
        "`maestro doctor` proposes the setting."
    )


def describe_accounts(accounts: Sequence[ModelAccount]) -> str:
    """Return a sentence that tells operators which account answers first (docs/decisions.md: demo model)."""
    if not accounts:
        return NO_ACCOUNT
    first = min(accounts, key=lambda account: (account.status is not AccountStatus.ACTIVE, account.priority))
    others = f" {len(accounts) - 1} more may answer instead." if len(accounts) > 1 else ""
    return f"Answers come from {first.provider}/{first.model} ({ACCOUNT_SOURCES[first.source]}).{others}"
