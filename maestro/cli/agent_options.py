"""The options that describe an agent, and the fields they stand for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.given_files import text_of
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.agents.edits import AgentFields

LISTS = ("tools", "skills", "fallbacks", "allow_users")
"""Fields that are given as words with commas between them."""

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The slug of the agent, as `maestro agents list` shows it.")]
NewSlug = Annotated[str, typer.Argument(metavar="SLUG", help="Its short name; people mention it as @SLUG.")]
Reset = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD", help="Put a field back to what everybody has, such as tools or allowUsers; may be repeated."
    ),
]
Reason = Annotated[str, typer.Option(help="Why, for the history.")]
Force = Annotated[bool, typer.Option("--force", help="Even if direct messages then go to nobody.")]


@dataclass(frozen=True)
class AgentOptions:
    """The options that describe an agent; None where not given."""

    name: Annotated[str | None, typer.Option(help="The name people see.")] = None
    role: Annotated[str | None, typer.Option(help="conductor, assistant, coder, architect or another word.")] = None
    description: Annotated[str | None, typer.Option(help="What it is for, in a sentence.")] = None
    voice: Annotated[str | None, typer.Option(help="How it speaks, such as casual or professional.")] = None
    quirks: Annotated[
        list[str] | None,
        typer.Option("--quirk", help="A habit of its speech, a sentence; may be repeated, '' for none."),
    ] = None
    prompt_file: Annotated[
        Path | None,
        typer.Option("--prompt-file", metavar="FILE", help="The file with its instructions; - for standard input."),
    ] = None
    model: Annotated[str | None, typer.Option(help="The model it prefers; '' for that of the account.")] = None
    fallbacks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Models to try after it, with commas between.")
    ] = None
    tools: Annotated[str | None, typer.Option(metavar="LIST", help="The tools it may call; '' for none.")] = None
    skills: Annotated[str | None, typer.Option(metavar="LIST", help="The skills it may be given; '' for none.")] = None
    allow_users: Annotated[
        str | None, typer.Option(metavar="LIST", help="Who may talk to it besides owners, as platform:userId.")
    ] = None
    memory_scope: Annotated[
        MemoryScope | None, typer.Option("--memory-scope", help="Where it remembers what it learned.")
    ] = None
    client: Annotated[str | None, typer.Option(help="The name of the client who pays for it; '' for nobody.")] = None
    daily_budget_usd: Annotated[
        float | None, typer.Option("--daily-budget", help="US dollars it may spend a day; 0: no limit.")
    ] = None

    def fields(self) -> Mapping[str, object]:
        """Return the fields that were given; raises ``ConfigurationError`` for a file that cannot be read."""
        given = {name: _read(name, value) for name, value in vars(self).items() if value is not None}
        file = given.pop("prompt_file", None)
        return {**given, "system_prompt": text_of(file)} if isinstance(file, Path) else given


def fields_reset(names: list[str] | None) -> Mapping[str, object]:
    """Return those fields with what everybody has; raises ``BadParameter`` for one that does not exist."""
    known = {
        spelling: (name, field.get_default())
        for name, field in AgentFields.model_fields.items()
        if name not in ("status", "role", "system_prompt")
        for spelling in (name, field.alias, name.replace("_", "-"))
    }
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"there is no field {name!r} to put back; --help lists them", param_hint="--reset")
    return dict(known[name] for name in names or ())


def _read(name: str, value: object) -> object:
    """Take a list apart, and leave out what stands for none."""
    if name in LISTS:
        return tuple(word.strip() for word in str(value).split(",") if word.strip())
    return tuple(filter(None, value)) if isinstance(value, list) else value
