"""Commands with options of their own, and ``Given`` for the options that every command takes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Concatenate, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand

from maestro.cli.framework.inputs import InputOptions
from maestro.cli.framework.options import Config, DataDir, Debug, Given, Json, Port
from maestro.settings import Loaded, load, read_environment

_NEGATIVE = re.compile(r"-\d+")
_SPELLING = re.compile(r"(?=--|[A-Z\[]+[^a-z ]*: )(--[\w-]+)? ?([A-Z\[][^a-z ]*)?: (.*)", re.DOTALL)
Function = TypeVar("Function", bound=Callable[Concatenate[Given, ...], Any])


class _ChannelCommand(TyperCommand):
    """A command whose arguments may be negative numbers, such as the ids of Telegram's groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take an argument such as -1001 for what it is; options are still known by their names."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """A command or a group of them, each of which takes the common options too.

    The function of a command gets those as its first parameter, and has only its own besides::

        @app.command()
        def show(given: Given, slug: Slug) -> None:

    ``Slug`` is ``Annotated[str, "SLUG: The slug of the agent."]``: the word for the value, and the help. An option is
    written the same way, if need be with another name than its parameter: ``"--key-env NAME: Take the key from it."``.
    A parameter whose type is a dataclass, or is annotated with ``InputOptions``, stands for several options, so that
    two commands can share them.
    """

    def __init__(self, about: str | None = None) -> None:
        super().__init__(
            help=about, no_args_is_help=about is not None, rich_markup_mode=None, pretty_exceptions_enable=False
        )

    def command(
        self, name: str | None = None, *, json: bool = True, ports: Sequence[Port] = (), **more: Any
    ) -> Callable[[Function], Function]:
        """Make a function a command, with ``--json`` unless it has none, and these ports; ``more`` is for Typer."""
        register = super().command(name, cls=_ChannelCommand, **more)

        def add(function: Function) -> Function:
            register(_called_by_typer(function, json, ports))
            return function

        return add


def _called_by_typer(function: Callable[..., Any], json: bool, ports: Sequence[Port]) -> Callable[..., None]:
    """Return the function as Typer knows it, with a parameter for every option."""
    own = list(signature(function).parameters.values())[1:]
    bundles = {parameter.name: bundle for parameter in own if (bundle := _bundle(parameter)) is not None}

    @wraps(function)
    def command(ctx: typer.Context, **options: Any) -> None:
        given = ctx.ensure_object(Given)
        given.take(options.pop("config"), options.pop("data_dir"), options.pop("debug"))
        given.as_json = json and options.pop("as_json")
        given.ports = {port.key: options.pop(port.name) for port in ports}
        for name, bundle in bundles.items():
            options[name] = bundle.take(options)
        function(given, **options)

    every = [_keyword("ctx", typer.Context), *_unfolded(own), *_common(json, ports)]
    command.__signature__ = Signature(every)  # type: ignore[attr-defined]  # inspect.signature reads it first
    return command


def _described(parameter: Parameter) -> Parameter:
    """Return the parameter as Typer reads it, where a text such as ``--key-env NAME: Take the key from it.`` has it."""
    kind, *about = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    if not about or not isinstance(about[0], str):
        return parameter
    spelled = _SPELLING.fullmatch(about[0])
    option, metavar, explained = spelled.groups() if spelled else (None, None, about[0])
    if parameter.default is Parameter.empty and option is None:
        return parameter.replace(annotation=Annotated[kind, typer.Argument(metavar=metavar, help=explained)])
    if kind is bool and option is None:
        option = f"--{parameter.name.replace('_', '-')}"
    words = typer.Option(*filter(None, [option]), metavar=metavar, help=explained)
    return parameter.replace(annotation=Annotated[kind, words])


def _unfolded(own: Sequence[Parameter]) -> Iterator[Parameter]:
    for parameter in own:
        bundle = _bundle(parameter)
        options = bundle.parameters() if bundle is not None else [parameter]
        yield from (_described(option).replace(kind=Parameter.KEYWORD_ONLY) for option in options)


@dataclass(frozen=True)
class OptionDataclass:
    """The options that are the fields of a dataclass."""

    kind: type[Any]

    def parameters(self) -> Iterable[Parameter]:
        """Return the parameters from which Typer makes the options."""
        return signature(self.kind).parameters.values()

    def take(self, options: dict[str, Any]) -> Any:
        """Remove these options from those of a command, and return the value that they make."""
        return self.kind(**{field.name: options.pop(field.name) for field in fields(self.kind)})


def _bundle(parameter: Parameter) -> InputOptions | OptionDataclass | None:
    """Return the options for which a parameter stands; None for a single one."""
    annotation = parameter.annotation
    for about in (annotation, *getattr(annotation, "__metadata__", ())):
        if isinstance(about, InputOptions):
            return about
    return OptionDataclass(annotation) if is_dataclass(annotation) and isinstance(annotation, type) else None


def _common(json: bool, ports: Sequence[Port]) -> Iterator[Parameter]:
    """Yield the options of every command, in the order of the help."""
    if json:
        yield _keyword("as_json", Json, False)
    yield _keyword("config", Config, None)
    yield _keyword("data_dir", DataDir, None)
    for port in ports:
        yield _keyword(port.name, port.annotation, None)
    yield _keyword("debug", Debug, False)


def _keyword(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def configured(given: Given, *, accounts: bool = True) -> Loaded:
    """Load the settings, with what was given on the line in place of theirs; raises ``ConfigurationError``.

    Without ``accounts`` the command works where the keys of the models are not, such as in a second terminal.
    """
    overrides = {"dataDir": given.data_dir, "logs.level": "debug" if given.debug else None, **given.ports}
    return load(given.config, read_environment(), overrides, accounts=accounts)
