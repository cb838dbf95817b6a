"""Webhooks, for operators; what is sent to them comes in elsewhere."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.webhooks.edits import NewWebhook, Rotation, WebhookChange
from maestro.domain.webhooks.views import MadeWebhook, WebhookPage, WebhookView, webhook_page

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["webhooks"], prefix="/api/webhooks")


@router.get("")
def list_webhooks(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: str | None = None
) -> WebhookPage:
    """List the webhooks by path, with what came to them; the cursor is the last path of the page before."""
    with parts.store.view() as tx:
        return webhook_page(tx.webhooks.page(cursor, limit + 1), limit)


@router.post("", status_code=HTTPStatus.CREATED)
def add_webhook(parts: Parts, new: NewWebhook) -> MadeWebhook:
    """Make a webhook; a secret that is made for it is shown only now. 409 for a path that is taken."""
    return parts.webhooks.add(new, OPERATOR)


@router.get("/{path}")
def show_webhook(parts: Parts, path: str) -> WebhookView:
    """Return a webhook."""
    with parts.store.view() as tx:
        return tx.webhooks.view(tx.webhooks.get(path))


@router.patch("/{path}")
def change_webhook(parts: Parts, path: str, change: WebhookChange) -> WebhookView:
    """Change the fields that are given."""
    return parts.webhooks.change(path, change, OPERATOR)


@router.delete("/{path}", status_code=HTTPStatus.NO_CONTENT)
def remove_webhook(parts: Parts, path: str) -> None:
    """Remove a webhook; its jobs stay."""
    with parts.store.begin() as tx:
        tx.webhooks.remove(tx.webhooks.get(path), OPERATOR)


@router.post("/{path}/rotate")
def rotate_secret(parts: Parts, path: str, rotation: Rotation | None = None) -> MadeWebhook:
    """Give a webhook another secret, one that is made if none is given; the old one holds no more."""
    return parts.webhooks.rotate(path, rotation or Rotation(), OPERATOR)
