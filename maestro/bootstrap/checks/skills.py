"""Whether every file of skills can be used, and whether agents list skills that are there."""

from collections.abc import Iterator
from pathlib import Path

from maestro.bootstrap.checks.subject import Subject, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.skills.library import Library, arrange
from maestro.operations.skill_folder import SkillFolder
from maestro.settings import Settings

CHECK = "skills"
MOST_PROBLEMS = 10


def skills(subject: Subject) -> list[Diagnosis]:
    """Read the files as a start would; a problem keeps one skill from its work, and Maestro from nothing."""
    folder = SkillFolder(subject.settings.skills.folder)
    library = arrange(folder.read(), known=())
    own = sum(not file.shipped for file in library.taken.values())
    counted = f"{len(library.taken) - own} of Maestro, {own} of your own in {folder.own}"
    return [fine(CHECK, counted), *_problems(library), *_missing(library, subject.settings)]


def _problems(library: Library) -> Iterator[Diagnosis]:
    for source, problem in library.problems[:MOST_PROBLEMS]:
        yield note(CHECK, f"{Path(source).name}: {problem}", f"Edit {source}; a running Maestro sees it by itself.")
    more = len(library.problems) - MOST_PROBLEMS
    if more > 0:
        yield note(CHECK, f"{more} more problems", "Mend the first ones, then look again.")


def _missing(library: Library, settings: Settings) -> Iterator[Diagnosis]:
    for agent in settings.agents:
        for slug in sorted(set(agent.skills or ()) - library.taken.keys()):
            found = f"the agent {agent.slug} lists the skill {slug}, which is not there"
            yield note(CHECK, found, "Correct the slug in agents, or put the skill into the folder.")
