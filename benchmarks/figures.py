"""Percentiles, medians and spreads of measured values."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest measured value that at least this share (0 to 1) of all values do not exceed.

    Nothing is interpolated: every published figure was measured. Raises ``ValueError`` when there are no values.
    """
    if not values:
        raise ValueError("there is no percentile of nothing")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median, between the two middle values where there are two."""
    return statistics.median(values)


@dataclass(frozen=True)
class Spread:
    """The distribution of values, in their unit."""

    count: int
    p50: float
    p95: float
    longest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(len(values), percentile(values, 0.5), percentile(values, 0.95), max(values))
