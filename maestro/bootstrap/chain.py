"""The middleware around every model call, and its order, which is defined only here."""

from datetime import timedelta
from functools import partial

from maestro.bootstrap.models import Models
from maestro.domain.errors import WaitReason
from maestro.domain.redaction import TextKind
from maestro.installation.storage import wake_for_models
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.failover import CircuitBreaker, Failover
from maestro.llm.middleware.limits import Deadline, RateLimit, StopGuard, StopMonitor
from maestro.llm.middleware.recorder import Budget, DraftStreaming, Recorder
from maestro.llm.middleware.replay import AnswerSpool, CallReader, ReplayGuard, write_no_further_rows
from maestro.llm.middleware.request_changes import (
    CacheMarkers,
    Change,
    ChatFeed,
    Redaction,
    RequestChanges,
    SecondAttempt,
    advance_chat_cursor,
)
from maestro.llm.protocols import chain
from maestro.settings.live import RedactionScope
from maestro.store.store import Store


def build_chain(models: Models, store: Store, scope: RedactionScope, watch: StopMonitor) -> ReplayGuard:
    """Return the client through which activities call models.

    A stored answer is returned before any other middleware runs. Else one view reads the snapshot that later middleware
    decides by. ``StopGuard`` lets an operator stop the call, and ``Budget`` is checked once per call, however many
    accounts the call tries. ``Failover`` passes the request to one account at a time, to which second attempt, circuit
    breaker and rate limit apply. Everything that changes a request precedes ``Recorder``, which stores the request
    exactly as sent, and refuses an empty answer before it is stored. Drafts of an answer are shown innermost, from one
    attempt at one account.
    """
    live = scope.live
    estimates = Estimates(models.book, models.table.price)
    window, chat = models.table.context_window, live.start.chat.enabled
    reader = CallReader(store, models.book, live.of(lambda settings: settings.budgets), chat=chat)
    llm, breaker = live.of(lambda settings: settings.llm), live.of(lambda settings: settings.llm.breaker)
    recovered = partial(wake_for_models, store, WaitReason.PROVIDER)
    changes: list[Change] = [
        Redaction(scope.of(TextKind.PROMPTS)),
        CacheMarkers(models.book, live.of(lambda settings: settings.llm.cache)),
    ]
    if chat:
        changes.append(ChatFeed(reader, models.book, window))
    answers = AnswerSpool(store, advance_chat_cursor if chat else write_no_further_rows)
    request_time = live.of(lambda settings: timedelta(seconds=settings.llm.total_timeout_seconds))
    inside = chain(
        models.transport,
        lambda inner: StopGuard(inner, watch),
        lambda inner: Budget(inner, reader, store, estimates),
        lambda inner: Failover(inner, reader, models.book, request_time, window),
        SecondAttempt,
        lambda inner: CircuitBreaker(inner, models.book, breaker, recovered=recovered),
        lambda inner: RateLimit(inner, models.book, llm, live.of(lambda settings: settings.jobs)),
        lambda inner: RequestChanges(inner, *changes),
        lambda inner: Recorder(inner, store, estimates, answers),
        lambda inner: Deadline(inner, request_time, models.ready),
        lambda inner: DraftStreaming(inner, store),
    )
    return ReplayGuard(inside, store, reader, answers)
