"""Answers errors as JSON, ``{"error": "<ClassName>", "message": "..."}``, without internal details."""

import math
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from maestro.domain.errors import (
    Backlogged,
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidEdit,
    InvalidMessage,
    MaestroError,
    NotFound,
    StoreBusy,
    TemporalUnavailable,
    Unauthorized,
)
from maestro.domain.network import TooManyAttempts
from maestro.domain.values import Value
from maestro.domain.webhooks.webhook import BadSignature, TooManyDeliveries, WebhookUnready


class ErrorBody(Value):
    """The body of every error response; ``error`` is the name of an error class, which programs may rely on."""

    error: str
    message: str


BASIC = 'Basic realm="Maestro", charset="UTF-8"'
BEARER = 'Bearer realm="Maestro"'


class UnknownHost(MaestroError):
    """The Host header of the request names a host that is not allowed, perhaps by DNS rebinding."""

    public = "Maestro does not answer under this host name."


class InvalidRequest(MaestroError):
    """The request is invalid; the message names the invalid field."""

    public = "The request is not valid."


STATUS: tuple[tuple[type[MaestroError], HTTPStatus], ...] = (
    (InvalidRequest, HTTPStatus.BAD_REQUEST),
    (InvalidEdit, HTTPStatus.BAD_REQUEST),
    (InvalidMessage, HTTPStatus.BAD_REQUEST),
    (ConfigurationError, HTTPStatus.BAD_REQUEST),
    (Unauthorized, HTTPStatus.UNAUTHORIZED),
    (BadSignature, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (UnknownHost, HTTPStatus.MISDIRECTED_REQUEST),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
    (TooManyDeliveries, HTTPStatus.TOO_MANY_REQUESTS),
    (WebhookUnready, HTTPStatus.SERVICE_UNAVAILABLE),
    (Backlogged, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreBusy, HTTPStatus.SERVICE_UNAVAILABLE),
    (TemporalUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The HTTP status of each error; any other error is a defect of Maestro, with status 500."""

NAMES = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "TooLarge"}
"""Error names for HTTP statuses that have different phrases in different Python versions."""

UNEXPECTED = "An unexpected error happened in Maestro. Its log has the details at the time of this request."


def error_response(error: MaestroError) -> JSONResponse:
    """Return the response for a Maestro error; an error that ``STATUS`` does not list shows only ``public``."""
    status = http_status(error)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return json_error(status, type(error).__name__, error.public)
    response = json_error(status, type(error).__name__, str(error) or error.public)
    if isinstance(error, Unauthorized) and error.challenge:
        response.headers["WWW-Authenticate"] = error.challenge
    response.headers.update(retry_after_header(error))
    return response


def http_status(error: MaestroError) -> HTTPStatus:
    """Return the HTTP status of an error."""
    known = (status for kind, status in STATUS if isinstance(error, kind))
    return next(known, HTTPStatus.INTERNAL_SERVER_ERROR)


def retry_after_header(error: MaestroError) -> dict[str, str]:
    """Return the Retry-After header for an error that says how long to wait, else no header."""
    if error.retry_after is None:
        return {}
    return {"Retry-After": str(math.ceil(error.retry_after.total_seconds()))}


def unexpected_error_response() -> JSONResponse:
    """Return the response for an unexpected error, which is a defect of Maestro."""
    return json_error(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", UNEXPECTED)


def register_handlers(app: FastAPI) -> None:
    """Make the app answer every error as JSON."""
    app.add_exception_handler(MaestroError, _answer_maestro_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(RequestValidationError, _answer_invalid_request)


async def _answer_maestro_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MaestroError)
    return error_response(error)


async def _answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answer an HTTP error of FastAPI; ``error`` is the status phrase, such as ``MethodNotAllowed``."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    name = NAMES.get(status) or "".join(filter(str.isalpha, status.phrase.title()))
    message = str(error.detail)
    if status is HTTPStatus.NOT_FOUND:
        message = f"There is nothing at {request.url.path}."
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{request.method} is not allowed at {request.url.path}."
    response = json_error(status, name, message)
    response.headers.update(error.headers or {})
    return response


async def _answer_invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = []
    for problem in error.errors():
        # The field as the caller wrote it, such as "limit"; a field of the body gets the prefix "body".
        place, *path = problem["loc"]
        name = ".".join(map(str, path))
        field = f"{place} {name}".strip() if place == "body" else name
        problems.append(f"{field}: {problem['msg'].removeprefix('Value error, ')}")
    return error_response(InvalidRequest("; ".join(problems)))


def json_error(status: HTTPStatus, error: str, message: str) -> JSONResponse:
    return JSONResponse(ErrorBody(error=error, message=message).model_dump(), status_code=status)
