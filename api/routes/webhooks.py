"""Webhooks, for operators; what is sent to them comes in elsewhere."""

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.webhooks import WebhookOperations

router = OperationAPIRouter("webhooks")
router.serve("GET", "", WebhookOperations.list, "list_webhooks")
router.serve("POST", "", WebhookOperations.add, "add_webhook")
router.serve("GET", "/{path}", WebhookOperations.show, "show_webhook")
router.serve("PATCH", "/{path}", WebhookOperations.change, "change_webhook")
router.serve("DELETE", "/{path}", WebhookOperations.remove, "remove_webhook")
router.serve("POST", "/{path}/rotate", WebhookOperations.rotate, "rotate_secret")
