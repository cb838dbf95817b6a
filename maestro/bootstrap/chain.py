"""The order of the middleware around every model call; it is written here and nowhere else."""

from datetime import timedelta
from functools import partial

from maestro.bootstrap.models import Models
from maestro.bootstrap.redaction import RedactionScope
from maestro.bootstrap.rules import daily_budgets
from maestro.domain.errors import WaitReason
from maestro.domain.redaction import TextKind
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.failover import CircuitBreaker, Failover
from maestro.llm.middleware.interruption import StopGuard, StopWatch, deadline
from maestro.llm.middleware.limits import RateLimit
from maestro.llm.middleware.recorder import Budget, DraftStreaming, Recorder
from maestro.llm.middleware.replay import AnswerSpool, CallReader, ReplayGuard, nothing_more
from maestro.llm.middleware.request_changes import (
    CacheMarkers,
    ChatFeed,
    EmptyAnswerRefusal,
    EmptyAnswerRetry,
    Redaction,
    ToolSupport,
    keep_chat_read,
)
from maestro.llm.protocols import Middleware, chain
from maestro.settings import Settings
from maestro.store.store import Store


def build_chain(models: Models, store: Store, scope: RedactionScope, watch: StopWatch) -> ReplayGuard:
    """Return the client that activities call.

    A held answer is returned before anything else happens, and where there is none, one view reads what the others
    decide by. Then an operator can stop the call, whatever it does or waits for, and the budget is asked once for it,
    however many accounts it takes. What failover hands on is a request to one account: the validator, the breaker and
    the limits see one attempt at one account each. What changes a request for good comes before the recorder, because
    what that commits is exactly what goes out; what refuses an answer stands inside of it, or a bad answer would be
    held for good, though it was paid. The last change is the feed of #maestro, behind what a provider may cache. Drafts
    of an answer are shown innermost, from one attempt at one account.
    """
    live = scope.live
    estimates = Estimates(models.book, models.table.price)
    window, chat = models.table.context_window, live.start.chat.enabled
    reader = CallReader(store, models.book, live.of(daily_budgets), chat=chat)
    tell: list[Middleware] = [lambda inner: ChatFeed(inner, reader, models.book, window)]
    keep = keep_chat_read if chat else nothing_more
    request_time = live.of(_request_time)
    llm = live.of(lambda settings: settings.llm)
    inside = chain(
        models.transport,
        lambda inner: StopGuard(inner, watch),
        lambda inner: Budget(inner, reader, store, estimates),
        lambda inner: Failover(inner, reader, models.book, request_time, window),
        EmptyAnswerRetry,
        ToolSupport,
        lambda inner: CircuitBreaker(
            inner, models.book, live.of(lambda settings: settings.llm.breaker), recovered=partial(_wake, store)
        ),
        lambda inner: RateLimit(inner, models.book, llm, live.of(lambda settings: settings.jobs)),
        lambda inner: Redaction(inner, scope.of(TextKind.PROMPTS)),
        lambda inner: CacheMarkers(inner, models.book, live.of(lambda settings: settings.llm.cache)),
        *(tell if chat else ()),
        lambda inner: Recorder(inner, store, estimates, keep),
        EmptyAnswerRefusal,
        deadline(request_time, models.ready),
        lambda inner: DraftStreaming(inner, store),
    )
    return ReplayGuard(inside, store, reader, AnswerSpool(store, keep))


def _wake(store: Store) -> None:
    """Let the jobs go on that wait for a provider."""
    with store.begin() as tx:
        tx.jobs.wake_for_models(WaitReason.PROVIDER)


def _request_time(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.llm.total_timeout_seconds)
