"""Builds what a process needs to call models: accounts, the table of models, and the transport."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.models import ModelTable
from maestro.installation.keys import open_keys
from maestro.installation.storage import enter_accounts, open_files, preferred_models
from maestro.llm.accounts import AccountBook
from maestro.llm.cli_runner import CliRunner
from maestro.llm.demo import DemoClient
from maestro.llm.litellm_client import AccountTransport, LiteLLMClient, LiteLLMLibrary
from maestro.llm.middleware.limits import Ready
from maestro.llm.model_map import model_table
from maestro.llm.protocols import LLMClient
from maestro.settings import AccountSettings, Settings, found_accounts, is_loopback
from maestro.settings.accounts import (
    account_of,
    describe_accounts,
    describe_unknown_window,
    models_of,
    real_accounts,
)
from maestro.settings.live import LiveSettings
from maestro.store.store import Store


@dataclass(frozen=True)
class Models:
    """The transport of model calls, its accounts, the table of models, and a sentence about the accounts for operators.

    ``ready`` returns when a request can be sent at once. ``demo`` is true if there was no account when the process
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


def begin_library_import(live: LiveSettings, environment: Mapping[str, str]) -> LiteLLMLibrary:
    """Return the library that calls models, and begin to import it if the configuration has an account for it.

    The import takes two seconds of CPU time. Meanwhile the process opens the store and starts the Temporal server.
    """
    library = LiteLLMLibrary(live.of(lambda settings: settings.llm.max_answer_bytes))
    if any(AccountType(account.type) is AccountType.API_KEY for account in _own_accounts(live.start, environment)):
        library.warm_up()
    return library


def build_models(live: LiveSettings, environment: Mapping[str, str], store: Store, library: LiteLLMLibrary) -> Models:
    """Store the accounts, and return the parts that call their models.

    Accounts from the environment are used only if the configuration has none.
    """
    settings = live.start
    keys, own_accounts = open_keys(settings, environment), _own_accounts(settings, environment)
    known = enter_accounts(store, settings, keys, own_accounts)
    cooldowns = live.of(lambda settings: tuple(timedelta(minutes=one) for one in settings.llm.cooldown_minutes))
    book = AccountBook(store, map(account_of, own_accounts), keys.reveal, cooldowns)
    table = model_table(settings.llm.models)
    unknown = table.of_unknown_window([*models_of(known), *preferred_models(store)])
    if any(account.type is AccountType.API_KEY for account in known):
        library.warm_up()
    files, demo_time = open_files(settings), live.of(lambda settings: timedelta(seconds=settings.llm.demo_seconds))
    transport = AccountTransport(
        book,
        library,
        http=LiteLLMClient(lambda image: files.read(image.digest), table, library),
        command=CliRunner(settings.data_dir / "sessions", environment),
        demo=DemoClient(demo_time, loopback=is_loopback(settings.web.host)),
    )
    return Models(
        transport=transport,
        ready=transport.ready,
        book=book,
        table=table,
        library=library,
        demo=not known,
        announcement="\n".join([describe_accounts(known), *map(describe_unknown_window, unknown)]),
        close=library.close,
    )


def _own_accounts(settings: Settings, environment: Mapping[str, str]) -> list[AccountSettings]:
    return real_accounts(settings, found_accounts(environment))
