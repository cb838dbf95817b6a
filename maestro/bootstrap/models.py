"""Builds the parts that call models: accounts, the table of models, the transport, and the chain of middleware."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from maestro.domain.errors import StoreBusy, WaitReason
from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.models import ModelTable
from maestro.domain.redaction import TextKind
from maestro.domain.settings.entries import AccountSettings
from maestro.domain.settings.section import is_loopback
from maestro.installation.data_folder import open_keys
from maestro.installation.storage import enter_accounts, open_files, preferred_models, wake_for_models
from maestro.llm.accounts import AccountBook, Estimates, build_model_table
from maestro.llm.cli_runner import CliRunner
from maestro.llm.demo import DemoClient
from maestro.llm.litellm_client import AccountTransport, LiteLLMClient, LiteLLMLibrary
from maestro.llm.middleware.failover import CircuitBreaker, Failover
from maestro.llm.middleware.limits import Deadline, RateLimit, Ready, StopGuard, StopMonitor
from maestro.llm.middleware.recorder import Budget, DraftStreaming, Recorder
from maestro.llm.middleware.replay import AnswerSpool, CallReader, ReplayGuard, keep_no_rows
from maestro.llm.middleware.request_changes import (
    CacheMarkers,
    Change,
    ChatFeed,
    Redaction,
    RequestChanges,
    SecondAttempt,
    advance_chat_cursor,
)
from maestro.llm.protocols import LLMClient, chain_middleware
from maestro.settings import Settings
from maestro.settings.accounts import (
    convert_account,
    describe_accounts,
    describe_unknown_window,
    list_models,
    real_accounts,
)
from maestro.settings.environment import found_accounts
from maestro.settings.live import LiveSettings, RedactionScope
from maestro.store.store import Store
from temporal.attempts import HeartbeatNotes


@dataclass(frozen=True)
class Models:
    """The parts that call models: transport, accounts, model table, library; and ``announcement``, for operators.

    ``answers`` stores answers, and keeps those that the store cannot take. ``ready`` returns when a request can be sent
    at once. ``demo`` is true if there was no account when the process started (docs/decisions.md: demo model).
    """

    transport: LLMClient
    ready: Ready
    book: AccountBook
    table: ModelTable
    library: LiteLLMLibrary
    answers: AnswerSpool
    demo: bool
    announcement: str
    close: Callable[[], Awaitable[None]]


def begin_library_import(live: LiveSettings, environment: Mapping[str, str]) -> LiteLLMLibrary:
    """Return the library for model calls, and begin to import it if an account of this process needs it.

    The import takes two seconds of CPU time. Meanwhile the process opens the store and starts the Temporal server.
    """
    library = LiteLLMLibrary(live.of(lambda settings: settings.llm.max_answer_bytes))
    if any(AccountType(account.type) is AccountType.API_KEY for account in process_accounts(live.start, environment)):
        library.warm_up()
    return library


def build_models(live: LiveSettings, environment: Mapping[str, str], store: Store, library: LiteLLMLibrary) -> Models:
    """Store the accounts and unstored answers, and return the parts that call the models of these accounts.

    Accounts from the environment are used only if the configuration has none.
    """
    settings = live.start
    keys, own_accounts = open_keys(settings, environment), process_accounts(settings, environment)
    known = enter_accounts(store, settings, keys, own_accounts)
    cooldowns = live.of(lambda settings: tuple(timedelta(minutes=one) for one in settings.llm.cooldown_minutes))
    book = AccountBook(store, map(convert_account, own_accounts), keys.reveal_key, cooldowns)
    table = build_model_table(settings.llm.models)
    unknown = table.list_unknown_windows([*list_models(known), *preferred_models(store)])
    if any(account.type is AccountType.API_KEY for account in known):
        library.warm_up()
    files, demo_time = open_files(settings), live.of(lambda settings: timedelta(seconds=settings.llm.demo_seconds))
    transport = AccountTransport(
        book,
        library,
        http=LiteLLMClient(lambda image: files.read_content(image.digest), table, library),
        command=CliRunner(settings.data_dir / "sessions", environment),
        demo=DemoClient(demo_time, loopback=is_loopback(settings.web.host)),
    )
    keep = advance_chat_cursor if settings.chat.enabled else keep_no_rows
    answers = AnswerSpool(store, settings.spool, keep, HeartbeatNotes())
    # An attempt on another host may wait for what an earlier process left here. If it cannot be stored now, because the
    # disk is still full or the lock still held, the next call does it.
    with suppress(StoreBusy):
        answers.commit_files()
    return Models(
        transport=transport,
        ready=transport.wait_until_ready,
        book=book,
        table=table,
        library=library,
        answers=answers,
        demo=not known,
        announcement="\n".join([describe_accounts(known), *map(describe_unknown_window, unknown)]),
        close=library.close_connections,
    )


def process_accounts(settings: Settings, environment: Mapping[str, str]) -> list[AccountSettings]:
    return real_accounts(settings, found_accounts(environment))


def build_chain(models: Models, store: Store, scope: RedactionScope, watch: StopMonitor) -> ReplayGuard:
    """Return the client through which activities call models: a chain of middleware, listed from the outside in.

    ``ReplayGuard`` returns a stored answer, or reads in one view what the other middleware needs. ``StopGuard`` lets an
    operator stop the call. ``Budget`` is checked once per call, however many accounts are tried. ``Failover`` passes
    the request to one account at a time; ``SecondAttempt``, ``CircuitBreaker`` and ``RateLimit`` apply to each account.
    ``RequestChanges`` comes before ``Recorder``, which stores the request exactly as sent, and refuses an empty answer
    before it is stored. ``DraftStreaming`` is innermost: it shows drafts of one attempt at one account.
    """
    live = scope.live
    estimates = Estimates(models.book, models.table.find_price)
    window, chat = models.table.context_window, live.start.chat.enabled
    reader = CallReader(store, models.book, live.of(lambda settings: settings.budgets), chat=chat)
    llm, breaker = live.of(lambda settings: settings.llm), live.of(lambda settings: settings.llm.breaker)
    recovered = partial(wake_for_models, store, WaitReason.PROVIDER)
    changes: list[Change] = [
        Redaction(scope.current_redaction(TextKind.PROMPTS)),
        CacheMarkers(models.book, live.of(lambda settings: settings.llm.cache)),
    ]
    if chat:
        changes.append(ChatFeed(reader, models.book, window))
    request_time = live.of(lambda settings: timedelta(seconds=settings.llm.total_timeout_seconds))
    inside = chain_middleware(
        models.transport,
        lambda inner: StopGuard(inner, watch),
        lambda inner: Budget(inner, reader, store, estimates),
        lambda inner: Failover(inner, reader, models.book, request_time, window),
        SecondAttempt,
        lambda inner: CircuitBreaker(inner, models.book, breaker, recovered=recovered),
        lambda inner: RateLimit(inner, models.book, llm, live.of(lambda settings: settings.jobs)),
        lambda inner: RequestChanges(inner, *changes),
        lambda inner: Recorder(inner, store, estimates, models.answers),
        lambda inner: Deadline(inner, request_time, models.ready),
        lambda inner: DraftStreaming(inner, store),
    )
    return ReplayGuard(inside, store, reader, models.answers)
