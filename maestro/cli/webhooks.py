"""``maestro webhooks``: what programs outside send, and which agents hear of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from ulid import ULID

from maestro.cli.field_options import FieldOptions
from maestro.cli.given_files import bytes_of
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.operation_commands import OperationCommands
from maestro.cli.options import WEBUI_PORT, Given
from maestro.cli.output import write
from maestro.cli.webhook_sender import home, send
from maestro.cli.webhook_texts import listing, made, new_secret, portrait
from maestro.domain.errors import ConfigurationError
from maestro.domain.reading import read
from maestro.domain.webhooks.edits import NewWebhook, Rotation, WebhookChange
from maestro.domain.webhooks.views import REFERENCES
from maestro.domain.webhooks.webhook import SignatureScheme
from maestro.installation.keys import encryption, open_keys
from maestro.operations.webhooks import WebhookOperations
from maestro.settings import read_environment

HELP = """List, show, add, edit, enable, disable, try and remove webhooks.

A program outside posts to /hooks/PATH at the address of the dashboard, and signs what it posts; an agent is told of it
and says what it makes of it in a channel. All of this works beside a running Maestro, from the next delivery on.
docs/howto/receive-webhooks.md shows how.
"""


def _reference(text: str | None) -> str | None:
    if text is not None and not text.startswith(REFERENCES):
        raise typer.BadParameter("expected env:NAME or file:PATH; a secret is never given here")
    return text


HookPath = Annotated[str, typer.Argument(metavar="PATH", help="What stands after /hooks/ in its address.")]
SecretEnv = Annotated[
    str | None,
    typer.Option("--secret-env", metavar="NAME", help="Take the sender's secret from this environment variable, now."),
]
SecretRef = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        callback=_reference,
        help="Store env:NAME or file:PATH, which Maestro itself reads, and no secret.",
    ),
]


@dataclass(frozen=True)
class WebhookOptions(FieldOptions):
    """The options that describe a webhook; None where not given."""

    agent: Annotated[str | None, typer.Option(metavar="SLUG", help="Who is told.")] = None
    prompt_template: Annotated[
        str | None,
        typer.Option("--prompt", help="What it is told, such as 'Build {{payload.id}} failed. Find out why.'"),
    ] = None
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with what it is told; - for standard input.")
    ] = None
    platform: Annotated[str | None, typer.Option(help="Where it posts: the platform, such as web or discord.")] = None
    channel: Annotated[str | None, typer.Option(help="Where it posts: the platform's id of the channel.")] = None
    thread: Annotated[str | None, typer.Option(help="Where it posts: a thread of the channel; '' for none.")] = None
    account: Annotated[str | None, typer.Option(help="Which of our accounts on that platform.")] = None
    name: Annotated[str | None, typer.Option(help="The name people see.")] = None
    per_minute: Annotated[int | None, typer.Option(help="Deliveries a minute that are taken.")] = None

    prompt_field = "prompt_template"


def _operations(at: Opened) -> WebhookOperations:
    return WebhookOperations(at.store, encryption(at.loaded.settings))


app = OperationCommands(HELP, _operations, field="path", ref=HookPath)
app.list("List the webhooks by path, with what came to them.", WebhookOperations.list, listing)
app.one("show", "Show a webhook: who is told what, and what came to it.", WebhookOperations.show, portrait)


@app.command()
def add(
    given: Given,
    path: HookPath,
    options: WebhookOptions,
    scheme: Annotated[
        SignatureScheme, typer.Option(help="standard: as standardwebhooks.com says; github: as GitHub signs.")
    ] = SignatureScheme.STANDARD,
    secret_env: SecretEnv = None,
    secret_ref: SecretRef = None,
) -> None:
    """Add a webhook; its secret is made, and shown only now, unless the sender has one already."""
    with opened(given) as at:
        address = home(at.loaded.settings.webui)
        own = {"path": path, "scheme": scheme, "secret": _secret(secret_env, secret_ref)}
        webhook = _operations(at).add(read(NewWebhook, {"platform": "web", **options.fields(), **own}), ACTOR)
    write(webhook, made(webhook, address), given.as_json)


app.edit("Change a webhook.", WebhookOperations.change, WebhookChange, WebhookOptions)
app.change(
    "enable",
    "Let a webhook take deliveries again.",
    WebhookOperations.change,
    WebhookChange(enabled=True),
    " takes deliveries again",
)
app.change(
    "disable",
    "Let a webhook take no deliveries, until it is enabled.",
    WebhookOperations.change,
    WebhookChange(enabled=False),
    " takes no deliveries any more",
)


@app.command()
def rotate(given: Given, path: HookPath, secret_env: SecretEnv = None, secret_ref: SecretRef = None) -> None:
    """Give a webhook another secret; the old one holds no more."""
    with opened(given) as at:
        rotation = read(Rotation, {"secret": _secret(secret_env, secret_ref)})
        webhook = _operations(at).rotate(path, ACTOR, rotation)
    lines = [f"{webhook.path} has another secret, and takes nothing that is signed with the old one"]
    write(webhook, [*lines, *new_secret(webhook)], given.as_json)


app.remove("Remove a webhook; its jobs stay.", WebhookOperations.remove)


@app.command("send", ports=[WEBUI_PORT])
def send_delivery(
    given: Given,
    path: HookPath,
    data: Annotated[str, typer.Option(metavar="JSON", help="What to send.")] = "{}",
    body: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with what to send; - for standard input.")
    ] = None,
    delivery_id: Annotated[
        str, typer.Option("--id", help="The sender's id for it; the same one once more makes no other job.")
    ] = "",
    url: Annotated[str, typer.Option(help="Where Maestro is; without it, as the configuration says.")] = "",
) -> None:
    """Sign and post a delivery to a webhook, as its sender would, to try it."""
    with opened(given) as at:
        with at.store.view() as tx:
            webhook = tx.background.webhooks.get(path)
        secret = open_keys(at.loaded.settings, read_environment()).reveal(webhook.secret).get_secret_value()
        sent = bytes_of(body) if body is not None else data.encode()
        address = url or home(at.loaded.settings.webui)
        taken = send(address, webhook, secret, delivery_id or f"msg_{ULID()}", sent)
    came = "came before, and made" if taken.duplicate else "made"
    write(taken, [f"the delivery {came} {taken.job_id}; `maestro jobs show {taken.job_id}` shows it"], given.as_json)


def _secret(variable: str | None, reference: str | None) -> str:
    """Return a secret from a variable, a reference to one, or nothing."""
    if variable is not None and reference is not None:
        raise typer.BadParameter("give --secret-env or --secret-ref, not both")
    if variable is None:
        return reference or ""
    secret = read_environment().get(variable, "").strip()
    if not secret:
        raise ConfigurationError(f"the environment variable {variable} is not set; set it, or name another")
    return secret
