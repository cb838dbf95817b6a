"""Commands whose options are annotated parameters, and the options that every command takes."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Concatenate, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand

from maestro.cli.framework.inputs import InputOptions, keyword
from maestro.cli.framework.options import Config, DataDir, Debug, Given, Json, Port
from maestro.settings import Loaded, load, read_environment

_NEGATIVE = re.compile(r"-\d+")
_SPELLING = re.compile(r"(?=--|[A-Z\[]+[^a-z ]*: )(--[\w-]+)? ?([A-Z\[][^a-z ]*)?: (.*)", re.DOTALL)
Function = TypeVar("Function", bound=Callable[Concatenate[Given, ...], Any])


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

    ``Slug`` is ``Annotated[str, "SLUG: The slug of the agent."]``: the placeholder of a value, and the help. An option
    is written the same way, with its name if the parameter has another: ``"--key-env NAME: Take the key from it."``.
    A parameter that is annotated with ``InputOptions`` stands for several options, which several commands may share.
    """

    def __init__(self, about: str | None = None) -> None:
        super().__init__(
            help=about,
            no_args_is_help=about is not None,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            add_completion=False,  # only the main command offers to install completion
        )

    def command(
        self, name: str | None = None, *, json: bool = True, ports: Sequence[Port] = (), **more: Any
    ) -> Callable[[Function], Function]:
        """Register a function as a command, with options for ``--json`` and ``ports``; ``more`` is passed to Typer."""
        register = super().command(name, cls=_ChannelCommand, **more)

        def add(function: Function) -> Function:
            register(_typer_command(function, json, ports))
            return function

        return add


def _typer_command(function: Callable[..., Any], json: bool, ports: Sequence[Port]) -> Callable[..., None]:
    """Return the function as Typer calls it, with a parameter for every option in the order of the help."""
    own = list(signature(function).parameters.values())[1:]
    bundles = {each.name: bundle for each in own if (bundle := _input_options(each.annotation)) is not None}
    port_names = {port.key: port.key.replace(".", "_") for port in ports}

    @wraps(function)
    def command(ctx: typer.Context, **options: Any) -> None:
        given = ctx.ensure_object(Given)
        given.take(options.pop("config"), options.pop("data_dir"), options.pop("debug"))
        given.as_json = json and options.pop("as_json")
        given.ports = {key: options.pop(name) for key, name in port_names.items()}
        for name, bundle in bundles.items():
            options[name] = bundle.take(options)
        function(given, **options)

    unfolded = [
        option for each in own for option in (bundles[each.name].parameters() if each.name in bundles else [each])
    ]
    parameters = [
        keyword("ctx", typer.Context),
        *(_typer_parameter(option).replace(kind=Parameter.KEYWORD_ONLY) for option in unfolded),
        *([keyword("as_json", Json, False)] if json else []),
        keyword("config", Config, None),
        keyword("data_dir", DataDir, None),
        *(keyword(port_names[port.key], port.annotation, None) for port in ports),
        keyword("debug", Debug, False),
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # inspect.signature reads this attribute first
    return command


def _typer_parameter(parameter: Parameter) -> Parameter:
    """Return a parameter with the option or argument that its text, such as ``--key-env NAME: Take it.``, describes."""
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


def _input_options(annotation: object) -> InputOptions | None:
    """Return the ``InputOptions`` of an annotation; None for a single option."""
    metadata = (annotation, *getattr(annotation, "__metadata__", ()))
    return next((about for about in metadata if isinstance(about, InputOptions)), None)


def load_settings(given: Given, *, accounts: bool = True) -> Loaded:
    """Load the settings, overridden by the options of the command line; raises ``ConfigurationError``.

    Without ``accounts`` the keys of models may be missing, as in a second terminal.
    """
    overrides = {"dataDir": given.data_dir, "logs.level": "debug" if given.debug else None, **given.ports}
    return load(given.config, read_environment(), overrides, accounts=accounts)


def reachable_host(host: str) -> str:
    """Return the host, as in a URL, by which this machine reaches a server that is bound to ``host``."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address is only compared, never bound
    return f"[{host}]" if ":" in host else host
