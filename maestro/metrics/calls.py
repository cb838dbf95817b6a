"""Model calls in numbers: how they end, the tokens they take and what they cost."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from maestro.domain.figures import CallFigure
from maestro.domain.llm.budgets import Level
from maestro.domain.llm.calls import CallState
from maestro.metrics.labels import UNKNOWN, Vocabulary


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

    def spending(self, today: Level) -> None:
        """Show what all calls together have spent and reserved."""
        self._spent.set(today.spent_usd)
        self._reserved.set(today.reserved_usd)

    def update(self, calls: Iterable[CallFigure], still_open: int) -> None:
        """Count calls that ended, and show how many have not."""
        self._open.set(still_open)
        for call in calls:
            self._count(call)

    def _count(self, call: CallFigure) -> None:
        # Both names come from the provider's answer, so they are bounded as a pair.
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
