"""Plots: what is drawn is where it should be, and says what it shows."""

import re

import pytest

from api.dashboard.usage import COLOURS, OTHERS, PlotSeries, axis_values, largest_series, stacked_plot

DAYS = ("2026-11-20", "2026-11-21")


def dollars(value: float) -> str:
    return f"${value:g}"


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, (0, 1)),
        (1, (0, 0.25, 0.5, 0.75, 1)),
        (0.03, (0, 0.01, 0.02, 0.03)),
        (7, (0, 2, 4, 6, 8)),
        (10, (0, 2.5, 5, 7.5, 10)),
        (1234, (0, 500, 1000, 1500)),
        (4e-7, (0, 1e-7, 2e-7, 3e-7, 4e-7)),
    ],
)
def test_lines_across_are_round_and_reach_the_top(most: float, expected: tuple[float, ...]) -> None:
    assert axis_values(most) == pytest.approx(expected)
    assert axis_values(most)[-1] >= most


def test_the_largest_part_comes_first_and_what_is_nothing_is_left_out() -> None:
    values = {(DAYS[0], "ada"): 1.0, (DAYS[1], "ada"): 0.5, (DAYS[1], "bob"): 4.0, (DAYS[0], "eve"): 0.0}
    assert largest_series(DAYS, values) == (PlotSeries("bob", (0, 4.0)), PlotSeries("ada", (1.0, 0.5)))


@pytest.mark.parametrize("largest", ["agent-11", OTHERS])
def test_what_has_no_colour_of_its_own_is_one_part_and_nothing_is_lost(largest: str) -> None:
    values = {(DAYS[0], f"agent-{number}"): float(number) for number in range(1, 11)} | {(DAYS[0], largest): 11.0}
    parts = largest_series(DAYS, values)
    assert len(parts) == COLOURS
    assert (parts[0].label, parts[-1].label) == (largest, OTHERS)
    assert sum(sum(part.values) for part in parts) == sum(range(1, 12))


def test_as_many_parts_as_colours_need_no_others() -> None:
    values = {(DAYS[0], f"agent-{number}"): 1.0 for number in range(COLOURS)}
    assert OTHERS not in [part.label for part in largest_series(DAYS, values)]


def test_parts_stand_on_each_other_and_stay_inside() -> None:
    plot = stacked_plot(DAYS, (PlotSeries("bob", (3.0, 4.0)), PlotSeries("ada", (1.0, 0.0))), dollars)
    below, above = (re.findall(r"M([\d.]+) ([\d.]+)v(-[\d.]+)", shape) for shape in plot.shapes)
    assert (len(below), len(above)) == (2, 1), "a part of nothing has no piece"
    assert float(below[0][1]) == plot.floor
    assert float(above[0][1]) == pytest.approx(float(below[0][1]) + float(below[0][2]), abs=0.11)
    assert float(above[0][1]) + float(above[0][2]) == pytest.approx(plot.top, abs=0.11), "4 is the highest line"
    assert all(plot.left <= float(x) <= plot.right for x, _, _ in below + above)


def test_a_column_says_what_is_in_it() -> None:
    plot = stacked_plot(DAYS, (PlotSeries("bob", (3.0, 0.0)), PlotSeries("ada", (1.0, 0.0))), dollars)
    assert [column.words for column in plot.columns] == ["2026-11-20: bob $3, ada $1", "2026-11-21: nothing"]
    assert [label.words for label in plot.below] == ["11-20", "11-21"]
    assert plot.columns[0].x + plot.columns[0].width == pytest.approx(plot.columns[1].x, abs=0.11)


def test_a_year_is_named_by_a_few_days_the_last_among_them() -> None:
    names = [f"day {number}" for number in range(366)]
    plot = stacked_plot(names, (PlotSeries("ada", (1.0,) * 366),), dollars)
    assert [label.words for label in plot.below][-1] == "day 365"
    assert 4 <= len(plot.below) <= 6
    assert plot.columns[3].words == "day 3: $1", "the page of a year stays light"
    assert plot.columns[-1].x + plot.columns[-1].width <= plot.right + 1


def test_nothing_is_an_empty_plot() -> None:
    plot = stacked_plot(DAYS, (), dollars)
    assert (plot.shapes, [label.words for label in plot.across]) == ((), ["$0", "$1"])
