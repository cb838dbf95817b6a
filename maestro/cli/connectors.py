"""List, show, add, change, enable, disable and remove connectors of platforms.

Connectors come from the configuration (connectors) or from `add`. A running Maestro connects, disconnects and
reconnects them at once. You enter a secret at a hidden prompt, or name its environment variable. The secret is stored
encrypted, and only its last four characters are shown later.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from connectors.platforms import platform as described
from maestro.cli.framework.commands import read_secret
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, list_lines
from maestro.domain.connectors import ConnectorChange, ConnectorView, NewConnector
from maestro.domain.llm.accounts import REFERENCES
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.data_folder import encryption
from maestro.operations.connectors import ConnectorOperations

NOTHING = "There are no connectors. Add one with `maestro connectors add PLATFORM`."
CONNECTS = " is connected as soon as Maestro runs"


def _state_of(connector: ConnectorView) -> str:
    return (connector.state or "not connected yet") if connector.enabled else "disabled"


DERIVED = {
    "last event": lambda connector: connector.last_event_at,
    "lag": lambda connector: "" if connector.lag_seconds is None else f"{connector.lag_seconds:.1f} s",
    "from": lambda connector: "configuration" if connector.configured else "added",
}
COLUMNS = Columns("connector=name state agent last_event lag from last_error", {"state": _state_of, **DERIVED})
CLOSED_COLUMNS = Columns(
    "connector channel since=disabled_at reason", {"connector": lambda channel: f"{channel.platform}/{channel.account}"}
)
PORTRAIT = Portrait(
    lambda connector: f"{connector.name}  {_state_of(connector)}",
    hide="platform account enabled configured state lag_seconds last_event_at",
    lines_of={
        "secrets": lambda connector: [
            f"{secret.name} {secret.reference or (f'...{secret.last4}' if secret.last4 else 'set')}"
            for secret in connector.secrets
        ],
        "options": lambda connector: [f"{name}={json.dumps(value)}" for name, value in connector.options.items()],
        **DERIVED,
    },
)


def _split_name(name: str) -> tuple[str, str]:
    platform, _, account = name.partition("/")
    return platform, account or DEFAULT_ACCOUNT


ConnectorName = Annotated[
    tuple[str, str], "PLATFORM[/ACCOUNT]: A connector, as `maestro connectors list` shows it.", _split_name
]
AgentOption = Annotated[str | None, "The slug of the agent that answers all its messages; '': routing rules choose."]
PlatformOptions = Annotated[
    list[str] | None, "--set NAME=VALUE: An option of the platform, such as baseUrl=...; repeatable."
]
SecretRefs = Annotated[
    list[str] | None, "--secret NAME=REF: Store a reference, env:NAME or file:PATH, as a secret; repeatable."
]
SecretVars = Annotated[list[str] | None, "--secret-env NAME=VARIABLE: Store a variable's value as secret; repeatable."]

app = OperationCommands(
    __doc__, lambda at: ConnectorOperations(at.store, encryption(at.loaded.settings)), ConnectorName, "name"
)
app.list("List the connectors, with their state and last event.", COLUMNS, NOTHING)
app.show("Show a connector: its options, its state and its last error.", PORTRAIT)


@app.operation()
def add(
    connectors: ConnectorOperations,
    name: Annotated[
        tuple[str, str], "PLATFORM[/ACCOUNT]: The platform, and a name of your choice for the account.", _split_name
    ],
    agent: AgentOption = "",
    options: PlatformOptions = None,
    secret_refs: SecretRefs = None,
    secret_vars: SecretVars = None,
) -> Result:
    """Add a connector; the command asks for each secret, unless an option gives secrets."""
    platform, account = name
    new = NewConnector(
        platform=platform,
        account=account,
        agent=agent or "",
        secrets=_given_secrets(secret_refs, secret_vars) or _ask_secrets(described(platform).secrets),
        options=_platform_options(options, platform),
    )
    connector = connectors.add(new, ACTOR)
    return connector, f"{connector.name}{CONNECTS}"


@app.operation("set")
def change_connector(
    connectors: ConnectorOperations,
    name: ConnectorName,
    agent: AgentOption = None,
    options: PlatformOptions = None,
    secret_refs: SecretRefs = None,
    secret_vars: SecretVars = None,
) -> Result:
    """Change a connector's agent, options or secrets; `--set NAME=` removes an option."""
    secrets, chosen = _given_secrets(secret_refs, secret_vars), _platform_options(options, name[0])
    change = ConnectorChange(agent=agent, secrets=secrets or None, options=chosen or None)
    connector = connectors.change(*name, change, ACTOR)
    return connector, f"{connector.name} is changed"


app.switch("enable", "Connect a connector again.", CONNECTS, ConnectorChange(enabled=True))
app.switch("disable", "Disconnect a connector until it is enabled.", " is disconnected", ConnectorChange(enabled=False))
app.remove("Remove a connector that was added here or on the API, with its secrets.")


@app.operation("closed-channels")
def closed_channels(connectors: ConnectorOperations) -> Result:
    """List the channels to which Maestro sends nothing, because the platform refused a message for good."""
    page = connectors.disabled_channels()
    return page, list_lines(page, CLOSED_COLUMNS, "Every channel can be sent to.")


@app.operation("open-channel")
def open_channel(
    connectors: ConnectorOperations,
    name: ConnectorName,
    channel: Annotated[str, "CHANNEL: The platform's id of the channel."],
) -> Result:
    """Allow sending to a disabled channel again."""
    connectors.enable_channel(*name, channel, ACTOR)
    return {"name": channel}, f"{channel} is sent to again"


def _platform_options(given: Sequence[str] | None, platform: str) -> Mapping[str, Any]:
    """Return the options by name: None for an empty value, else the parsed JSON, except for options that are texts."""
    pairs = list(_read_pairs("--set", given))
    fields = described(platform).options.model_fields.items() if pairs else ()
    texts = {field.alias or name for name, field in fields if field.annotation is str}
    values: dict[str, Any] = {}
    for name, text in pairs:
        values[name] = text or None
        with contextlib.suppress(ValueError):  # The entered value is empty, or a text that is not JSON.
            value = json.loads(text)
            values[name] = text if name in texts and not isinstance(value, str) else value
    return values


def _given_secrets(references: Sequence[str] | None, variables: Sequence[str] | None) -> dict[str, SecretStr]:
    secrets = {}
    for name, reference in _read_pairs("--secret", references):
        if reference and not reference.startswith(REFERENCES):
            raise typer.BadParameter("expected NAME=env:VARIABLE or NAME=file:PATH; a secret is never given here")
        secrets[name] = SecretStr(reference)
    return secrets | {
        name: SecretStr(read_secret(variable)) for name, variable in _read_pairs("--secret-env", variables)
    }


def _read_pairs(option: str, given: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{option} expects NAME=VALUE")
        yield name, value


def _ask_secrets(expected: Mapping[str, str]) -> dict[str, SecretStr]:
    """Return the secrets from hidden prompts, or from the lines of a pipe, in the platform's order."""
    secrets = {}
    for number, (name, meaning) in enumerate(expected.items()):
        if not sys.stdin.isatty():
            secret = sys.stdin.readline()
        elif number == 0:
            secret = typer.prompt(f"{name}: {meaning}", hide_input=True, err=True)
        else:
            question = f"{name}: {meaning} (Enter for none)"
            secret = typer.prompt(question, default="", show_default=False, hide_input=True, err=True)
        if secret.strip():
            secrets[name] = SecretStr(secret.strip())
    return secrets
