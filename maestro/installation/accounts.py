"""Writes the configured accounts into the store, and answers the questions about all accounts at the start."""

from collections.abc import Sequence
from datetime import datetime

from maestro.domain.errors import WaitReason
from maestro.domain.llm.accounts import DEMO, AccountSource, ModelAccount
from maestro.domain.llm.models import api_name
from maestro.installation.keys import SecretKeys, last4
from maestro.settings import AccountSettings, Settings
from maestro.settings.accounts import account_of, without_login
from maestro.store.store import Store


def enter_accounts(
    store: Store, settings: Settings, keys: SecretKeys, configured: Sequence[AccountSettings]
) -> Sequence[ModelAccount]:
    """Write the accounts of the configuration into the store, and return all accounts in the store."""
    source = AccountSource.CONFIGURATION if settings.llm.accounts else AccountSource.ENVIRONMENT
    with store.begin() as tx:
        tx.llm.accounts.set_configured([_account_row(account, source, keys, tx.now) for account in configured])
        tx.jobs.wake_for_models(WaitReason.BUDGET)  # a budget may have been raised in the configuration
        return tx.llm.accounts.all()


def _account_row(settings: AccountSettings, source: AccountSource, keys: SecretKeys, now: datetime) -> ModelAccount:
    key = settings.api_key.get_secret_value()
    account = account_of(settings)
    return ModelAccount(
        name=account.name,
        type=account.type,
        provider=account.provider,
        model=account.model,
        models=" ".join(api_name(settings.provider, model) for model in settings.models),
        base_url=without_login(account.base_url),
        home_dir=account.home_dir,
        priority=account.priority,
        source=source,
        fingerprint=keys.fingerprint(account.provider, account.base_url, account.home_dir, key),
        last4=last4(key),
        requests_per_minute=account.requests_per_minute,
        tokens_per_minute=account.tokens_per_minute,
        concurrency=account.concurrency,
        created_at=now,
        updated_at=now,
    )


def preferred_models(store: Store) -> list[str]:
    """Return the models that active agents name, as first choice or fallback."""
    with store.view() as tx:
        return [model for agent in tx.agents.active() for model in (agent.model, *agent.fallbacks.split()) if model]


def has_no_account(store: Store) -> bool:
    """Tell whether no account at a model provider exists; then the built-in demo model answers."""
    with store.view() as tx:
        return tx.llm.accounts.default_model() == DEMO


def wake_for_models(store: Store, *reasons: WaitReason) -> None:
    """Wake the jobs that wait for a model for one of these reasons; without reasons, all that wait for a model."""
    with store.begin() as tx:
        tx.jobs.wake_for_models(*reasons)
