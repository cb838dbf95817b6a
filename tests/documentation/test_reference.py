"""The generated pages of the reference are those of the code, and leave nothing out."""

from collections.abc import Sequence
from itertools import groupby

import pytest

from maestro.cli.main import COMMANDS
from maestro.settings.keys import LEAVES
from tests.documentation.reference import PAGES, REGENERATE, ROOT

pytestmark = pytest.mark.xdist_group("documentation-reference")

MEANINGS = ("meaning", "a row", "about", "way")
"""The heads of the columns that say what a row means."""


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_is_that_of_the_code(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path](), f"{path} is out of date; run: {REGENERATE}"


def test_the_page_of_settings_lists_every_key_and_its_variable() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert [
        key.path for key in LEAVES if f"| `{key.path}` |" not in page or f"| `{key.variables[0]}` |" not in page
    ] == []


def test_the_page_of_commands_lists_every_command() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"\n## maestro {name}\n" not in page] == []


@pytest.mark.parametrize("path", PAGES)
def test_every_row_of_a_generated_table_has_its_meaning(path: str) -> None:
    tables = tables_of((ROOT / path).read_text(encoding="utf-8"))
    assert tables
    assert [row for rows in tables for row in rows if not row[find_meaning(rows[0])]] == []


def tables_of(text: str) -> list[list[list[str]]]:
    """Return the tables of a page: their rows, the head first, as cells."""
    lines = (line for line in text.splitlines() if not line.startswith("|--") and not line.startswith("| --"))
    groups = groupby(lines, key=lambda line: line.startswith("|"))
    return [[[cell.strip() for cell in line[1:-1].split(" | ")] for line in rows] for table, rows in groups if table]


def find_meaning(head: Sequence[str]) -> int:
    """Return the column of a table with the meaning of its rows."""
    return next(place for place, name in enumerate(head) if name in MEANINGS)


def test_a_row_without_a_meaning_is_found() -> None:
    [[head, row]] = tables_of("| name | type | meaning |\n|---|---|---|\n| `x` | int |  |")
    assert row[find_meaning(head)] == ""
