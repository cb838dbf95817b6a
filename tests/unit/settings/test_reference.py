"""The page about the configuration."""

from pathlib import Path

from maestro.settings.keys import LEAVES
from maestro.settings.reference import REGENERATE, reference_page

ROOT = Path(__file__).parents[3]


def test_the_page_about_the_configuration_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference_page(), f"docs/configuration.md is out of date; run: {REGENERATE}"


def test_the_page_lists_every_key_and_its_variable() -> None:
    page = reference_page()
    for key in LEAVES:
        assert f"| `{key.path}` |" in page
        assert f"| `{key.variables[0]}` |" in page
