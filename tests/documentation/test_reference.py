"""The generated pages of the reference are those of the code, and leave nothing out."""

import pytest

from maestro.cli.main import COMMANDS
from maestro.settings.keys import LEAVES
from tests.documentation.reference import PAGES, REGENERATE, ROOT

pytestmark = pytest.mark.xdist_group("documentation-reference")


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
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert rows
    assert [row for row in rows if not "".join(row.split(" | ")[1:3]).strip(" |")] == []
