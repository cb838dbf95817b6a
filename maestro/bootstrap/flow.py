"""The parts of the engine: the activities with what they need, the worker, the dispatcher, the reconciler."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from activities.closing import ClosingActivities
from activities.compaction import CompactionActivities, CompactionLimits
from activities.context import ContextActivities
from activities.conversations import ConversationActivities
from activities.delivery import DeliveryActivities
from activities.llm import LLMActivities
from activities.media import MediaActivities
from activities.routing import RoutingActivities
from activities.tags import TagActivities
from connectors.hub import ConnectorHub, TypingIndicators
from maestro.domain.jobs import RetryRules
from maestro.llm.protocols import LLMClient
from maestro.settings import Settings
from maestro.store.files import Files
from maestro.store.store import Store
from temporal.dispatcher import Pace
from temporal.heartbeats import Heartbeats
from temporal.journal import StepJournal
from temporal.worker import WorkerParts

PLATFORM_ATTEMPTS = 10
PLATFORM_BASE_SECONDS = 1.0
OWN_ATTEMPTS = 5


@dataclass(frozen=True)
class FlowParts:
    """What the steps of the flow work with."""

    store: Store
    files: Files
    llm: LLMClient
    default_model: str
    hub: ConnectorHub
    typing: TypingIndicators
    released: Callable[[], None]


def build_activities(parts: FlowParts, settings: Settings) -> list[Callable[..., Any]]:
    """Return every activity of the flow."""
    limits = CompactionLimits(parts.default_model, settings.llm.max_output_tokens)
    routing = RoutingActivities(parts.store, parts.typing, settings.routing.fallback_agent)
    return [
        routing.choose_agent,
        routing.show_typing,
        MediaActivities(parts.store, parts.files, parts.hub).fetch_media,
        ConversationActivities(parts.store, parts.default_model).record_message,
        CompactionActivities(parts.store, parts.llm, limits).compact_conversation,
        ContextActivities(parts.store, parts.default_model).build_context,
        LLMActivities(parts.store, parts.llm, parts.typing, settings.llm.max_output_tokens).call_model,
        TagActivities(parts.store).record_answer,
        DeliveryActivities(parts.store, parts.hub, parts.typing, parts.released).deliver,
        ClosingActivities(parts.store, parts.typing, parts.released).close_job,
    ]


def worker_parts(parts: FlowParts, settings: Settings) -> WorkerParts:
    """Return what the worker of this process runs."""
    return WorkerParts(
        task_queue=settings.temporal.task_queue,
        activities=build_activities(parts, settings),
        interceptors=(Heartbeats(), StepJournal(parts.store, retry_rules(settings))),
        drain=timedelta(seconds=settings.jobs.drain_seconds),
    )


def retry_rules(settings: Settings) -> RetryRules:
    """Return how often a failed step is tried again (decision 9)."""
    return RetryRules(
        provider_attempts=settings.jobs.max_attempts,
        provider_base=settings.jobs.backoff_base_minutes * 60,
        platform_attempts=PLATFORM_ATTEMPTS,
        platform_base=PLATFORM_BASE_SECONDS,
        own_attempts=OWN_ATTEMPTS,
        crashes=settings.jobs.crash_limit,
    )


def pace(settings: Settings) -> Pace:
    """Return how fast the engine goes."""
    return Pace(
        look=settings.jobs.dispatch_seconds,
        heartbeat=settings.temporal.heartbeat.total_seconds(),
        model=settings.llm.total_timeout_seconds,
    )
