"""Instruments of Prometheus, and a limit on their label values, because Prometheus keeps each new series for weeks."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from maestro.domain.deliveries import DeliveryState
from maestro.domain.llm.calls import CallState
from maestro.store.engine.database import WriteHistory
from maestro.store.overviews.figures import UNDER_WAY, MetricChanges

MOST_WORDS = 100
LONGEST = 80
"""The most characters of a label's value; a longer name is cut."""
OTHER = "other"
UNKNOWN = "unknown"


class LabelValues:
    """The values of one label: the first hundred texts; every later text becomes ``other``."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def value(self, text: str) -> str:
        """Return the label value for a text; ``unknown`` for an empty text."""
        value = text[:LONGEST] or UNKNOWN
        if value in self._values or len(self._values) < MOST_WORDS:
            self._values.add(value)
            return value
        return OTHER


class ModelCallMetrics:
    """The instruments that count rows of the ``llm_calls`` table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._models, self._errors = LabelValues(), LabelValues()
        self._open = gauge("maestro_llm_calls_in_flight", "Model calls that wait for their answer.")
        self._calls = counter(
            "maestro_llm_calls",
            "Ended attempts at model calls; interrupted: the process died, and the call is repeated.",
            ["provider", "model", "outcome"],
        )
        self._failures = counter(
            "maestro_llm_failures",
            "Attempts at model calls that failed, by the class of their error.",
            ["provider", "error"],
        )
        self._tokens = counter(
            "maestro_llm_tokens",
            "Tokens of answered model calls: input, output, and cached, which are input from the provider's cache.",
            ["provider", "model", "direction"],
        )
        self._cost = counter(
            "maestro_llm_cost_usd",
            "US dollars of model calls with a known price; an interrupted call counts its estimated input.",
            ["provider", "model", "outcome"],
        )
        self._spent = gauge(
            "maestro_budget_spent_usd",
            "US dollars that calls with a known price cost today (UTC); interrupted calls count by estimate.",
        )
        self._reserved = gauge("maestro_budget_reserved_usd", "US dollars that calls under way may cost at most.")

    def update(self, changes: MetricChanges) -> None:
        """Count the calls that ended; set the number of open calls, and today's spending and reservations."""
        self._open.set(changes.calls_open)
        self._spent.set(changes.spending.spent_usd)
        self._reserved.set(changes.spending.reserved_usd)
        for call in changes.calls:
            # Provider and model come from the provider's answer, so the number of pairs is limited.
            provider, _, model = self._models.value(f"{call.provider or UNKNOWN}/{call.model or UNKNOWN}").partition(
                "/"
            )
            site = (provider, model or provider)
            self._calls.labels(*site, call.state).inc()
            if call.cost_usd:
                self._cost.labels(*site, call.state).inc(max(call.cost_usd, 0))
            if call.state is CallState.ANSWERED:
                self._tokens.labels(*site, "input").inc(call.input_tokens)
                self._tokens.labels(*site, "output").inc(call.output_tokens)
                self._tokens.labels(*site, "cached").inc(call.cached_tokens)
            if call.state is CallState.FAILED:
                self._failures.labels(provider, self._errors.value(call.error)).inc()


class MessageMetrics:
    """The instruments for rows of the ``inbox``, ``ignored_lines``, ``deliveries`` and ``connectors`` tables."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._platforms, self._reasons = LabelValues(), LabelValues()
        self._received = counter(
            "maestro_messages_received", "Messages received; a repeated delivery counts once.", ["platform"]
        )
        self._ignored = counter(
            "maestro_messages_ignored", "Messages dropped at the intake, counted but not stored, by reason.", ["reason"]
        )
        self._open = gauge("maestro_deliveries_open", "Chunks of answers that are still to be sent.")
        self._deliveries = counter(
            "maestro_deliveries",
            "Chunks of answers by their final state; unconfirmed: only the platform knows whether the chunk arrived.",
            ["platform", "state"],
        )
        self._connectors = gauge(
            "maestro_connector_state",
            "The states of connectors: 1 for the state that a connector last reported.",
            ["platform", "account", "state"],
        )

    def update(self, changes: MetricChanges) -> None:
        """Count messages and chunks; set the number of open chunks and the states of connectors."""
        for platform, messages in changes.received.items():
            self._received.labels(self._platforms.value(platform)).inc(messages)
        for reason, messages in changes.ignored.items():
            self._ignored.labels(self._reasons.value(reason)).inc(messages)
        self._open.set(changes.deliveries_open)
        for chunk in changes.deliveries:
            self._deliveries.labels(self._platforms.value(chunk.platform), chunk.state).inc()
        self._connectors.clear()
        for connector in changes.connectors:
            self._connectors.labels(connector.platform, connector.account, connector.state).set(1)
            # Each series starts at 0 here, because Prometheus sees no increase in a series that starts at 1.
            platform = self._platforms.value(connector.platform)
            self._received.labels(platform)
            for state in DeliveryState:
                if state not in UNDER_WAY:
                    self._deliveries.labels(platform, state)


class StoreWriteMetrics:
    """The instruments for the writes of this process to the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._counted = WriteHistory()
        self._succeeded = Gauge(
            "maestro_store_last_write_timestamp_seconds",
            "When a write of this process to the store last succeeded, in seconds since 1970; 0 before the first.",
            registry=registry,
        )
        self._failures = counter(
            "maestro_store_write_failures",
            "Failed writes of this process: the store was locked for too long, or its disk was full.",
        )
        self._replaced = counter(
            "maestro_store_writers_replaced", "Writing connections of this process that were lost and replaced."
        )

    def update(self, history: WriteHistory) -> None:
        """Count the failures and replaced connections since the last update."""
        self._succeeded.set(history.succeeded_at)
        self._failures.inc(history.failures - self._counted.failures)
        self._replaced.inc(history.replaced - self._counted.replaced)
        self._counted = history
