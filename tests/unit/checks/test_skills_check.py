"""What ``maestro doctor`` says of skills."""

from pathlib import Path

from maestro.diagnostics.doctor import check_skills
from maestro.diagnostics.ports import Examined
from maestro.domain.health import DiagnosisLevel
from maestro.settings import survey_settings
from tests.support.skill_texts import skill_text, write_skill


def subject(folder: Path, *listed: str) -> Examined:
    """Return an installation with this folder of skills, and an agent that lists these."""
    agents = [{"slug": "ada", "skills": list(listed)}] if listed else []
    return Examined(survey_settings(None, {}, {"skills.folder": str(folder), "agents": agents}), {})


def test_the_skills_of_maestro_are_fine_without_a_folder(tmp_path: Path) -> None:
    [found] = check_skills(subject(tmp_path / "skills"))
    assert (found.verdict, found.found) == (
        DiagnosisLevel.FINE,
        f"5 of Maestro, 0 of your own in {tmp_path / 'skills'}",
    )


def test_each_problem_is_a_note_that_names_the_file(tmp_path: Path) -> None:
    write_skill(tmp_path, "tea.md", skill_text("tea", "tea", more="colour: green\n"))
    write_skill(tmp_path, "editing.md", skill_text("editing", "tea"))
    broken = write_skill(tmp_path, "broken.md", "no skill")
    whole, first, second = check_skills(subject(tmp_path))
    assert whole.found.startswith("4 of Maestro, 2 of your own")
    assert (first.verdict, second.verdict) == (DiagnosisLevel.NOTE, DiagnosisLevel.NOTE)
    assert first.found.startswith("broken.md: the file has no front matter")
    assert str(broken) in first.fix
    assert second.found.startswith("tea.md: the key 'colour' is not known")


def test_a_folder_full_of_problems_does_not_bury_the_other_checks(tmp_path: Path) -> None:
    for number in range(25):
        write_skill(tmp_path, f"{number:02}.md", "no skill")
    _, *notes = check_skills(subject(tmp_path))
    assert len(notes) == 11
    assert notes[-1].found == "15 more problems"


def test_an_agent_that_lists_a_skill_which_is_not_there_is_told(tmp_path: Path) -> None:
    _, missing = check_skills(subject(tmp_path, "editing", "editting"))
    assert (missing.verdict, "ada lists the skill editting" in missing.found) == (DiagnosisLevel.NOTE, True)
