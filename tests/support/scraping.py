"""What a collector reads from ``/metrics``."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """One reading."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._families = list(text_string_to_metric_families(text))

    @property
    def own(self) -> Mapping[str, str]:
        """Maestro's own metrics by name, with their type."""
        return {
            family.name + ("_total" if family.type == "counter" else ""): family.type
            for family in self._families
            if family.name.startswith("maestro_")
        }

    def value(self, name: str, **labels: str) -> float:
        """Return a sample; of a metric with further labels the only one that fits; raises ``AssertionError``."""
        found = [
            sample.value
            for family in self._families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{len(found)} samples of {name} {labels} in:\n{self.text}"
        return found[0]

    def labels(self, name: str) -> set[str]:
        """Return the labels of a metric's samples, without the one that a histogram has for its buckets."""
        family = next(family for family in self._families if family.name in (name, name.removesuffix("_total")))
        return {label for sample in family.samples for label in sample.labels} - {"le"}
