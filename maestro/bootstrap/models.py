"""The models of a process: its accounts, those of the store included, and what reaches each of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.errors import WaitReason
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.domain.llm.models import FALLBACK_WINDOW, ModelTable, own_name
from maestro.domain.llm.prompts import ImageRef
from maestro.installation.keys import SecretKeys, last4, open_keys
from maestro.installation.storage import open_files
from maestro.llm.accounts import AccountBook
from maestro.llm.cli_runner import CliRunner
from maestro.llm.demo import DemoClient
from maestro.llm.litellm_client import AccountTransport, LiteLLMClient, LiteLLMLibrary, ProviderClients
from maestro.llm.middleware.interruption import Ready
from maestro.llm.model_map import model_table
from maestro.llm.protocols import LLMClient
from maestro.settings import AccountSettings, Settings, found_accounts, is_loopback
from maestro.settings.accounts import account_of, models_of, real_accounts, without_login
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

NO_ACCOUNT = (
    "No model account found: the built-in demo model answers. Set ANTHROPIC_API_KEY or llm.accounts in maestro.json "
    "and restart to talk to a real one, or add an account with `maestro accounts add`."
)
_SOURCES = {
    AccountSource.CONFIGURATION: "llm.accounts",
    AccountSource.ENVIRONMENT: "a key found in the environment; calls to it are paid",
    AccountSource.API: "an account that was added while Maestro ran",
}


@dataclass(frozen=True)
class Models:
    """Who answers: the end of the chain, the accounts, what is known of models, and a sentence for people.

    ``ready`` returns when a request can be sent at once. ``demo`` says that there was no account when the process
    started (docs/decisions.md: demo model).
    """

    transport: LLMClient
    ready: Ready
    book: AccountBook
    table: ModelTable
    library: LiteLLMLibrary
    demo: bool
    announcement: str
    close: Callable[[], Awaitable[None]]


def begin_library(live: LiveSettings, environment: Mapping[str, str]) -> LiteLLMLibrary:
    """Return the library that calls models; begin its import at once if the configuration has an account for it.

    The import takes two seconds of CPU time, and the store and the Temporal server are opened meanwhile.
    """
    library = LiteLLMLibrary(live.of(_answer_limit))
    if any(AccountType(account.type) is AccountType.API_KEY for account in _own_accounts(live.start, environment)):
        library.warm_up()
    return library


def build_models(live: LiveSettings, environment: Mapping[str, str], store: Store, library: LiteLLMLibrary) -> Models:
    """Enter the accounts into the store and return who answers; touches the store.

    Accounts from the environment count only when none is configured.
    """
    settings = live.start
    keys, own = open_keys(settings, environment), _own_accounts(settings, environment)
    known = _enter(store, settings, keys, own)
    book = AccountBook(store, map(account_of, own), keys.reveal, live.of(_ladder))
    table = model_table(settings.llm.models)
    with store.view() as tx:
        wanted = [model for agent in tx.agents.active() for model in (agent.model, *agent.fallbacks.split()) if model]
    unknown = table.of_unknown_window([*models_of(known), *wanted])
    if any(account.type is AccountType.API_KEY for account in known):
        library.warm_up()
    transport = AccountTransport(book, _clients(live, environment, table, library), library)
    return Models(
        transport=transport,
        ready=transport.ready,
        book=book,
        table=table,
        library=library,
        demo=not known,
        announcement="\n".join([_announcement(known), *map(_unknown_window, unknown)]),
        close=library.close,
    )


def _own_accounts(settings: Settings, environment: Mapping[str, str]) -> list[AccountSettings]:
    return real_accounts(settings, found_accounts(environment))


def _answer_limit(settings: Settings) -> int:
    return settings.llm.max_answer_bytes


def _ladder(settings: Settings) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=minutes) for minutes in settings.llm.cooldown_minutes)


def _demo_duration(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.llm.demo_seconds)


def _clients(
    live: LiveSettings, environment: Mapping[str, str], table: ModelTable, library: LiteLLMLibrary
) -> ProviderClients:
    settings = live.start
    files = open_files(settings)

    def load_image(image: ImageRef) -> bytes:
        return files.read(image.digest)

    return ProviderClients(
        http=LiteLLMClient(load_image, table, library),
        command=CliRunner(settings.data_dir / "sessions", environment),
        demo=DemoClient(live.of(_demo_duration), loopback=is_loopback(settings.web.host)),
    )


def _enter(
    store: Store, settings: Settings, keys: SecretKeys, own: Sequence[AccountSettings]
) -> Sequence[ModelAccount]:
    """Make the store say who there is, and return everybody."""
    source = AccountSource.CONFIGURATION if settings.llm.accounts else AccountSource.ENVIRONMENT
    with store.begin() as tx:
        tx.llm.accounts.enter([_row(account, source, keys, tx.now) for account in own])
        tx.jobs.wake_for_models(WaitReason.BUDGET)  # the configuration may allow more than it did
        return tx.llm.accounts.all()


def _row(settings: AccountSettings, source: AccountSource, keys: SecretKeys, now: datetime) -> ModelAccount:
    """Return what the store is told of an account: everything but its key."""
    key = settings.api_key.get_secret_value()
    account = account_of(settings)
    return ModelAccount(
        name=account.name,
        type=account.type,
        provider=account.provider,
        model=account.model,
        models=" ".join(own_name(settings.provider, model) for model in settings.models),
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


def _unknown_window(model: str) -> str:
    return (
        f"The context window of {model} is not known: prompts are kept within {FALLBACK_WINDOW:,} tokens. "
        "`maestro doctor` proposes the setting."
    )


def _announcement(known: Sequence[ModelAccount]) -> str:
    """Say who answers, before the first call that costs anything (docs/decisions.md: demo model)."""
    if not known:
        return NO_ACCOUNT
    first = min(known, key=lambda account: (account.status is not AccountStatus.ACTIVE, account.priority))
    others = f" {len(known) - 1} more may answer in its place." if len(known) > 1 else ""
    return f"Answers come from {first.provider}/{first.model} ({_SOURCES[first.source]}).{others}"
