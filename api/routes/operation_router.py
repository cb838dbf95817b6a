"""Generates REST routes from operations: parameters, response model and description are the operation's."""

from collections.abc import Callable
from http import HTTPStatus
from inspect import Parameter, Signature, iscoroutinefunction, signature
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from api.guards import FOR_VIEWERS, OPERATOR, Parts, PasswordRoute
from api.parts import ApiParts

ACTOR = "actor"


def file_responses(media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a download's response."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}, "description": description}}


class OperationAPIRouter(APIRouter):
    """The routes of the operations in the field ``noun`` of ``ApiParts``.

    The paths begin with ``prefix``, by default ``/api/`` and the OpenAPI group; the group is ``tag``, by default the
    noun. A route that needs more than its operation's parameters and view is declared as with any ``APIRouter``.
    """

    def __init__(self, noun: str, *, tag: str = "", prefix: str = "") -> None:
        group = tag or noun
        super().__init__(route_class=PasswordRoute, tags=[group], prefix=prefix or f"/api/{group}")
        self._operations = attrgetter(noun)

    def serve_operation(
        self, method: str, path: str, operation: Callable[..., Any], name: str, status: HTTPStatus | None = None
    ) -> None:
        """Add an operation's route; by default the status is 201 for an addition, and 204 without a result.

        A viewer may use every operation without the parameter ``actor``, because such an operation changes nothing.
        """
        endpoint = create_endpoint(self._operations, operation, method)
        endpoint.__name__ = name
        if status is None and signature(operation).return_annotation is None:
            status = HTTPStatus.NO_CONTENT
        added = status is None and method == "POST" and not path
        extra = FOR_VIEWERS if method != "GET" and ACTOR not in signature(operation).parameters else None
        self.add_api_route(
            path,
            endpoint,
            methods=[method],
            status_code=HTTPStatus.CREATED if added else status or HTTPStatus.OK,
            openapi_extra=extra,
        )


def create_endpoint(
    operations: Callable[[ApiParts], Any], operation: Callable[..., Any], method: str
) -> Callable[..., Any]:
    """Return a FastAPI endpoint that calls an operation with the operator as ``actor``."""
    described = signature(operation)
    fixed = {ACTOR: OPERATOR} if ACTOR in described.parameters else {}
    own = [endpoint_parameter(one, method) for one in list(described.parameters.values())[1:] if one.name != ACTOR]
    parts = Parameter("parts", Parameter.KEYWORD_ONLY, annotation=Parts)

    def call(parts: ApiParts, **values: Any) -> Any:
        return operation(operations(parts), **values, **fixed)

    async def await_call(parts: ApiParts, **values: Any) -> Any:
        return await call(parts, **values)

    endpoint: Callable[..., Any] = await_call if iscoroutinefunction(operation) else call
    endpoint.__doc__ = operation.__doc__
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]  # inspect.signature reads it first
        [parts, *own], return_annotation=described.return_annotation
    )
    return endpoint


def endpoint_parameter(parameter: Parameter, method: str) -> Parameter:
    """Return an operation's parameter for FastAPI; with GET, each field of a model becomes a query parameter."""
    kind = parameter.annotation
    if method == "GET" and isinstance(kind, type) and issubclass(kind, BaseModel):
        kind = Annotated[kind, Query()]
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)
