"""Limits the values of labels: a collector keeps each new series for weeks."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from maestro.domain.deliveries import DeliveryState
from maestro.domain.llm.budgets import SpendingLevel
from maestro.domain.llm.calls import CallState
from maestro.domain.metrics import UNDER_WAY, CallSample, MetricChanges
from maestro.store.engine.database import WriteHistory

MOST_WORDS = 100
LONGEST = 80
"""Characters; a name is cut there."""
OTHER = "other"
UNKNOWN = "unknown"


class Vocabulary:
    """The values of one label: the first hundred texts; every later one becomes ``other``."""

    def __init__(self, most: int = MOST_WORDS) -> None:
        self._most = most
        self._words: set[str] = set()

    def word(self, text: str) -> str:
        """Return the value for this text; ``unknown`` for an empty one."""
        word = text[:LONGEST] or UNKNOWN
        if word in self._words or len(self._words) < self._most:
            self._words.add(word)
            return word
        return OTHER


class ModelCalls:
    """The instruments for the ``llm_calls`` table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models, self._errors = Vocabulary(), Vocabulary()
        self._open = Gauge("maestro_llm_calls_in_flight", "Model calls that wait for their answer.", registry=registry)
        self._calls = Counter(
            "maestro_llm_calls",
            "Attempts at model calls that ended; interrupted: their process died, and they are repeated.",
            ["provider", "model", "outcome"],
            registry=registry,
        )
        self._failures = Counter(
            "maestro_llm_failures",
            "Attempts at model calls that failed, by the class of their error.",
            ["provider", "error"],
            registry=registry,
        )
        self._tokens = Counter(
            "maestro_llm_tokens",
            "Tokens of answered model calls, input and output; cached: those of the input that the provider had kept.",
            ["provider", "model", "direction"],
            registry=registry,
        )
        self._cost = Counter(
            "maestro_llm_cost_usd",
            "US dollars of model calls whose price is known; of interrupted ones an estimate, input only.",
            ["provider", "model", "outcome"],
            registry=registry,
        )

        self._spent = Gauge(
            "maestro_budget_spent_usd",
            "US dollars that calls cost today (UTC), those of known price; interrupted ones by their estimate.",
            registry=registry,
        )
        self._reserved = Gauge(
            "maestro_budget_reserved_usd", "US dollars that calls under way may still cost.", registry=registry
        )

    def spending(self, today: SpendingLevel) -> None:
        """Show what all calls together have spent and reserved."""
        self._spent.set(today.spent_usd)
        self._reserved.set(today.reserved_usd)

    def update(self, calls: Iterable[CallSample], still_open: int) -> None:
        """Count calls that ended, and show how many have not."""
        self._open.set(still_open)
        for call in calls:
            self._count(call)

    def _count(self, call: CallSample) -> None:
        # Provider and model come from the provider's answer, so their pairs are limited together.
        provider, _, model = self._models.word(f"{call.provider or UNKNOWN}/{call.model or UNKNOWN}").partition("/")
        site = (provider, model or provider)
        self._calls.labels(*site, call.state).inc()
        if call.cost_usd:
            self._cost.labels(*site, call.state).inc(max(call.cost_usd, 0))
        if call.state is CallState.ANSWERED:
            self._tokens.labels(*site, "input").inc(call.input_tokens)
            self._tokens.labels(*site, "output").inc(call.output_tokens)
            self._tokens.labels(*site, "cached").inc(call.cached_tokens)
        if call.state is CallState.FAILED:
            self._failures.labels(provider, self._errors.word(call.error)).inc()


class Traffic:
    """The instruments for the ``inbox``, ``ignored_lines``, ``deliveries`` and ``connectors`` tables."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._platforms = Vocabulary()
        self._received = Counter(
            "maestro_messages_received",
            "Messages taken in; one that came twice counts once.",
            ["platform"],
            registry=registry,
        )
        self._reasons = Vocabulary()
        self._ignored = Counter(
            "maestro_messages_ignored",
            "Messages dropped at the door, which are only counted, by reason.",
            ["reason"],
            registry=registry,
        )
        self._open = Gauge("maestro_deliveries_open", "Chunks of answers that are still to be sent.", registry=registry)
        self._deliveries = Counter(
            "maestro_deliveries",
            "Chunks of answers, by what became of them; unconfirmed: only the platform knows whether it arrived.",
            ["platform", "state"],
            registry=registry,
        )
        self._connectors = Gauge(
            "maestro_connector_state",
            "What each connector last said of itself: 1 for the state it is in.",
            ["platform", "account", "state"],
            registry=registry,
        )

    def update(self, news: MetricChanges) -> None:
        """Count what came and went, and show what is."""
        for platform, messages in news.received.items():
            self._received.labels(self._platforms.word(platform)).inc(messages)
        for reason, messages in news.ignored.items():
            self._ignored.labels(self._reasons.word(reason)).inc(messages)
        self._open.set(news.deliveries_open)
        for chunk in news.deliveries:
            self._deliveries.labels(self._platforms.word(chunk.platform), chunk.state).inc()
        self._connectors.clear()
        for connector in news.connectors:
            self._expect(self._platforms.word(connector.platform))
            self._connectors.labels(connector.platform, connector.account, connector.state).set(1)

    def _expect(self, platform: str) -> None:
        """Show what may be counted before it is: a series that begins with 1 is no increase to Prometheus."""
        self._received.labels(platform)
        for state in DeliveryState:
            if state not in UNDER_WAY:
                self._deliveries.labels(platform, state)


class StoreWrites:
    """The instruments for the history of writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen = WriteHistory()
        self._succeeded = Gauge(
            "maestro_store_last_write_timestamp_seconds",
            "When a write of this process to the store last succeeded, in seconds since 1970; 0 before the first.",
            registry=registry,
        )
        self._failures = Counter(
            "maestro_store_write_failures",
            "Writes of this process that the store did not take: locked for too long, or its disk full.",
            registry=registry,
        )
        self._replaced = Counter(
            "maestro_store_writers_replaced",
            "Writing connections of this process that were lost and replaced.",
            registry=registry,
        )

    def update(self, history: WriteHistory) -> None:
        """Count what happened since the last update."""
        self._succeeded.set(history.succeeded_at)
        self._failures.inc(history.failures - self._seen.failures)
        self._replaced.inc(history.replaced - self._seen.replaced)
        self._seen = history
