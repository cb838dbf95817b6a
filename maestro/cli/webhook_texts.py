"""Webhooks as a person reads them."""

from collections.abc import Iterator
from datetime import datetime

from maestro.cli.pages import table_page
from maestro.cli.table import plain
from maestro.domain.webhooks.views import MadeWebhook, WebhookPage, WebhookView

NOTHING = "There are no webhooks: `maestro webhooks add` makes one."
COLUMNS = ("path", "agent", "channel", "scheme", "state", "taken", "refused", "last")


def listing(page: WebhookPage) -> Iterator[str]:
    """Yield a table of webhooks."""
    yield from table_page(COLUMNS, list(map(_row, page.items)), NOTHING, page.next)


def portrait(webhook: WebhookView) -> Iterator[str]:
    """Yield everything about a webhook."""
    yield f"{plain(webhook.path)}  {_state(webhook)}"
    facts = (
        ("name", webhook.name),
        ("post to", webhook.hook),
        ("signed as", webhook.scheme),
        ("secret", webhook.reference or (f"ends in {webhook.last4}" if webhook.last4 else "set")),
        ("agent", webhook.agent),
        ("posts in", _place(webhook)),
        ("a minute", f"{webhook.per_minute} at most"),
        ("taken", f"{webhook.trigger_count}, last {_time(webhook.last_triggered)}"),
        ("refused", str(webhook.refused_count)),
        ("made", f"{_time(webhook.created_at)} by {webhook.created_by}"),
    )
    yield from (f"  {name:<10} {plain(value)}" for name, value in facts)
    yield from ("", *(f"  {plain(line)}" for line in webhook.prompt_template.splitlines()))


def made(webhook: MadeWebhook, address: str) -> Iterator[str]:
    """Yield where to post to, of the dashboard at ``address``, and the secret if it is new."""
    yield f"{webhook.path} takes deliveries at {address}{webhook.hook}"
    yield from new_secret(webhook)


def new_secret(webhook: MadeWebhook) -> Iterator[str]:
    """Yield the secret if it was made here."""
    if webhook.secret:
        yield f"secret: {webhook.secret}"
        yield "Give it to the sender, and keep it where nobody else reads it: it is not shown again."


def _row(webhook: WebhookView) -> tuple[str, ...]:
    taken = (str(webhook.trigger_count), str(webhook.refused_count), _time(webhook.last_triggered))
    return webhook.path, webhook.agent, _place(webhook), webhook.scheme, _state(webhook), *taken


def _place(webhook: WebhookView) -> str:
    thread = f"/{webhook.thread}" if webhook.thread else ""
    return f"{webhook.platform}/{webhook.channel}{thread}"


def _state(webhook: WebhookView) -> str:
    return "enabled" if webhook.enabled else "disabled"


def _time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else "-"
