"""REST routes of schedules and webhooks, and the endpoint that takes webhook requests."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from api.credentials import signed_request
from api.errors import InvalidRequest
from api.guards import OPERATOR, SignatureRoute, request_access
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.domain.schedules.edits import BackfillRequest
from maestro.domain.schedules.views import BackfillView
from maestro.domain.webhooks.template import InvalidJson, read_payload
from maestro.domain.webhooks.views import DeliveryResult
from maestro.domain.webhooks.webhook import BadSignature
from maestro.operations.schedules import ScheduleOperations
from maestro.operations.webhooks import WebhookOperations

schedules = OperationAPIRouter("schedules")
schedules.serve("GET", "", ScheduleOperations.list, "list_schedules")
schedules.serve("POST", "", ScheduleOperations.add, "add_schedule")
schedules.serve("POST", "/preview", ScheduleOperations.preview, "preview_schedule")
schedules.serve("GET", "/{ref}", ScheduleOperations.show, "show_schedule")
schedules.serve("PATCH", "/{ref}", ScheduleOperations.change, "change_schedule")
schedules.serve("DELETE", "/{ref}", ScheduleOperations.remove, "remove_schedule")
schedules.serve("POST", "/{ref}/trigger", ScheduleOperations.run_now, "trigger_schedule", HTTPStatus.ACCEPTED)

webhooks = OperationAPIRouter("webhooks")
webhooks.serve("GET", "", WebhookOperations.list, "list_webhooks")
webhooks.serve("POST", "", WebhookOperations.add, "add_webhook")
webhooks.serve("GET", "/{path}", WebhookOperations.show, "show_webhook")
webhooks.serve("PATCH", "/{path}", WebhookOperations.change, "change_webhook")
webhooks.serve("DELETE", "/{path}", WebhookOperations.remove, "remove_webhook")
webhooks.serve("POST", "/{path}/rotate", WebhookOperations.rotate, "rotate_secret")

endpoint = APIRouter(route_class=SignatureRoute, tags=["webhooks"])


@schedules.post("/{ref}/backfill", status_code=HTTPStatus.ACCEPTED)
def backfill_schedule(parts: Parts, ref: str, wish: BackfillRequest, response: Response) -> BackfillView:
    """Begin a run for each time from ``from`` to ``to`` that had none, at most 100, one after the other.

    With ``preview`` it only tells which, with status 200.
    """
    if wish.preview:
        response.status_code = HTTPStatus.OK
    return parts.schedules.backfill(ref, wish, OPERATOR)


@endpoint.post("/hooks/{path}", status_code=HTTPStatus.ACCEPTED)
def deliver(request: Request, parts: Parts, path: str) -> DeliveryResult:
    """Take a signed delivery: the answer names the job that it made, which is committed by then.

    The same delivery once more gets the same answer, with ``duplicate``. 401 for a signature that is missing, wrong,
    too old or used already, 404 for an unknown or disabled path, 413, 429 and 503 with ``Retry-After``.
    """
    del path  # part of the signature for the route only; the guard reads the path
    delivery = signed_request(request)
    try:
        payload = read_payload(delivery.body, request.headers.get("content-type", ""))
        return parts.hooks.take(delivery.webhook, delivery.signed, payload)
    except InvalidJson as error:
        raise InvalidRequest(f"{error}; send JSON, or another Content-Type") from None
    except BadSignature as error:
        request_access(request).signatures.refuse(request, delivery.webhook, str(error))
        raise
