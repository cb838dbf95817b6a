"""REST routes of operations: each takes the input of its operation, and answers with its docstring and its view."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from inspect import Parameter, Signature, iscoroutinefunction, signature
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.dependencies import Parts

ACTOR = "actor"


class OperationAPIRouter(APIRouter):
    """The routes of the operations of a noun, which are the field of ``ApiParts`` of that name.

    They lie under ``/api/`` and the noun unless there is a ``prefix``, and in the group of the noun or of the ``tag``.

    A route that needs more than the parameters and the view of its operation is written as with any ``APIRouter``.
    """

    def __init__(self, noun: str, *, tag: str = "", prefix: str = "") -> None:
        group = tag or noun
        super().__init__(route_class=PasswordRoute, tags=[group], prefix=prefix or f"/api/{group}")
        self._operations = attrgetter(noun)

    def serve(
        self, method: str, path: str, operation: Callable[..., Any], name: str, status: HTTPStatus | None = None
    ) -> None:
        """Answer a method of a path with an operation: 201 for what is added, 204 for what returns nothing.

        A viewer may use every operation without an ``actor``, because it changes nothing.
        """
        endpoint = _endpoint(self._operations, operation, method)
        endpoint.__name__ = name
        found = status or _status(method, path, signature(operation).return_annotation)
        extra = FOR_VIEWERS if method != "GET" and ACTOR not in signature(operation).parameters else None
        self.add_api_route(path, endpoint, methods=[method], status_code=found, openapi_extra=extra)


def _endpoint(operations: Callable[[ApiParts], Any], operation: Callable[..., Any], method: str) -> Callable[..., Any]:
    """Return an operation as FastAPI calls it: with the parts in the place of ``self``, as the operator."""
    described = signature(operation)
    taken = list(described.parameters.values())[1:]
    fixed = {ACTOR: OPERATOR} if ACTOR in described.parameters else {}

    def call(parts: ApiParts, **values: Any) -> Any:
        return operation(operations(parts), **values, **fixed)

    async def await_call(parts: ApiParts, **values: Any) -> Any:
        return await call(parts, **values)

    endpoint: Callable[..., Any] = await_call if iscoroutinefunction(operation) else call
    endpoint.__doc__ = operation.__doc__
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]  # inspect.signature reads it first
        _parameters(taken, method), return_annotation=described.return_annotation
    )
    return endpoint


def _parameters(taken: Sequence[Parameter], method: str) -> Sequence[Parameter]:
    parts = Parameter("parts", Parameter.KEYWORD_ONLY, annotation=Parts)
    own = [_parameter(one, method) for one in taken if one.name != ACTOR]
    return [parts, *own]


def _parameter(one: Parameter, method: str) -> Parameter:
    """Return a parameter; a model that is asked for with GET is the query, each field a parameter of its own."""
    kind = one.annotation
    if method == "GET" and isinstance(kind, type) and issubclass(kind, BaseModel):
        kind = Annotated[kind, Query()]
    return one.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)


def _status(method: str, path: str, view: object) -> HTTPStatus:
    if view is None:
        return HTTPStatus.NO_CONTENT
    return HTTPStatus.CREATED if method == "POST" and not path else HTTPStatus.OK
