"""List, show, add, edit, enable, disable, try and remove webhooks.

Another program posts signed requests (deliveries) to /hooks/PATH at the address of the dashboard. An agent reads each
delivery and answers in a channel. A running Maestro applies changes from the next delivery on.
docs/howto/receive-webhooks.md shows how to set up a webhook.
"""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import httpx
from ulid import ULID

from maestro.cli.framework.commands import (
    Fields,
    InputOptions,
    SecretRef,
    reachable_host,
    read_bytes,
    read_given_secret,
)
from maestro.cli.framework.operations import ACTOR, PAGES, CommandContext, OperationCommands, open_context
from maestro.cli.framework.options import WEBUI_PORT, Given
from maestro.cli.framework.output import Columns, Portrait, Result, channel_text, enabled_text, write_output
from maestro.domain.errors import MaestroError
from maestro.domain.settings.process import WebuiSettings
from maestro.domain.values import read
from maestro.domain.webhooks.webhook import (
    DeliveryResult,
    NewWebhook,
    SecretRotation,
    SignatureScheme,
    Webhook,
    WebhookChange,
    WebhookWithSecret,
    sign_delivery,
)
from maestro.installation.data_folder import encryption, open_keys
from maestro.operations.background import WebhookOperations
from maestro.settings import read_environment

NOTHING = "There are no webhooks: `maestro webhooks add` makes one."
SEND_SECONDS = 30.0
COLUMNS = Columns(
    "path agent channel scheme state taken=trigger_count refused=refused_count last=last_triggered",
    {"channel": channel_text, "state": enabled_text},
)
PORTRAIT = Portrait(
    lambda webhook: f"{webhook.path}  {enabled_text(webhook)}",
    hide="path enabled",
    lines_of={"last4": lambda webhook: webhook.last4 and f"ends in {webhook.last4}"},
    text="prompt_template",
)
OPTIONS = InputOptions(
    NewWebhook,
    leave_out=["path", "scheme", "secret", "enabled"],
    spelling={"prompt_template": "--prompt"},
    prompt="prompt_template",
)

HookPath = Annotated[str, "PATH: The part of the webhook's address after /hooks/."]
SecretEnv = Annotated[str | None, "--secret-env NAME: Read the sender's secret from this variable once, and store it."]


def _operations(at: CommandContext) -> WebhookOperations:
    return WebhookOperations(at.store, encryption(at.loaded.settings))


app = OperationCommands(__doc__, _operations, HookPath, "path")
app.list("List the webhooks by path, with counts of their deliveries.", COLUMNS, NOTHING, PAGES)
app.show("Show a webhook: its agent, its prompt and its deliveries.", PORTRAIT)


@app.command()
def add(
    given: Given,
    path: HookPath,
    options: Annotated[Fields, OPTIONS],
    scheme: Annotated[
        SignatureScheme, "The signature: standard as on standardwebhooks.com, or github."
    ] = SignatureScheme.STANDARD,
    secret_env: SecretEnv = None,
    secret_ref: SecretRef = None,
) -> None:
    """Add a webhook; unless an option gives the sender's secret, a secret is generated and shown only once."""
    with open_context(given) as at:
        own = {"path": path, "scheme": scheme, "secret": read_given_secret("secret", secret_env, secret_ref) or ""}
        webhook = _operations(at).add(read(NewWebhook, {"platform": "web", **options, **own}), ACTOR)
        address = _dashboard_address(at.loaded.settings.webui)
    lines = [f"{webhook.path} takes deliveries at {address}{webhook.hook}", *_secret_lines(webhook)]
    write_output(webhook, lines, given.as_json)


app.edit("Change a webhook.", WebhookChange, OPTIONS)
app.switch("enable", "Let a webhook accept deliveries again.", " takes deliveries again", WebhookChange(enabled=True))
app.switch(
    "disable",
    "Let a webhook refuse deliveries until it is enabled.",
    " takes no deliveries any more",
    WebhookChange(enabled=False),
)


@app.operation()
def rotate(
    webhooks: WebhookOperations, path: HookPath, secret_env: SecretEnv = None, secret_ref: SecretRef = None
) -> Result:
    """Replace the secret of a webhook; the old secret is refused from now on."""
    webhook = webhooks.rotate(
        path, ACTOR, read(SecretRotation, {"secret": read_given_secret("secret", secret_env, secret_ref) or ""})
    )
    line = f"{webhook.path} has another secret, and refuses deliveries signed with the old one"
    return webhook, [line, *_secret_lines(webhook)]


app.remove("Remove a webhook; its jobs stay.")


@app.command("send", ports=[WEBUI_PORT])
def send_delivery(
    given: Given,
    path: HookPath,
    data: Annotated[str, "JSON: The body of the delivery."] = "{}",
    body: Annotated[Path | None, "FILE: The file with the body of the delivery; - for standard input."] = None,
    delivery_id: Annotated[str, "--id: The sender's id of the delivery; a repeated id creates no second job."] = "",
    url: Annotated[str, "The address of Maestro; by default from the configuration."] = "",
) -> None:
    """Try a webhook: sign and post a delivery as its sender would."""
    with open_context(given) as at:
        with at.store.view() as tx:
            webhook = tx.background.webhooks.get(path)
        secret = open_keys(at.loaded.settings, read_environment()).reveal_key(webhook.secret).get_secret_value()
        content = read_bytes(body) if body is not None else data.encode()
        address = url or _dashboard_address(at.loaded.settings.webui)
        taken = _post_delivery(address, webhook, secret, delivery_id or f"msg_{ULID()}", content)
    came = "came before, and made" if taken.duplicate else "made"
    write_output(
        taken, f"the delivery {came} {taken.job_id}; `maestro jobs show {taken.job_id}` shows it", given.as_json
    )


def _dashboard_address(webui: WebuiSettings) -> str:
    return f"http://{reachable_host(webui.host)}:{webui.port}"


def _post_delivery(address: str, webhook: Webhook, secret: str, delivery_id: str, content: bytes) -> DeliveryResult:
    """Sign and post a delivery; raises ``MaestroError`` if it is refused, or no Maestro answers."""
    signature = sign_delivery(webhook.scheme, secret, delivery_id, content, datetime.now(UTC))
    headers = {"Content-Type": "application/json", **signature}
    url = f"{address.rstrip('/')}/hooks/{webhook.path}"
    try:
        answer = httpx.post(url, content=content, headers=headers, timeout=SEND_SECONDS, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise MaestroError(
            f"no Maestro answered at {url} ({error}); start Maestro, or name another address with --url"
        ) from None
    if answer.status_code == httpx.codes.ACCEPTED:
        return DeliveryResult.model_validate_json(answer.content)
    reason = "the server is not Maestro"
    with contextlib.suppress(ValueError, AttributeError):  # The server's answer is not a JSON object.
        reason = answer.json().get("message", "")
    raise MaestroError(f"{url} answered {answer.status_code}: {reason}")


def _secret_lines(webhook: WebhookWithSecret) -> list[str]:
    """Return the lines that show a generated secret; none if the sender's own secret is used."""
    warning = "Give the secret to the sender only: it is not shown again."
    return [f"secret: {webhook.secret}", warning] if webhook.secret else []
