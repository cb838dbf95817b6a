"""The page is made from the results alone."""

from dataclasses import replace
from pathlib import Path

from benchmarks.__main__ import expect_seconds
from benchmarks.machine import Machine
from benchmarks.report import RESULTS, as_json, from_json, page, published_page
from benchmarks.results import Section, at_most, figure

MACHINE = Machine(
    "2026-11-22 10:00 UTC", "a processor", 2, 8.0, "Linux", "3.11.7", {"temporalio": "1"}, (0.1, 0.2, 0.3), "0.2.0"
)


def sections() -> list[Section]:
    """Return a result of two sections."""
    found = (figure("messages answered", "ms", [1, 3, 2.5], at_most(2)),)
    return [Section(name, f"About {name}", "How.", found) for name in ("cost", "latency")]


def test_results_come_back_from_their_file() -> None:
    assert from_json(as_json(MACHINE, sections())) == (MACHINE, sections())


def test_the_page_has_every_figure_with_its_target_and_rounds() -> None:
    text = page(MACHINE, sections())
    assert text.count("| messages answered | 2.50 ms | ≤ 2: MISSED | 1, 3, 2.50 |") == 2
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## About cost", "## About latency"]


def test_the_published_page_is_that_of_its_files() -> None:
    assert published_page() == RESULTS.read_text()


def test_a_part_is_expected_to_take_as_long_as_in_the_last_results(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert expect_seconds(["cost"], path) == {"cost": 1}
    path.write_text(as_json(MACHINE, [replace(one, seconds=137.0) for one in sections() if one.name == "cost"]))
    assert expect_seconds(["cost", "latency"], path) == {"cost": 137, "latency": 1}
