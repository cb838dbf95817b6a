"""Commands with options from annotated parameters, or from the fields of an operation's input."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Concatenate, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError
from typer.core import TyperCommand

from maestro.cli.framework.options import Config, DataDir, Debug, Given, Json, Port
from maestro.domain.columns import LARGEST
from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import REFERENCES
from maestro.settings import Loaded, load, read_environment

_NEGATIVE = re.compile(r"-\d+")
_SPELLING = re.compile(r"(?=--|[A-Z\[]+[^a-z ]*: )(--[\w-]+)? ?([A-Z\[][^a-z ]*)?: (.*)", re.DOTALL)
Ports = Sequence[Port]
Function = TypeVar("Function", bound=Callable[Concatenate[Given, ...], Any])

MOST = 10_000
STANDARD_INPUT = Path("-")

WORDS = {
    **dict.fromkeys(["account", "client", "model", "platform", "purpose", "step"], "NAME"),
    **dict.fromkeys(["batch", "channel", "conversation", "user"], "ID"),
    **dict.fromkeys(["at", "since", "until"], "TIME"),
    **dict.fromkeys(["q", "reason"], "TEXT"),
    **{"agent": "SLUG", "error": "CLASS", "place": "PLACE", "priority": "N", "schedule": "REF", "webhook": "PATH"},
}
"""The placeholders in the help for the values of common fields."""

Limit = Annotated[int, typer.Option(min=1, max=MOST, help="How many entries at most.")]
TextCursor = Annotated[str | None, "Continue at the `next` of an earlier list."]
RowCursor = Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Continue at the `next` of an earlier list.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

Fields = dict[str, Any]
"""The fields of an input that the user gave as options, by field name."""
Model = TypeVar("Model", bound=BaseModel)


def keyword_parameter(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    """Return a keyword-only parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _typer_option(name: str, kind: Any, *spelling: str, **about: Any) -> Parameter:
    return keyword_parameter(name, Annotated[kind | None, typer.Option(*spelling, **about)], None)


def _port_option(port: Port) -> Parameter:
    help_text = f"The port of {port.service}."
    return _typer_option(port.key.replace(".", "_"), int, port.option, metavar="N", min=1, max=65535, help=help_text)


@dataclass(frozen=True)
class InputOptions:
    """An option for each field of an input; a field is left out of the input if its option is not given.

    ``spelling`` replaces an option's name and the placeholder of its value, such as ``--when SCHEDULE``; an empty
    spelling removes the option. The placeholder LIST stands for texts separated by commas. ``--prompt-file`` reads the
    text of the field ``prompt``. ``resets`` has flags that set a field to null, such as ``--no-script``, and their
    help. ``read_time`` parses a time.
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
            text = about.description or ("continue at the `next` of an earlier list" if name == "cursor" else "")
            repeated = "; may be given several times" if get_origin(kind) is list else ""
            details: Fields = {"help": text and f"{text[0].upper()}{text[1:]}{repeated}.", "metavar": word or None}
            if kind in (date, datetime, AwareDatetime):
                details["parser"] = self.read_time
            if option:
                yield _typer_option(name, str if word == "LIST" else kind, option, **details)
            if name == self.prompt:
                help_text = "The file with the prompt; - for standard input."
                yield _typer_option("prompt_file", Path, "--prompt-file", help=help_text, metavar="FILE")
        for name, (option, explained) in self.resets.items():
            yield _typer_option(f"no_{name}", bool, option, help=explained)

    def pop_from(self, options: dict[str, Any]) -> Any:
        """Remove the options of this input from the options of a command, and return the given fields."""
        given = {parameter.name: options.pop(parameter.name) for parameter in self.parameters()}
        given = {name: value for name, value in given.items() if value is not None}
        file = given.pop("prompt_file", None)
        if file is not None and self.prompt in given:
            raise typer.BadParameter("give --prompt or --prompt-file, not both")
        if file is not None:
            given[self.prompt] = read_text(file)
        resets = {name: None for name in self.resets if given.pop(f"no_{name}", False)}
        for name, value in given.items():
            if self.spelling.get(name, "").endswith(" LIST"):
                value = [word.strip() for word in value.split(",")]
            given[name] = tuple(filter(None, value)) if isinstance(value, list) else value
        return given | resets


class QueryOptions(InputOptions):
    """The options for the fields of a query; ``--limit`` allows longer pages than the API does."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield a parameter of the command for each option; ``--limit`` gets the maximum for commands."""
        for parameter in super().parameters():
            limit = self.model.model_fields["limit"].default if parameter.name == "limit" else None
            yield parameter.replace(annotation=Limit, default=limit) if limit else parameter

    def pop_from(self, options: dict[str, Any]) -> Any:
        """Remove the query's options from ``options``, and return the query; raises ``typer.BadParameter``."""
        given = super().pop_from(options)
        page = {"limit": given.pop("limit")} if "limit" in given else {}
        return validate_input(self.model, given, names_option=True).model_copy(update=page)


def build_input(kind: type[Model], /, **fields: object) -> Model:
    """Return an input with these fields; raises ``typer.BadParameter`` with the first rule that a field breaks."""
    value: Model = validate_input(kind, fields)
    return value


def validate_input(kind: Any, value: object, *, names_option: bool = False) -> Any:
    """Return the value as type ``kind``; raises ``typer.BadParameter`` with the first rule that it breaks.

    With ``names_option`` the error names the option of the wrong field.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
    option = f"--{problem['loc'][0]}" if names_option and problem["loc"] else None
    raise typer.BadParameter(problem["msg"].removeprefix("Value error, "), param_hint=option)


def row_number(noun: str, argument_name: str) -> Callable[[str], int]:
    """Return a function that reads a row's number, such as 7 or #7; it raises ``typer.BadParameter``."""

    def read_number(text: str) -> int:
        digits = text.removeprefix("#")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise typer.BadParameter(f"{text!r} is no number of a {noun}, such as 7", param_hint=argument_name)
        return int(digits)

    return read_number


def read_time(text: str) -> datetime:
    """Parse a time, in this machine's zone unless an offset is given; a clock time means its last occurrence."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass  # the text may be a clock time without a day
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00, or 09:00 for the last 09:00") from None
    now = datetime.now().astimezone()
    today = datetime.combine(now, clock).astimezone()
    return today if today <= now else today - timedelta(days=1)


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
    """Return the secret in the environment variable, or the reference to a secret; None if neither is given."""
    if variable is not None and reference is not None:
        raise typer.BadParameter(f"give --{option}-env or --{option}-ref, not both")
    return read_secret(variable) if variable is not None else reference


def read_secret(variable: str) -> str:
    """Return the secret in an environment variable; raises ``ConfigurationError`` if the variable is not set."""
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
    """Return up to ``most`` bytes of a file, or of standard input for ``-``; raises ``ConfigurationError``."""
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.buffer.read(most)
        with file.open("rb") as opened_file:
            return opened_file.read(most)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}; name another file") from None


def _plain_type(annotation: Any) -> Any:
    """Return a field's type for Typer: without constraints and None, and with a list instead of a tuple."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType, Annotated):
        return _plain_type(inner[0])
    if origin is tuple:
        return list[_plain_type(inner[0])]  # type: ignore[misc]  # a type computed at run time
    return str if origin is Literal else annotation


class _ChannelCommand(TyperCommand):
    """A command whose arguments may be negative numbers, such as the ids of Telegram's groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a number such as -1001 as an argument, not as an option."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """A command or a group of commands, each of which also takes the common options.

    The function of a command gets the common options as its first parameter, and then its own options::

        @app.command()
        def show(given: Given, slug: Slug) -> None:

    ``Slug`` is ``Annotated[str, "SLUG: The slug of the agent."]``: the placeholder of the value, then the help. An
    option's name comes first if it is not the parameter's name: ``"--key-env NAME: Read the key from it."``.
    A function after the text converts the text on the command line to the value.
    A parameter that is annotated with ``InputOptions`` adds several options, which other commands may reuse.
    """

    def __init__(self, about: str | None = None) -> None:
        super().__init__(
            help=about,
            no_args_is_help=about is not None,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            add_completion=False,  # only the main command offers to install completion
        )

    def command(  # type: ignore[override]  # the other options of Typer's commands are the same for all
        self, name: str | None = None, *, json: bool = True, ports: Ports = ()
    ) -> Callable[[Function], Function]:
        """Register a function as a command, with options for ``--json`` and ``ports``."""

        def add(function: Function) -> Function:
            own = list(signature(function).parameters.values())[1:]
            self.register(name or function.__name__, function, own, json=json, ports=ports)
            return function

        return add

    def register(
        self, name: str, function: Callable[..., Any], own: Sequence[Parameter], json: bool = True, ports: Ports = ()
    ) -> None:
        """Register a function as a command; the help lists the command's own options, then the common ones."""
        bundles = {
            each.name: bundle
            for each in own
            for bundle in (each.annotation, *getattr(each.annotation, "__metadata__", ()))
            if isinstance(bundle, InputOptions)
        }
        port_options = {port.key: _port_option(port) for port in ports}

        def command(ctx: typer.Context, **options: Any) -> None:
            given = ctx.ensure_object(Given)
            given.update(options.pop("config"), options.pop("data_dir"), options.pop("debug"))
            given.as_json = json and options.pop("as_json")
            given.ports = {key: options.pop(option.name) for key, option in port_options.items()}
            for bundle_name, bundle in bundles.items():
                options[bundle_name] = bundle.pop_from(options)
            function(given, **options)

        parameters = [
            keyword_parameter("ctx", typer.Context),
            *(
                _typer_parameter(option).replace(kind=Parameter.KEYWORD_ONLY)
                for each in own
                for option in (bundles[each.name].parameters() if each.name in bundles else [each])
            ),
            *([keyword_parameter("as_json", Json, False)] if json else []),
            keyword_parameter("config", Config, None),
            keyword_parameter("data_dir", DataDir, None),
            *port_options.values(),
            keyword_parameter("debug", Debug, False),
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # Typer reads this attribute first
        super().command(name.replace("_", "-"), help=function.__doc__, cls=_ChannelCommand)(command)


def _typer_parameter(parameter: Parameter) -> Parameter:
    """Return a parameter with the option or argument that its text, such as ``--key-env NAME: Take it.``, describes."""
    kind, *about = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    if not about or not isinstance(about[0], str):
        return parameter
    spelled = _SPELLING.fullmatch(about[0])
    option, metavar, explained = spelled.groups() if spelled else (None, None, about[0])
    kind = str if any(map(callable, about)) else kind
    if parameter.default is Parameter.empty and option is None:
        return parameter.replace(annotation=Annotated[kind, typer.Argument(metavar=metavar, help=explained)])
    if kind is bool and option is None:
        option = f"--{parameter.name.replace('_', '-')}"
    words = typer.Option(*filter(None, [option]), metavar=metavar, help=explained)
    return parameter.replace(annotation=Annotated[kind, words])


def load_settings(given: Given, *, accounts: bool = True) -> Loaded:
    """Load the settings, overridden by the options of the command line; raises ``ConfigurationError``.

    Without ``accounts``, model accounts are not loaded, because their keys may be missing in a second terminal.
    """
    overrides = {"dataDir": given.data_dir, "logs.level": "debug" if given.debug else None, **given.ports}
    return load(given.config, read_environment(), overrides, accounts=accounts)


def reachable_host(host: str) -> str:
    """Return the host, in the form of a URL, at which this machine reaches a server bound to ``host``."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address is only compared, never bound
    return f"[{host}]" if ":" in host else host
