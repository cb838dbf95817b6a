"""The options that describe an agent, and the fields they stand for."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from maestro.domain.agents.agent import MemoryScope
from maestro.domain.agents.edits import AgentFields
from maestro.domain.errors import ConfigurationError

STANDARD_INPUT = Path("-")
LISTS = ("tools", "skills", "fallbacks", "allow_users")
"""Fields that are given as words with commas between them."""

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The slug of the agent, as `maestro agents list` shows it.")]
NewSlug = Annotated[str, typer.Argument(metavar="SLUG", help="Its short name; people mention it as @SLUG.")]
Name = Annotated[str | None, typer.Option(help="The name people see.")]
Role = Annotated[str | None, typer.Option(help="conductor, assistant, coder, architect or another word.")]
Description = Annotated[str | None, typer.Option(help="What it is for, in a sentence.")]
Voice = Annotated[str | None, typer.Option(help="How it speaks, such as casual or professional.")]
Quirks = Annotated[
    list[str] | None, typer.Option("--quirk", help="A habit of its speech, a sentence; may be repeated, '' for none.")
]
PromptFile = Annotated[
    Path | None,
    typer.Option("--prompt-file", metavar="FILE", help="The file with its instructions; - for standard input."),
]
Model = Annotated[str | None, typer.Option(help="The model it prefers; '' for that of the account.")]
Fallbacks = Annotated[str | None, typer.Option(metavar="LIST", help="Models to try after it, with commas between.")]
Tools = Annotated[str | None, typer.Option(metavar="LIST", help="The tools it may call; '' for none.")]
Skills = Annotated[str | None, typer.Option(metavar="LIST", help="The skills it may be given; '' for none.")]
AllowUsers = Annotated[
    str | None, typer.Option(metavar="LIST", help="Who may talk to it besides owners, as platform:userId.")
]
Scope = Annotated[MemoryScope | None, typer.Option("--memory-scope", help="Where it remembers what it learned.")]
Client = Annotated[str | None, typer.Option(help="The name of the client who pays for it; '' for nobody.")]
Budget = Annotated[float | None, typer.Option("--daily-budget", help="US dollars it may spend a day; 0: no limit.")]
Reset = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD", help="Put a field back to what everybody has, such as tools or allowUsers; may be repeated."
    ),
]
Reason = Annotated[str, typer.Option(help="Why, for the history.")]
Force = Annotated[bool, typer.Option("--force", help="Even if direct messages then go to nobody.")]


def fields_given(options: Mapping[str, object], prompt_file: Path | None) -> Mapping[str, object]:
    """Return the fields that were given; raises ``ConfigurationError`` for a file that cannot be read."""
    fields = {name: _read(name, value) for name, value in options.items() if value is not None}
    return {**fields, "system_prompt": _text(prompt_file)} if prompt_file is not None else fields


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


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{file} cannot be read: {reason}; name another file") from None
