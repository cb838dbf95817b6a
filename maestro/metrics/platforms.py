"""The traffic with the platforms in numbers: what comes in, what goes out, and how the connectors are."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from maestro.domain.deliveries import DeliveryState
from maestro.domain.figures import UNDER_WAY, News
from maestro.metrics.labels import Vocabulary


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

    def update(self, news: News) -> None:
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
