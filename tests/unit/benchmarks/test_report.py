"""The page and the README's table are made from the results alone."""

from benchmarks.machine import Machine
from benchmarks.report import BLOCK, README, ROWS, as_json, from_json, page, readme_table
from benchmarks.results import Section, at_most, figure

MACHINE = Machine(
    "2026-11-22 10:00 UTC", "a processor", 2, 8.0, "Linux", "3.11.7", {"temporalio": "1"}, (0.1, 0.2, 0.3)
)


def sections() -> list[Section]:
    """Return a result with everything that the README quotes."""
    names = {section: [name for _, of, names in ROWS if of == section for name in names] for _, section, _ in ROWS}
    return [
        Section(
            section, f"About {section}", "How.", tuple(figure(name, "ms", [1, 3, 2.5], at_most(2)) for name in found)
        )
        for section, found in names.items()
    ]


def test_results_come_back_from_their_file() -> None:
    assert from_json(as_json(MACHINE, sections())) == (MACHINE, sections())


def test_the_page_has_every_figure_with_its_target_and_rounds() -> None:
    text = page(MACHINE, sections())
    assert text.count("| messages answered | 2.50 ms | ≤ 2: MISSED | 1, 3, 2.50 |") == 1
    assert all(f"## About {section}" in text for _, section, _ in ROWS)


def test_the_readme_has_a_place_for_its_table() -> None:
    filled = BLOCK.sub(lambda _: readme_table(sections()), README.read_text())
    assert all(f"| {label} |" in filled for label, _, _ in ROWS)
    assert filled.count("<!-- end of the figures -->") == 1
