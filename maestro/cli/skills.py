"""``maestro skills``: instructions that a message brings in, and which one would bring in which."""

from pathlib import Path
from typing import Annotated

import typer

from maestro.bootstrap.tools import names_of
from maestro.cli.checked import made
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.operation_commands import OperationCommands, Removal
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.skill_texts import listing, portrait, trial
from maestro.domain.errors import ConfigurationError
from maestro.domain.skills.files import MAX_BYTES
from maestro.domain.skills.trial import TrialWish
from maestro.domain.skills.views import SkillChange
from maestro.operations.skill_folder import SkillFolder
from maestro.operations.skills import SkillOperations
from maestro.settings.live import LiveSettings

HELP = """List, show, test, add, enable, disable and remove skills.

A skill is a Markdown file with instructions that a model is given when a message needs them. Some come with Maestro;
your own stand in the folder skills where Maestro is started (skills.folder), and one with the slug of a shipped one
takes its place. Maestro sees by itself when a file changes. docs/howto/write-a-skill.md shows how to write one.
"""

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The slug of the skill, as `maestro skills list` shows it.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A Markdown file with front matter.")]
Message = Annotated[list[str], typer.Argument(metavar="MESSAGE", help="What somebody might write.")]
AgentSlug = Annotated[
    str | None, typer.Option("--agent", metavar="SLUG", help="With the tools and the skills of this agent.")
]


def _operations(at: Opened) -> SkillOperations:
    settings = at.loaded.settings
    tools = names_of(LiveSettings.unchanging(settings))
    return SkillOperations(at.store, SkillFolder(settings.skills.folder), tools)


app = OperationCommands(HELP, _operations, field="slug", ref=Slug)
app.list("List the skills by slug, and what is wrong with files of skills.", SkillOperations.list, listing, paged=False)
app.one("show", "Show a skill: what brings it in, and what it tells the model.", SkillOperations.show, portrait)


@app.command("test")
def try_skills(given: Given, message: Message, agent: AgentSlug = None) -> None:
    """Show which skills a message would bring in, and why: nothing is sent and nothing is paid."""
    with opened(given) as at:
        found = _operations(at).trial(made(TrialWish, message=" ".join(message), agent=agent or ""))
    write(found, trial(found), given.as_json)


@app.command()
def add(
    given: Given,
    file: File,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of your own skill of this slug.")] = False,
) -> None:
    """Copy a skill into your folder; it is used from the next message on."""
    with opened(given) as at:
        skill = _operations(at).add(_read(file), ACTOR, replace=replace)
    write(skill, [f"{skill.slug} is in {skill.source}", *skill.problems], given.as_json)


app.change(
    "enable",
    "Let messages bring in a skill again.",
    SkillOperations.change,
    SkillChange(enabled=True),
    " is enabled",
)
app.change(
    "disable",
    "Let no message bring in a skill, until it is enabled.",
    SkillOperations.change,
    SkillChange(enabled=False),
    " is disabled",
)


@app.command()
def remove(given: Given, slug: Slug) -> None:
    """Delete the file of one of your own skills; one that comes with Maestro can be disabled."""
    with opened(given) as at:
        _operations(at).remove(slug, ACTOR)
        with at.store.view() as tx:
            again = tx.agents.skills.by_slug(slug) is not None
    said = f"{slug} is {'that of Maestro again' if again else 'gone'}"
    write(Removal({"slug": slug, "shipped": again}), [said], given.as_json)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened_file:
            return opened_file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
