"""``/hooks/``: where programs outside post what becomes work for an agent."""

from http import HTTPStatus

from fastapi import APIRouter, Request

from api.errors import InvalidRequest
from api.guards import SignatureRoute, doorman
from api.routes.surroundings import Parts
from api.signatures import delivered
from maestro.domain.webhooks.payload import NoJson, read_payload
from maestro.domain.webhooks.signatures import BadSignature
from maestro.domain.webhooks.views import Taken

router = APIRouter(route_class=SignatureRoute, tags=["webhooks"])


@router.post("/hooks/{path}", status_code=HTTPStatus.ACCEPTED)
def deliver(request: Request, parts: Parts, path: str) -> Taken:
    """Take a signed delivery: the answer names the job that it made, which is committed by then.

    The same delivery once more gets the same answer, with ``duplicate``. 401 for a signature that is missing, wrong,
    too old or used already, 404 for an unknown or disabled path, 413, 429 and 503 with ``Retry-After``.
    """
    del path  # the guard knows it
    delivery = delivered(request)
    try:
        payload = read_payload(delivery.body, request.headers.get("content-type", ""))
        return parts.hooks.take(delivery.webhook, delivery.signed, payload)
    except NoJson as error:
        raise InvalidRequest(f"{error}; send JSON, or another Content-Type") from None
    except BadSignature as error:
        doorman(request).signatures.refuse(request, delivery.webhook, str(error))
        raise
