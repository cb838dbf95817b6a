"""``maestro owner``: who is one, by which word, and what a command may change (docs/decisions.md: access)."""

import json
from pathlib import Path

import pytest

from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


def log(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]


def test_an_owner_is_added_once_and_removed_once(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("owner", "list").out.startswith("There are no owners.")
    assert maestro("owner", "add", "discord:1234").out == "discord:1234 is an owner from the next message on\n"
    assert maestro("owner", "add", "discord:1234").out == "discord:1234 is an owner already\n"
    assert maestro("owner", "remove", "discord:1234").out == "discord:1234 is no owner any more\n"
    assert maestro("owner", "remove", "discord:1234").out == "discord:1234 is no owner\n"
    assert log(rows) == [("operator", "owner.add", "discord:1234"), ("operator", "owner.remove", "discord:1234")]


def test_programs_are_told_whether_anything_changed(maestro: Maestro) -> None:
    for command, changed in (("add", True), ("add", False), ("remove", True), ("remove", False)):
        ran = maestro("owner", command, "slack:U1", "--json")
        assert (ran.code, ran.json) == (0, {"id": "slack:U1", "changed": changed})


def test_the_list_says_where_each_comes_from(maestro: Maestro, tmp_path: Path) -> None:
    assert maestro("owner", "add", "web:a:b").code == 0
    (tmp_path / "maestro.json").write_text(json.dumps({"owner": {"ids": ["slack:U2"]}}))
    head, slack, web = maestro("owner", "list").out.splitlines()
    assert head.split() == ["OWNER", "SINCE", "FROM"]
    assert slack.split() == ["slack:U2", "-", "owner.ids", "in", "maestro.json"]
    assert (web.split()[0], web.split()[-3:]) == ("web:a:b", ["added", "by", "operator"])
    page = maestro("owner", "list", "--json").json
    assert page["next"] is None
    assert [(owner["id"], owner["configured"], owner["addedBy"]) for owner in page["items"]] == [
        ("slack:U2", True, ""),
        ("web:a:b", False, "operator"),
    ]
    assert (page["items"][1]["platform"], page["items"][1]["userId"]) == ("web", "a:b")


def test_what_the_configuration_says_is_changed_there(
    rows: JobRows, maestro: Maestro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maestro.json").write_text(json.dumps({"owner": {"ids": ["slack:U2"]}}))
    assert maestro("owner", "add", "slack:U2", "--json").json["changed"] is False
    ran = maestro("owner", "remove", "slack:U2")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "owner.ids in maestro.json" in ran.err
    monkeypatch.setenv("MAESTRO_OWNER_IDS", "slack:U2")
    assert "MAESTRO_OWNER_IDS" in maestro("owner", "remove", "slack:U2").err
    assert log(rows) == []


@pytest.mark.parametrize("text", ["me", "discord:", ":1", "Discord:1", "discord:1 2"])
def test_a_malformed_id_is_wrong_usage_in_the_words_of_the_setting(maestro: Maestro, text: str) -> None:
    for command in ("add", "remove"):
        ran = maestro("owner", command, text)
        assert (ran.code, ran.out) == (2, "")
        assert "expected platform:userId, such as discord:1234" in ran.err
