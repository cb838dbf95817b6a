"""``maestro connectors``: our accounts on platforms, how each does, and which secrets they use."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from connectors.platforms import platform as described
from maestro.cli.connector_texts import closed, listing, portrait
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.operation_commands import OperationCommands, Removal
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.domain.bots.views import ConnectorChange, ConnectorView, NewConnector
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.keys import encryption
from maestro.operations.connectors import ConnectorOperations
from maestro.settings import read_environment

HELP = """List, show, add, change, enable, disable and remove connectors of platforms.

Connectors stand in connectors of the configuration, or are added here. All of this works beside a running Maestro,
which connects, disconnects and reconnects them at once. A secret is asked for without being shown, or read from a
variable; it is stored encrypted, and only its last four characters are ever seen again.
"""

Place = Annotated[
    str, typer.Argument(metavar="PLATFORM[/ACCOUNT]", help="A connector, as `maestro connectors list` shows it.")
]
NewPlace = Annotated[
    str, typer.Argument(metavar="PLATFORM[/ACCOUNT]", help="The platform, and a name of your choice for the account.")
]
Agent = Annotated[
    str | None, typer.Option(help="The slug of the agent that answers all that is said there; '' for the rules.")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of its platform, such as baseUrl=...; repeatable."),
]
SecretRefs = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME=REF", help="A secret as env:NAME or file:PATH, which Maestro reads; repeatable."
    ),
]
SecretVars = Annotated[
    list[str] | None,
    typer.Option("--secret-env", metavar="NAME=VARIABLE", help="Take a secret from a variable, now; repeatable."),
]


def _operations(at: Opened) -> ConnectorOperations:
    return ConnectorOperations(at.store, encryption(at.loaded.settings))


def _changed(change: ConnectorChange) -> Callable[[ConnectorOperations, str], ConnectorView]:
    return lambda connectors, place: connectors.change(*_named(place), change, ACTOR)


def _texts(sentence: str) -> Callable[[ConnectorView], Sequence[str]]:
    return lambda view: [f"{view.platform}/{view.account} {sentence}"]


app = OperationCommands(HELP, _operations, field="name", ref=Place)
app.list(
    "List the connectors, with their state and last event.",
    lambda connectors, *_: connectors.list(),
    lambda page: listing(page.items),
    paged=False,
)
app.one(
    "show",
    "Show a connector: what was set, how it does and what went wrong last.",
    lambda connectors, place: connectors.show(*_named(place)),
    portrait,
)


@app.command()
def add(
    given: Given,
    place: NewPlace,
    agent: Agent = None,
    options: Options = None,
    secret_refs: SecretRefs = None,
    secret_vars: SecretVars = None,
) -> None:
    """Add a connector; its secrets are asked for one after another, unless some are given."""
    platform, account = _named(place)
    wanted, given_secrets = described(platform).secrets, _secrets(secret_refs, secret_vars)
    with opened(given) as at:  # nobody should type a secret to hear then that the configuration is wrong
        new = NewConnector(
            platform=platform,
            account=account,
            agent=agent or "",
            secrets=given_secrets or _typed(wanted),
            options=_options(options, platform),
        )
        connector = _operations(at).add(new, ACTOR)
    write(connector, [f"{platform}/{account} is connected as soon as Maestro runs"], given.as_json)


@app.command("set")
def set_(
    given: Given,
    place: Place,
    agent: Agent = None,
    options: Options = None,
    secret_refs: SecretRefs = None,
    secret_vars: SecretVars = None,
) -> None:
    """Change a connector: its agent, options or secrets; NAME= takes an option away."""
    secrets = _secrets(secret_refs, secret_vars)
    chosen = _options(options, _named(place)[0])
    change = ConnectorChange(agent=agent, secrets=secrets or None, options=chosen or None)
    with opened(given) as at:
        connector = _changed(change)(_operations(at), place)
    write(connector, _texts("is changed")(connector), given.as_json)


app.one(
    "enable",
    "Connect it again.",
    _changed(ConnectorChange(enabled=True)),
    _texts("is connected as soon as Maestro runs"),
)
app.one(
    "disable",
    "Disconnect it, until it is enabled.",
    _changed(ConnectorChange(enabled=False)),
    _texts("is disconnected"),
)


@app.command()
def remove(given: Given, place: Place) -> None:
    """Remove a connector that was added here or on the API, with its secrets."""
    platform, account = _named(place)
    with opened(given) as at:
        _operations(at).remove(platform, account, ACTOR)
    write(Removal({"name": f"{platform}/{account}"}), [f"{platform}/{account} is gone"], given.as_json)


@app.command("closed-channels")
def closed_channels(given: Given) -> None:
    """List the channels to which nothing is sent, because their platform refused it for good."""
    with opened(given) as at:
        page = _operations(at).disabled_channels()
    write(page, closed(page.items), given.as_json)


@app.command("open-channel")
def open_channel(
    given: Given, place: Place, channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its id.")]
) -> None:
    """Send to such a channel again."""
    with opened(given) as at:
        _operations(at).enable_channel(*_named(place), channel, ACTOR)
    write(Removal({"name": channel}), [f"{channel} is sent to again"], given.as_json)


def _named(place: str) -> tuple[str, str]:
    platform, _, account = place.partition("/")
    return platform, account or DEFAULT_ACCOUNT


def _options(given: Sequence[str] | None, platform: str) -> Mapping[str, Any]:
    """Return options by name; an empty one is null, and one that is JSON is read as that unless it is to be a text."""
    pairs = list(_pairs("--set", given))
    fields = described(platform).options.model_fields.items() if pairs else ()
    texts = {field.alias or name for name, field in fields if field.annotation is str}
    return {name: _value(text, as_it_is=name in texts) for name, text in pairs}


def _value(text: str, *, as_it_is: bool) -> Any:
    """An id that is a number stays the text that it is."""
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return text if as_it_is and not isinstance(found, str) else found


def _secrets(references: Sequence[str] | None, variables: Sequence[str] | None) -> dict[str, SecretStr]:
    found = {}
    for name, reference in _pairs("--secret", references):
        if reference and not reference.startswith(("env:", "file:")):
            raise typer.BadParameter("expected NAME=env:VARIABLE or NAME=file:PATH; a secret is never given here")
        found[name] = SecretStr(reference)
    for name, variable in _pairs("--secret-env", variables):
        text = read_environment().get(variable, "").strip()
        if not text:
            raise ConfigurationError(f"the environment variable {variable} is not set; set it, or name another")
        found[name] = SecretStr(text)
    return found


def _pairs(option: str, given: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{option} expects NAME=VALUE")
        yield name, value


def _typed(wanted: Mapping[str, str]) -> dict[str, SecretStr]:
    """Return the secrets that a person types unseen, or the lines of a pipe, in the order of the platform."""
    typed = {name: _line(f"{name}: {what}", first=not place) for place, (name, what) in enumerate(wanted.items())}
    return {name: SecretStr(text) for name, text in typed.items() if text}


def _line(question: str, *, first: bool) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    if first:
        return str(typer.prompt(question, hide_input=True, err=True)).strip()
    return str(typer.prompt(f"{question} (Enter for none)", default="", show_default=False, hide_input=True, err=True))
