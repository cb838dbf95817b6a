"""The codec endpoint: encrypts and decrypts payloads for Temporal's Web UI and CLI, by Temporal's protocol.

See docs/howto/encrypt-payloads.md.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Header
from pydantic import BaseModel, Field
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import InvalidRequest
from api.guards import FOR_VIEWERS, Parts, PasswordRoute
from api.parts import ApiParts, RawPayload
from maestro.domain.errors import Forbidden, NotFound
from maestro.domain.network import CODEC_PATH

router = APIRouter(route_class=PasswordRoute, tags=["codec"], prefix=CODEC_PATH)

Namespace = Annotated[str, Header(alias="X-Namespace", description="the namespace of the payloads")]


class EncodedPayload(BaseModel):
    """A payload as Temporal writes it in JSON: all values are base64."""

    metadata: dict[str, str] = Field(default={}, description="the encoding and other facts about the data, as base64")
    data: str = Field(default="", description="the data, as base64")


class PayloadList(BaseModel):
    """The payloads of a request or a response, in the same order."""

    payloads: list[EncodedPayload]


@router.post("/encode")
async def encode_payloads(parts: Parts, body: PayloadList, namespace: Namespace = "") -> PayloadList:
    """Encrypt payloads with the first key of temporal.codec.keys."""
    return _convert(parts, body, namespace, decrypt=False)


@router.post("/decode", openapi_extra=FOR_VIEWERS)
async def decode_payloads(parts: Parts, body: PayloadList, namespace: Namespace = "") -> PayloadList:
    """Decrypt payloads; those that are not encrypted are returned unchanged. 400 for an unknown key."""
    return _convert(parts, body, namespace, decrypt=True)


def _convert(parts: ApiParts, body: PayloadList, namespace: str, *, decrypt: bool) -> PayloadList:
    coding = parts.payloads
    if coding is None:
        raise NotFound("temporal.codec.keys is empty, so no payload is encrypted")
    if namespace not in ("", coding.namespace):
        raise Forbidden(f"These keys are for the namespace '{coding.namespace}', not for '{namespace}'.")
    convert: Callable[[Sequence[RawPayload]], Iterable[RawPayload]] = coding.decrypt if decrypt else coding.encrypt
    return PayloadList(payloads=[_write_payload(raw) for raw in convert([_read_payload(one) for one in body.payloads])])


def _read_payload(payload: EncodedPayload) -> RawPayload:
    try:
        metadata = {name: base64.b64decode(value, validate=True) for name, value in payload.metadata.items()}
        return metadata, base64.b64decode(payload.data, validate=True)
    except ValueError:
        raise InvalidRequest(
            "payloads: metadata and data must be base64, as Temporal writes payloads in JSON"
        ) from None


def _write_payload(raw: RawPayload) -> EncodedPayload:
    metadata, data = raw
    encoded = {name: base64.b64encode(value).decode() for name, value in metadata.items()}
    return EncodedPayload(metadata=encoded, data=base64.b64encode(data).decode())


class CodecOrigins:
    """The ASGI middleware that lets pages of Temporal's Web UI read the responses of the codec endpoint."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._shared = CORSMiddleware(
            app, allow_origins=origins, allow_credentials=True, allow_methods=["POST"], allow_headers=["*"]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers of cross-origin requests below the endpoint's path, and answer preflight requests."""
        is_codec = scope["type"] == "http" and scope["path"].startswith(f"{CODEC_PATH}/")
        await (self._shared if is_codec else self._app)(scope, receive, send)
