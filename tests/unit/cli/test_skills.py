"""``maestro skills``: what is listed, which skills a message would bring in, and how one comes and goes."""

from pathlib import Path

import pytest

from maestro.operations.skills import SkillFolder, SkillLoader
from tests.support.job_rows import JobRows
from tests.support.skill_texts import skill_text, write_skill
from tests.unit.cli.conftest import Maestro


@pytest.fixture(autouse=True)
def looked(rows: JobRows, tmp_path: Path) -> None:
    """Let a Maestro have started here once."""
    SkillLoader(rows.store, SkillFolder(tmp_path / "skills"), seconds=1).load_changes()


def actions(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(20))
        ]


def test_a_skill_is_added_switched_and_removed(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    file = write_skill(tmp_path / "drafts", "my tea.md", skill_text("tea", "tea", more="colour: green\n"))
    ran = maestro("skills", "add", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"tea is in {tmp_path / 'skills' / 'tea.md'}\nthe key 'colour' is not known")
    assert (tmp_path / "skills" / "tea.md").read_text() == file.read_text()
    assert maestro("skills", "add", str(file)).code == 1
    assert maestro("skills", "add", str(file), "--replace", "--json").json["slug"] == "tea"
    assert maestro("skills", "disable", "tea").out == "tea is disabled\n"
    assert "disabled, with a problem" in maestro("skills", "list").out
    assert maestro("skills", "enable", "tea", "--json").json["enabled"] is True
    assert maestro("skills", "remove", "tea").out == "tea is gone\n"
    assert not (tmp_path / "skills" / "tea.md").exists()
    assert "tea" not in maestro("skills", "list").out
    assert [action for _, action, _ in actions(rows)] == [
        "skill.add",
        "skill.add",
        "skill.disable",
        "skill.enable",
        "skill.remove",
    ]


def test_a_shipped_skill_is_there_again_when_ones_own_is_removed(maestro: Maestro, tmp_path: Path) -> None:
    file = write_skill(tmp_path, "mine.md", skill_text("editing", "tea"))
    maestro("skills", "add", str(file))
    assert maestro("skills", "remove", "editing").out == "editing is the shipped skill again\n"
    ran = maestro("skills", "remove", "editing")
    assert (ran.code, ran.out) == (1, "")
    assert "disable it instead" in ran.err


def test_a_skill_is_shown_with_what_brings_it_in_and_what_it_says(maestro: Maestro) -> None:
    shown = maestro("skills", "show", "code-review")
    assert shown.code == 0
    for words in ("Code review  enabled", "pull request", r"\b(review|critique", "# Reviewing code"):
        assert words in shown.out
    assert maestro("skills", "show", "code-review", "--json").json["body"].startswith("# Reviewing code")
    ran = maestro("skills", "show", "nobody")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)


def test_a_message_is_tried(maestro: Maestro) -> None:
    found = maestro("skills", "test", "prod", "is", "down,", "here", "is", "the", "traceback", "--json").json["items"]
    assert [(item["slug"], item["points"], item["chosen"]) for item in found] == [
        ("incident-response", 2, True),
        ("debugging", 1, True),
    ]
    lines = maestro("skills", "test", "prod is down, here is the traceback").out.splitlines()
    assert lines[0].split() == ["SKILL", "POINTS", "BECAUSE", "OF"]
    assert lines[2].split() == ["chosen", "debugging", "1", "traceback"]
    assert maestro("skills", "test", "hello").out == "No skill matches this message.\n"


def test_a_message_is_tried_with_the_tools_and_skills_of_an_agent(
    rows: JobRows, maestro: Maestro, tmp_path: Path
) -> None:
    for slug, tool in (("tea", "kettle"), ("sum", "calculate")):
        file = write_skill(tmp_path, "x.md", skill_text(slug, "tea", more=f"required_tools: [{tool}]\n"))
        maestro("skills", "add", str(file))
    found = maestro("skills", "test", "tea", "--agent", "ada", "--json").json["items"]
    assert [(item["slug"], item["reason"]) for item in found] == [
        ("sum", ""),
        ("tea", "the agent does not have kettle"),
    ]
    with rows.store.begin() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        assert agent is not None
        agent.skills = "editing"
        tx.agents.save_agent(agent)
    found = maestro("skills", "test", "tea", "--agent", "ada", "--json").json["items"]
    assert [item["reason"] for item in found] == ["the skill is not among the agent's skills"] * 2
    assert maestro("skills", "test", "tea", "--agent", "nobody").code == 1


def test_problems_of_files_stand_below_the_list(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    broken = write_skill(tmp_path / "skills", "broken.md", "no skill")
    SkillLoader(rows.store, SkillFolder(tmp_path / "skills"), seconds=1).load_changes()
    assert f"{broken}: the file has no front matter" in maestro("skills", "list").out
    [problem] = maestro("skills", "list", "--json").json["problems"]
    assert problem["source"] == str(broken)


def test_a_command_from_another_folder_touches_no_file(
    rows: JobRows, maestro: Maestro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "skills", "tea.md", skill_text("tea", "tea"))
    SkillLoader(rows.store, SkillFolder(tmp_path / "skills"), seconds=1).load_changes()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ran = maestro("skills", "remove", "tea", "--data-dir", str(tmp_path / "data"))
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert str(file) in ran.err
    assert file.exists()
