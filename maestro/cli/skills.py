"""``maestro skills``: instructions that a message brings in, and which one would bring in which."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from maestro.bootstrap.live import LiveSettings
from maestro.bootstrap.skill_control import StoreSkillControl
from maestro.bootstrap.skill_folder import SkillFolder
from maestro.bootstrap.tools import names_of
from maestro.cli.checked import made
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.skill_texts import listing, portrait, trial
from maestro.domain.errors import ConfigurationError
from maestro.domain.skills.files import MAX_BYTES
from maestro.domain.skills.trial import TrialWish
from maestro.domain.skills.views import SkillChange, SkillControl, SkillDetail, skill_detail, skill_page
from maestro.domain.values import Value

MOST = 10_000

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

app = Commands(HELP)


class Removed(Value):
    """The skill whose file is gone; ``shipped`` says that the one of Maestro is there again."""

    slug: str
    shipped: bool


@dataclass(frozen=True)
class Desk:
    """The store, and what changes skills in it."""

    at: Opened
    control: SkillControl


@contextlib.contextmanager
def _desk(given: Given) -> Iterator[Desk]:
    with opened(given) as at:
        settings = at.loaded.settings
        tools = names_of(LiveSettings.unchanging(settings))
        yield Desk(at, StoreSkillControl(at.store, SkillFolder(settings.skills.folder), tools))


@app.command("list")
def list_skills(given: Given) -> None:
    """List the skills by slug, and what is wrong with files of skills."""
    with opened(given) as at, at.store.view() as tx:
        page = skill_page(tx.skills.all(), tx.skills.problems(), None, MOST)
    write(page, listing(page), given.as_json)


@app.command()
def show(given: Given, slug: Slug) -> None:
    """Show a skill: what brings it in, and what it tells the model."""
    with opened(given) as at, at.store.view() as tx:
        skill = skill_detail(tx.skills.get(slug), tx.skills.problems())
    write(skill, portrait(skill), given.as_json)


@app.command("test")
def try_skills(given: Given, message: Message, agent: AgentSlug = None) -> None:
    """Show which skills a message would bring in, and why: nothing is sent and nothing is paid."""
    with _desk(given) as desk:
        found = desk.control.trial(made(TrialWish, message=" ".join(message), agent=agent or ""))
    write(found, trial(found), given.as_json)


@app.command()
def add(
    given: Given,
    file: File,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of your own skill of this slug.")] = False,
) -> None:
    """Copy a skill into your folder; it is used from the next message on."""
    with _desk(given) as desk:
        skill = desk.control.add(_read(file), ACTOR, replace=replace)
    write(skill, [f"{skill.slug} is in {skill.source}", *skill.problems], given.as_json)


@app.command()
def enable(given: Given, slug: Slug) -> None:
    """Let messages bring in a skill again."""
    skill = _switch(given, slug, enabled=True)
    write(skill, [f"{skill.slug} is enabled"], given.as_json)


@app.command()
def disable(given: Given, slug: Slug) -> None:
    """Let no message bring in a skill, until it is enabled."""
    skill = _switch(given, slug, enabled=False)
    write(skill, [f"{skill.slug} is disabled"], given.as_json)


@app.command()
def remove(given: Given, slug: Slug) -> None:
    """Delete the file of one of your own skills; one that comes with Maestro can be disabled."""
    with _desk(given) as desk:
        desk.control.remove(slug, ACTOR)
        with desk.at.store.view() as tx:
            again = tx.skills.by_slug(slug) is not None
    said = f"{slug} is {'that of Maestro again' if again else 'gone'}"
    write(Removed(slug=slug, shipped=again), [said], given.as_json)


def _switch(given: Given, slug: str, *, enabled: bool) -> SkillDetail:
    with _desk(given) as desk:
        return desk.control.change(slug, SkillChange(enabled=enabled), ACTOR)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened_file:
            return opened_file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
