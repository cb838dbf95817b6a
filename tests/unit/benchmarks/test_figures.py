"""Percentiles are values that were measured."""

import pytest

from benchmarks.figures import Spread, median, percentile

TEN = [float(number) for number in range(1, 11)]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5.0), (0.95, 10.0), (0.9, 9.0), (0.0, 1.0), (1.0, 10.0)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(share: float, expected: float) -> None:
    assert percentile(TEN, share) == expected


def test_the_order_of_the_values_does_not_matter() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 0.01) == percentile([7.0], 0.99) == 7.0


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_a_median_lies_between_the_two_in_the_middle() -> None:
    assert median([1.0, 2.0, 4.0, 9.0]) == 3.0


def test_a_spread_tells_count_middle_tail_and_worst() -> None:
    assert Spread.of(TEN) == Spread(count=10, p50=5.0, p95=10.0, longest=10.0)
