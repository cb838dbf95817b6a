"""The store follows the files of skills: at the start, when they change, when they break and when they go."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.skills.files import MAX_BYTES
from maestro.domain.skills.skill import SkillRow
from maestro.operations.skills import SHIPPED, SkillFolder, SkillLoader
from tests.support.job_rows import JobRows
from tests.support.skill_texts import skill_text, write_skill

SHIPPED_SLUGS = sorted(path.stem for path in SHIPPED.glob("*.md"))


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path / "data")
    yield rows
    rows.store.close()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Name the operator's folder, which is not there yet."""
    return tmp_path / "skills"


@pytest.fixture
def loader(rows: JobRows, own: Path) -> SkillLoader:
    """Return what keeps the store in line; it has looked once."""
    loader = SkillLoader(rows.store, SkillFolder(own), seconds=1)
    loader.load_changes()
    return loader


def stored(rows: JobRows) -> dict[str, SkillRow]:
    with rows.store.view() as tx:
        return {row.slug: row for row in tx.agents.skills.list_skills()}


def own_slugs(rows: JobRows) -> list[str]:
    return sorted(slug for slug, row in stored(rows).items() if not row.shipped)


def problems(rows: JobRows) -> list[tuple[str, str]]:
    with rows.store.view() as tx:
        return [(Path(found.source).name, found.problem) for found in tx.agents.skills.list_skill_problems()]


def test_the_shipped_ones_are_there_from_the_start(rows: JobRows, loader: SkillLoader) -> None:
    assert sorted(stored(rows)) == SHIPPED_SLUGS
    assert all(row.enabled and row.shipped for row in stored(rows).values())
    assert problems(rows) == []


def test_files_are_found_in_every_folder_below_but_not_hidden_ones(
    rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    write_skill(own, "tea.md", skill_text("tea", "tea"))
    write_skill(own, "deep/er/coffee.md", skill_text("coffee", "coffee"))
    for ignored in (".hidden.md", "_draft.md", ".git/x.md", "_old/y.md", "README.md", "notes.txt"):
        write_skill(own, ignored, skill_text("ignored", "tea"))
    loader.load_changes()
    assert own_slugs(rows) == ["coffee", "tea"]
    assert stored(rows)["tea"].body == "Boil water first."


def test_a_change_is_seen_and_what_an_operator_switched_off_stays_off(
    rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    path = write_skill(own, "tea.md", skill_text("tea", "tea"))
    loader.load_changes()
    with rows.store.begin() as tx:
        tx.agents.skills.set_enabled("tea", enabled=False)
    with rows.store.view() as tx:
        before = tx.system.versions.read_versions().skills
    path.write_text(skill_text("tea", "tea", "pot", body="Warm the pot."))
    loader.load_changes()
    row = stored(rows)["tea"]
    assert (row.body, row.keywords, row.enabled) == ("Warm the pot.", '["tea", "pot"]', False)
    with rows.store.begin() as tx:
        tx.agents.skills.set_enabled("tea", enabled=True)
    with rows.store.view() as tx:
        assert tx.system.versions.read_versions().skills != before
        [tea] = [skill for skill in tx.agents.skills.list_enabled_skills() if skill.slug == "tea"]
    assert (tea.body, tea.keywords) == ("Warm the pot.", ("tea", "pot"))


def test_a_broken_edit_keeps_the_last_good_version_and_shows_the_problem(
    rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    path = write_skill(own, "review.md", skill_text("code-review", "tea", body="My own way."))
    loader.load_changes()
    path.write_text("---\nslug: code-review\n")
    loader.load_changes()
    assert stored(rows)["code-review"].body == "My own way."
    [(name, problem)] = problems(rows)
    assert name == "review.md"
    assert "no front matter" in problem
    SkillLoader(rows.store, SkillFolder(own), seconds=1).load_changes()
    assert stored(rows)["code-review"].body == "My own way."
    path.write_text(skill_text("code-review", "tea", body="My better way."))
    loader.load_changes()
    assert stored(rows)["code-review"].body == "My better way."
    assert problems(rows) == []


def test_an_own_skill_replaces_a_shipped_one_which_is_back_when_the_file_is_gone(
    rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    path = write_skill(own, "mine.md", skill_text("code-review", "tea", body="My own way."))
    loader.load_changes()
    assert (stored(rows)["code-review"].body, stored(rows)["code-review"].shipped) == ("My own way.", False)
    with rows.store.begin() as tx:
        tx.agents.skills.set_enabled("code-review", enabled=False)
    path.unlink()
    loader.load_changes()
    loader.load_changes()
    row = stored(rows)["code-review"]
    assert (row.shipped, row.enabled) == (True, False)
    assert row.body.startswith("# Reviewing code")


def test_a_file_that_is_gone_for_a_moment_is_not_forgotten(rows: JobRows, own: Path, loader: SkillLoader) -> None:
    path = write_skill(own, "tea.md", skill_text("tea", "tea"))
    loader.load_changes()
    with rows.store.begin() as tx:
        tx.agents.skills.set_enabled("tea", enabled=False)
    path.unlink()
    loader.load_changes()
    assert own_slugs(rows) == ["tea"]
    path.write_text(skill_text("tea", "tea", "pot"))
    loader.load_changes()
    assert (stored(rows)["tea"].enabled, stored(rows)["tea"].keywords) == (False, '["tea", "pot"]')
    path.unlink()
    loader.load_changes()
    loader.load_changes()
    assert own_slugs(rows) == []


def test_a_file_that_goes_while_nothing_runs_is_gone_at_the_next_start(
    rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    path = write_skill(own, "tea.md", skill_text("tea", "tea"))
    loader.load_changes()
    path.unlink()
    SkillLoader(rows.store, SkillFolder(own), seconds=1).load_changes()
    assert sorted(stored(rows)) == SHIPPED_SLUGS


def test_nothing_is_written_while_no_file_changes(rows: JobRows, own: Path, loader: SkillLoader) -> None:
    path = write_skill(own, "tea.md", skill_text("tea", "tea"))
    loader.load_changes()
    before = stored(rows)["tea"].updated_at
    rows.clock.go(hours=1)
    loader.load_changes()
    os.utime(path)
    loader.load_changes()
    assert stored(rows)["tea"].updated_at == before


def test_files_that_cannot_be_read_say_so_and_hide_no_other(rows: JobRows, own: Path, loader: SkillLoader) -> None:
    write_skill(own, "tea.md", skill_text("tea", "tea", more="colour: green\n"))
    write_skill(own, "twin.md", skill_text("tea", "tea"))
    write_skill(own, "huge.md", "x" * (MAX_BYTES + 1))
    (own / "nowhere.md").symlink_to(own / "gone")
    os.mkfifo(own / "pipe.md")
    (own / os.fsdecode(b"caf\xe9.md")).write_text(skill_text("coffee", "coffee"))
    loader.load_changes()
    assert own_slugs(rows) == ["tea"]
    names = [name for name, _ in problems(rows)]
    assert names == ["caf\ufffd.md", "huge.md", "nowhere.md", "tea.md", "twin.md"]


def test_a_folder_that_is_none_is_told(rows: JobRows, own: Path) -> None:
    own.write_text("not a folder")
    SkillLoader(rows.store, SkillFolder(own), seconds=1).load_changes()
    [(name, problem)] = problems(rows)
    assert (name, problem.split(":")[0]) == ("skills", "this folder cannot be read")


def test_a_folder_that_cannot_even_be_looked_for_is_told(rows: JobRows, tmp_path: Path) -> None:
    SkillLoader(rows.store, SkillFolder(tmp_path / ("x" * 300)), seconds=1).load_changes()
    [(_, problem)] = problems(rows)
    assert problem.startswith("this folder cannot be read: File name too long")
