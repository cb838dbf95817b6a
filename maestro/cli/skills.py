"""List, show, test, add, enable, disable and remove skills.

A skill is a Markdown file with instructions, which a prompt includes when a message needs them. Some skills come with
Maestro. Your own are in skills.folder, by default the folder skills where Maestro is started. Your skill replaces a
shipped one with the same slug. Maestro notices changed files. docs/howto/write-a-skill.md shows how to write a skill.
"""

from pathlib import Path
from typing import Annotated

from maestro.bootstrap.tools import tool_names
from maestro.cli.framework.commands import MOST, build_input, read_bytes
from maestro.cli.framework.operations import ACTOR, CommandContext, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, enabled_text, list_lines, plain_line
from maestro.domain.skills.files import MAX_BYTES
from maestro.domain.skills.views import SkillChange, SkillTrialRequest, SkillView
from maestro.operations.skills import SkillFolder, SkillOperations
from maestro.settings.live import LiveSettings

NOTHING = "There are no skills yet: Maestro reads their files when it starts."


def _state_text(skill: SkillView) -> str:
    return f"{enabled_text(skill)}, with a problem" if skill.problems else enabled_text(skill)


COLUMNS = Columns(
    "slug name category version from state",
    {"from": lambda skill: "Maestro" if skill.shipped else "you", "state": _state_text},
)
PORTRAIT = Portrait(lambda skill: f"{plain_line(skill.name)}  {_state_text(skill)}", hide="name enabled", text="body")
TRIAL_COLUMNS = Columns(
    "_ skill=slug points because_of",
    {
        " ": lambda score: "chosen" if score.chosen else f"not chosen: {score.reason}",
        "because of": lambda score: [*score.keywords, *score.patterns],
    },
)

Slug = Annotated[str, "SLUG: The slug of the skill, as `maestro skills list` shows it."]


def _operations(at: CommandContext) -> SkillOperations:
    settings = at.loaded.settings
    return SkillOperations(at.store, SkillFolder(settings.skills.folder), tool_names(LiveSettings.from_fixed(settings)))


app = OperationCommands(__doc__, _operations, Slug, "slug")


@app.operation("list")
def list_skills(skills: SkillOperations) -> Result:
    """List the skills by slug, and the problems of skill files."""
    page = skills.list(MOST)
    problems = [f"{plain_line(view.source)}: {plain_line(view.problem)}" for view in page.problems]
    return page, [*list_lines(page, COLUMNS, NOTHING), *([""] if problems else []), *problems]


app.show("Show a skill: what selects it, and its instructions for the model.", PORTRAIT)


@app.operation("test")
def try_message(
    skills: SkillOperations,
    message: Annotated[list[str], "MESSAGE: What a user might write."],
    agent: Annotated[str, "--agent SLUG: Test with this agent's tools and skills."] = "",
) -> Result:
    """Show which skills a message would add, and why; no message is sent, and no model is called."""
    trial = skills.trial(build_input(SkillTrialRequest, message=" ".join(message), agent=agent))
    return trial, list_lines(trial, TRIAL_COLUMNS, "No skill matches this message.")


@app.operation()
def add(
    skills: SkillOperations,
    file: Annotated[Path, "FILE: A Markdown file with front matter."],
    replace: Annotated[bool, "--replace: Replace your own skill with this slug."] = False,
) -> Result:
    """Copy a skill into your folder; it is used from the next message on."""
    skill = skills.add(read_bytes(file, MAX_BYTES + 1), ACTOR, replace=replace)
    return skill, [f"{skill.slug} is in {skill.source}", *skill.problems]


app.switch("enable", "Let messages add a skill again.", " is enabled", SkillChange(enabled=True))
app.switch("disable", "Let no message add a skill, until it is enabled.", " is disabled", SkillChange(enabled=False))


@app.operation()
def remove(skills: SkillOperations, slug: Slug) -> Result:
    """Delete the file of one of your own skills; a skill that comes with Maestro can only be disabled."""
    skills.remove(slug, ACTOR)
    again = slug in {skill.slug for skill in skills.list(MOST).items}
    return {"slug": slug, "shipped": again}, f"{slug} is {'the shipped skill again' if again else 'gone'}"
