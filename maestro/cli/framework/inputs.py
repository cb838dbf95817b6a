"""Options and arguments of commands: typed, read from files, or generated from the fields of an operation's input."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError

from maestro.domain.columns import LARGEST
from maestro.domain.errors import ConfigurationError
from maestro.settings import read_environment

MOST = 10_000
MOST_DIGITS = 18
STANDARD_INPUT = Path("-")
REFERENCES = ("env:", "file:")

WORDS = {
    **dict.fromkeys(["account", "client", "model", "platform", "purpose", "step"], "NAME"),
    **dict.fromkeys(["batch", "channel", "conversation", "user"], "ID"),
    **dict.fromkeys(["at", "since", "until"], "TIME"),
    **dict.fromkeys(["q", "reason"], "TEXT"),
    **{"agent": "SLUG", "error": "CLASS", "place": "PLACE", "priority": "N", "schedule": "REF", "webhook": "PATH"},
}
"""The placeholders in the help for the values of common fields."""

Limit = Annotated[int, typer.Option(min=1, max=MOST, help="How many at most.")]
PROMPT_FILE_HELP = "The file with the prompt; - for standard input."
TextCursor = Annotated[str | None, "Continue at the `next` of an earlier list."]
RowCursor = Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Continue at the `next` of an earlier list.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

Fields = dict[str, Any]
"""The given fields of an input, by their names in code."""
Model = TypeVar("Model", bound=BaseModel)


def keyword(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    """Return a keyword-only parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _typer_option(name: str, kind: Any, *spelling: str, **about: Any) -> Parameter:
    return keyword(name, Annotated[kind | None, typer.Option(*spelling, **about)], None)


@dataclass(frozen=True)
class InputOptions:
    """The options for the fields of an input; a field without its option stays unchanged.

    ``spelling`` overrides the name of an option and the placeholder of its value, such as ``--when SCHEDULE``; a field
    with an empty spelling has no option. The placeholder LIST stands for texts separated by commas. ``prompt`` is the
    field whose text ``--prompt-file`` reads. ``resets`` are flags that set a field to null, such as ``--no-script``,
    with their help. ``read_time`` reads a time.
    """

    model: type[BaseModel]
    leave_out: Collection[str] = ()
    spelling: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    resets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    read_time: Callable[[str], date] = datetime.fromisoformat

    def parameters(self) -> Iterator[Parameter]:
        """Yield a parameter of the command for each option."""
        for name, about in self.model.model_fields.items():
            if name in self.leave_out:
                continue
            kind = _plain_type(about.annotation)
            spelling = self.spelling.get(name, f"--{name.replace('_', '-')} {WORDS.get(name, '')}")
            option, _, word = spelling.partition(" ")
            details: Fields = {
                "help": _option_help(name, about.description, get_origin(kind) is list),
                "metavar": word or None,
            }
            if kind in (date, datetime, AwareDatetime):
                details["parser"] = self.read_time
            if option:
                yield _typer_option(name, str if word == "LIST" else kind, option, **details)
            if name == self.prompt:
                yield _typer_option("prompt_file", Path, "--prompt-file", help=PROMPT_FILE_HELP, metavar="FILE")
        for name, (option, explained) in self.resets.items():
            yield _typer_option(f"no_{name}", bool, option, help=explained)

    def take(self, options: dict[str, Any]) -> Any:
        """Remove the options of this input from the options of a command, and return the given fields."""
        given = {parameter.name: options.pop(parameter.name) for parameter in self.parameters()}
        given = {name: value for name, value in given.items() if value is not None}
        file = given.pop("prompt_file", None)
        if file is not None and self.prompt in given:
            raise typer.BadParameter("give --prompt or --prompt-file, not both")
        if file is not None:
            given[self.prompt] = read_text(file)
        resets = {name: None for name in self.resets if given.pop(f"no_{name}", False)}
        return {name: self._field_value(name, value) for name, value in given.items()} | resets

    def _field_value(self, name: str, value: object) -> object:
        """Return the value of a field, without the empty entries of a list."""
        if isinstance(value, str) and self.spelling.get(name, "").endswith(" LIST"):
            value = [word.strip() for word in value.split(",")]
        return tuple(filter(None, value)) if isinstance(value, list) else value


class QueryOptions(InputOptions):
    """The options for the fields of a query, which the command gets; its page may be longer than the API allows."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield a parameter of the command for each option, with the limit of pages for commands."""
        for parameter in super().parameters():
            limit = self.model.model_fields["limit"].default if parameter.name == "limit" else None
            yield parameter.replace(annotation=Limit, default=limit) if limit else parameter

    def take(self, options: dict[str, Any]) -> Any:
        """Remove the options of this query, and return the query; raises ``typer.BadParameter`` for a wrong value."""
        given = super().take(options)
        page = {"limit": given.pop("limit")} if "limit" in given else {}
        try:
            return self.model.model_validate(given).model_copy(update=page)
        except ValidationError as error:
            location = error.errors()[0]["loc"]
            raise _wrong_value(error, f"--{location[0]}" if location else None) from None


def build_input(kind: type[Model], /, **fields: object) -> Model:
    """Return an input built from these fields; raises ``typer.BadParameter`` with the first rule that one breaks."""
    value: Model = validate_input(kind, fields)
    return value


def validate_input(kind: Any, value: object) -> Any:
    """Return a value as this type; raises ``typer.BadParameter`` with the first rule that the value breaks."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise _wrong_value(error) from None


def read_row_number(text: str, noun: str, argument_name: str) -> int:
    """Read the number of a row, with or without a ``#``; raises ``typer.BadParameter`` for another text.

    A command calls this after it has loaded the configuration, whose mistakes are reported first.
    """
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS):
        raise typer.BadParameter(f"{text!r} is no number of a {noun}, such as 7", param_hint=argument_name)
    return int(digits)


def _check_reference(text: str | None) -> str | None:
    if text is not None and not text.startswith(REFERENCES):
        raise typer.BadParameter("expected env:NAME or file:PATH; a secret is never given here")
    return text


SecretRef = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        callback=_check_reference,
        help="Store a reference, env:NAME or file:PATH, instead of the secret.",
    ),
]


def read_given_secret(option: str, variable: str | None, reference: str | None) -> str | None:
    """Return the secret in an environment variable, or else the reference; None if neither is given."""
    if variable is not None and reference is not None:
        raise typer.BadParameter(f"give --{option}-env or --{option}-ref, not both")
    return read_secret(variable) if variable is not None else reference


def read_secret(variable: str) -> str:
    """Return the secret in an environment variable; raises ``ConfigurationError`` where it is not set."""
    secret = read_environment().get(variable, "").strip()
    if not secret:
        raise ConfigurationError(f"the environment variable {variable} is not set; set it, or name another")
    return secret


def read_text(file: Path) -> str:
    """Return the text of a file, or of standard input for ``-``; raises ``ConfigurationError`` if it is unreadable."""
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{file} cannot be read: {reason}; name another file") from None


def read_bytes(file: Path, most: int = -1) -> bytes:
    """Return up to ``most`` bytes of a file, or of standard input for ``-``; raises as ``read_text`` does."""
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.buffer.read(most)
        with file.open("rb") as opened_file:
            return opened_file.read(most)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}; name another file") from None


def _plain_type(annotation: Any) -> Any:
    """Return the type of a field for Typer: without constraints and null, and a list instead of a tuple."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType, Annotated):
        return _plain_type(inner[0])
    if origin is tuple:
        return list[_plain_type(inner[0])]  # type: ignore[misc]  # a type computed at run time
    return str if origin is Literal else annotation


def _option_help(name: str, description: str | None, is_list: bool) -> str:
    """Return the description of a field as the help of its option."""
    text = description or ("continue at the `next` of an earlier list" if name == "cursor" else "")
    repeated = "; may be given several times" if is_list else ""
    return f"{text[:1].upper()}{text[1:]}{repeated}." if text else ""


def _wrong_value(error: ValidationError, option: str | None = None) -> typer.BadParameter:
    return typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, "), param_hint=option)
