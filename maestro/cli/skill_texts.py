"""Skills as a person reads them."""

from collections.abc import Iterator

from maestro.cli.table import lines, plain
from maestro.domain.skills.trial import SkillScoreView, SkillTrial
from maestro.domain.skills.views import SkillDetail, SkillPage, SkillView

NOTHING = "There are no skills yet: they are read when Maestro starts."
NO_MATCH = "No skill fits this message."
COLUMNS = ("slug", "name", "category", "version", "from", "state")
TRIAL_COLUMNS = ("", "skill", "points", "because of")


def listing(page: SkillPage) -> Iterator[str]:
    """Yield a table of skills, and what is wrong with files."""
    if page.items:
        yield from lines(COLUMNS, [_row(skill) for skill in page.items])
    else:
        yield NOTHING
    if page.problems:
        yield ""
        yield from (f"{plain(found.source)}: {plain(found.problem)}" for found in page.problems)


def portrait(skill: SkillDetail) -> Iterator[str]:
    """Yield everything about a skill, and at the end what it tells the model."""
    yield f"{plain(skill.name)}  {_state(skill)}"
    facts = (
        ("slug", skill.slug),
        ("about", skill.description),
        ("category", skill.category),
        ("version", skill.version),
        ("author", skill.author),
        ("file", skill.source),
        ("keywords", ", ".join(skill.keywords)),
        *(("pattern", pattern) for pattern in skill.patterns),
        ("needs", ", ".join(skill.required_tools)),
        *(("problem", problem) for problem in skill.problems),
    )
    yield from (f"  {name:<9} {plain(value)}" for name, value in facts if value)
    yield ""
    yield from (_printable(line) for line in skill.body.splitlines())


def trial(found: SkillTrial) -> Iterator[str]:
    """Yield which skills a message would bring in, and why the others would not come."""
    if not found.items:
        yield NO_MATCH
        return
    yield from lines(TRIAL_COLUMNS, [_score(score) for score in found.items])


def _row(skill: SkillView) -> tuple[str, ...]:
    origin = "Maestro" if skill.shipped else "you"
    return (skill.slug, skill.name, skill.category or "-", skill.version or "-", origin, _state(skill))


def _state(skill: SkillView) -> str:
    state = "enabled" if skill.enabled else "disabled"
    return f"{state}, with a problem" if skill.problems else state


def _score(score: SkillScoreView) -> tuple[str, ...]:
    mark = "chosen" if score.chosen else f"not chosen: {score.reason}"
    return (mark, score.slug, str(score.points), ", ".join([*score.keywords, *score.patterns]))


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else " " for character in line)
