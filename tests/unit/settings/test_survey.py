"""A configuration read in spite of its mistakes."""

from pathlib import Path
from typing import Any

import pytest

from maestro.settings import Settings, Survey, survey_settings
from maestro.settings.loading import remove_locations
from tests.unit.settings.configured import write


def surveyed(tree: object, **environment: str) -> Survey:
    """Survey a file of this test."""
    return survey_settings(write(tree), environment, {})


def test_what_is_right_counts_beside_what_is_wrong() -> None:
    found = surveyed({"webui": {"prot": 1, "port": 9}, "web": {"port": "x"}, "jobs": {"maxPending": 7}})
    assert (found.settings.webui.port, found.settings.web.port, found.settings.jobs.max_pending) == (9, 5070, 7)
    assert len(found.problems) == 2


def test_a_sound_file_has_no_problem() -> None:
    found = surveyed({"webui": {"port": 9}})
    assert found.problems == ()
    assert found.written == {"webui": {"port": 9}}


def test_of_a_list_only_the_wrong_entries_go() -> None:
    accounts = [{"name": "a"}, {"name": "b", "provider": "openai", "apiKey": "env:NO"}, "c", {"name": "d"}]
    found = surveyed({"llm": {"accounts": accounts}})
    assert [account.name for account in found.settings.llm.accounts] == ["b"]
    assert not found.settings.llm.accounts[0].api_key
    assert len(found.problems) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":' * 100_000, "\ufeff{"])
def test_an_unreadable_file_leaves_environment_and_defaults(text: str) -> None:
    found = surveyed(text, MAESTRO_WEBUI_PORT="77", MAESTRO_MY_SECRET="named by the file only")
    assert len(found.problems) == 1
    assert found.settings.webui.port == 77


@pytest.mark.parametrize("tree", [{"webui": 8080}, {"webui": {"host": "0.0.0.0"}}, {"temporal": {"tlsCa": "PEM"}}])
def test_a_section_that_breaks_a_rule_as_a_whole_goes_as_a_whole(tree: dict[str, Any]) -> None:
    found = surveyed(tree)
    assert found.settings == Settings()
    assert len(found.problems) == 1


def test_wrong_options_are_problems_too() -> None:
    found = survey_settings(None, {}, {"temporal.address": "http://x", "webui.port": 5})
    assert found.settings.webui.port == 5
    assert "temporal.address" in found.problems[0]
    assert found.file is None


def test_a_missing_key_takes_its_entry_and_nothing_else() -> None:
    tree: dict[str, Any] = {"agents": [{"slug": "a"}, {}, {"slug": "c"}], "dataDir": "x"}
    remove_locations(tree, [("agents", 1, "slug")])
    assert tree == {"agents": [{"slug": "a"}, {"slug": "c"}], "dataDir": "x"}


def test_entries_go_from_the_end_so_that_the_right_ones_go() -> None:
    tree: dict[str, Any] = {"agents": list(range(12))}
    remove_locations(tree, [("agents", 2), ("agents", 10), ("agents", 2, "slug")])
    assert tree["agents"] == [0, 1, 3, 4, 5, 6, 7, 8, 9, 11]


def test_where_nothing_can_go_everything_does() -> None:
    tree: dict[str, Any] = {"dataDir": "x"}
    remove_locations(tree, [("nowhere",)])
    assert tree == {}


def test_a_survey_names_its_file() -> None:
    assert surveyed({}).file == Path("maestro.json")
