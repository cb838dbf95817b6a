"""Reads filters from query parameters and fields from forms, and runs the operation of a form."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from fastapi import Form, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response

from api.dashboard.pages import redirect_to_page
from api.guards import OPERATOR, Parts, PasswordRoute
from maestro.domain.agents.edits import MAX_REASON
from maestro.domain.columns import LARGEST
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.values import read

Result = TypeVar("Result")
Query = TypeVar("Query", bound=BaseModel)
_JSON_OBJECT = TypeAdapter(dict[str, Any])
FormText = Annotated[str, Form()]
FormRow = Annotated[int, Form(ge=1, le=LARGEST)]
"""The id of a table row, as a form field."""


class TextForm(BaseModel):
    """The base of forms that hold only texts; the input model of an operation validates these texts."""

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return the fields, except those ``left_out``, without surrounding blanks."""
        return {name: text.strip() for name, text in self.model_dump(exclude=set(left_out)).items()}

    @classmethod
    def from_view(cls, view: BaseModel, **texts: str) -> Self:
        """Return the form filled with the values of an API view; ``texts`` replace the values of the same names."""
        values = view.model_dump(by_alias=False, include=set(cls.model_fields) - set(texts))
        return cls(**{name: str(value) for name, value in values.items()}, **texts)


def read_filters(request: Request, names: Iterable[str]) -> dict[str, str]:
    """Return the query parameters of these names, without surrounding blanks; a missing parameter is empty."""
    return {name: request.query_params.get(name, "").strip() for name in names}


def without_empty(fields: Mapping[str, Result]) -> dict[str, Result]:
    """Return the fields that are not empty; an empty field of a filter form means no filter."""
    return {name: value for name, value in fields.items() if value}


def read_query(model: type[Query], fields: Mapping[str, object]) -> tuple[Query, InvalidEdit | None]:
    """Return a query model of the non-empty fields, and None; for invalid fields, a default model and the error."""
    try:
        return read(model, without_empty(fields)), None
    except InvalidEdit as error:
        return model(), error


def read_edits(agent: str, model: str, prompt: str) -> dict[str, str]:
    """Return the non-empty edits of a replay form; the line ends CR LF of browsers become LF."""
    entered = {"agent": agent.strip(), "model": model.strip(), "prompt": prompt.replace("\r\n", "\n")}
    return {name: text for name, text in entered.items() if text.strip()}


def parse_object(text: str, problem: str) -> dict[str, Any]:
    """Return the JSON object in a text; raises ``InvalidEdit`` with the message ``problem`` for any other text."""
    try:
        return _JSON_OBJECT.validate_json(text)
    except ValidationError:
        raise InvalidEdit(problem) from None


def edit_reason(text: str) -> str:
    """Return the reason that an operator entered for an edit, stripped and cut to the maximum length."""
    return text.strip()[:MAX_REASON]


def submit(
    operation: Callable[[], Result], done: Callable[[Result], Response], refused: Callable[[MaestroError], Response]
) -> Response:
    """Run the operation of a form; return the response of ``done``, or after an error that of ``refused``."""
    try:
        result = operation()
    except MaestroError as error:
        return refused(error)
    return done(result)


async def submit_async(
    operation: Callable[[], Awaitable[Result]],
    done: Callable[[Result], Response],
    refused: Callable[[MaestroError], Response],
) -> Response:
    """Run an async operation as ``submit`` does; ``refused`` runs in a thread, because it reads the store."""
    try:
        result = await operation()
    except MaestroError as error:
        return await asyncio.to_thread(refused, error)
    return done(result)


class FormAction(NamedTuple):
    """A form that only runs an operation of the field ``noun`` of ``ApiParts``; ``done`` names the notice to show.

    The form fields and path parameters are the operation's arguments, as texts, besides the actor and ``change``.
    """

    path: str
    noun: str
    operation: Callable[..., object]
    done: str = ""
    change: BaseModel | None = None


def form_routes(page: str, show_problem: Callable[..., Response], *actions: FormAction) -> Iterator[PasswordRoute]:
    """Yield the routes that run these form actions of a page; ``show_problem`` returns the page with an error.

    ``page`` is the path to redirect to, and begins the path of each action; it may contain path parameters.
    """
    for action in actions:
        endpoint = _form_endpoint(page, show_problem, action)
        yield PasswordRoute(page + action.path, endpoint, methods=["POST"], include_in_schema=False)


def _form_endpoint(page: str, show_problem: Callable[..., Response], action: FormAction) -> Callable[..., Response]:
    fixed: dict[str, object] = {"actor": OPERATOR, **({"change": action.change} if action.change is not None else {})}

    def endpoint(request: Request, parts: Parts, **fields: str) -> Response:
        return submit(
            lambda: action.operation(getattr(parts, action.noun), **fields, **fixed),
            lambda _: redirect_to_page(page.format(**fields), done=action.done),
            lambda error: show_problem(request, error, **fields),
        )

    annotations: dict[str, Any] = {"request": Request, "parts": Parts}
    for name in list(signature(action.operation).parameters)[1:]:
        if name not in fixed:
            annotations[name] = str if f"{{{name}}}" in page else FormText
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]  # inspect.signature reads it first
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in annotations.items()]
    )
    return endpoint


def moment_with_zone(text: str) -> str:
    """Return an entered time with a time zone, by default UTC; a day without a time means its start."""
    moment = f"{text}T00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text
    return moment if re.search(r"(Z|[+-]\d\d:?\d\d)$", moment, re.IGNORECASE) else f"{moment}Z"
