"""The API reference as pages: all operations in a list, and a page for each group with the values of its operations."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from api.dashboard.pages import render
from api.guards import VIEWER, PasswordRoute
from maestro.domain.errors import NotFound

PAGE = "/docs"
HERE = "docs"
TITLE = "API reference – Maestro"
OF_MODELS = "#/components/schemas/"
CODE = re.compile(r"``?([^`]+)``?")
LARGEST = 2**31
"""A limit beyond this one is that of the database, and tells people nothing."""
LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "maxLength": "characters at most:",
    "maxItems": "items at most:",
}

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class TypeWord:
    """A word of a type; ``model`` is the name of the one that it means, empty for a plain word."""

    text: str
    model: str = ""


@dataclass(frozen=True)
class ValueField:
    """A field of a value, or a parameter of a path or a query (``place``)."""

    name: str
    types: Sequence[TypeWord]
    required: bool
    note: Markup
    place: str = ""


@dataclass(frozen=True)
class ApiAnswer:
    """What an operation answers with a status, ``default`` for every error."""

    status: str
    words: str
    types: Sequence[TypeWord]


@dataclass(frozen=True)
class Operation:
    """One method of one path; ``anchor`` is where its page has it."""

    anchor: str
    method: str
    path: str
    group: str
    words: Markup
    parameters: Sequence[ValueField]
    body: Sequence[TypeWord]
    answers: Sequence[ApiAnswer]
    security: Sequence[str]
    viewer: bool


@dataclass(frozen=True)
class ApiModel:
    """A value that operations take or return: its fields, or the words that it may be."""

    name: str
    words: Markup
    fields: Sequence[ValueField]
    choices: Sequence[str]


@router.get("")
def show(request: Request) -> HTMLResponse:
    """List every operation by its group."""
    groups: dict[str, list[Operation]] = {}
    for one in _operations(request.app.openapi()):
        groups.setdefault(one.group, []).append(one)
    home = f"{request.url.scheme}://{request.headers['host']}"
    return render(request, "reference.html", title=TITLE, groups=groups, home=home)


@router.get("/{group}")
def show_group(request: Request, group: str) -> HTMLResponse:
    """Show the operations of a group, and the values that they take and return."""
    described = request.app.openapi()
    found = [one for one in _operations(described) if one.group == group]
    if not found:
        raise NotFound(f"the API has no group {group}")
    models = _models(described, found)
    return render(request, "reference-group.html", title=TITLE, group=group, operations=found, models=models)


def _operations(described: Schema) -> Iterator[Operation]:
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {})
            yield Operation(
                anchor=f"{method}-{re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')}",
                method=method.upper(),
                path=path,
                group=one.get("tags", ["other"])[0],
                words=_words(one.get("description") or one.get("summary", "")),
                parameters=[_parameter(parameter) for parameter in one.get("parameters", ())],
                body=[word for content in body.values() for word in _types(content.get("schema", {}))],
                answers=[_answer(status, answer) for status, answer in sorted(one.get("responses", {}).items())],
                security=sorted({way for ways in one.get("security", ()) for way in ways}),
                viewer=bool(one.get(VIEWER)),
            )


def _answer(status: str, answer: Schema) -> ApiAnswer:
    content = answer.get("content", {})
    types = [word for kind, one in content.items() for word in (_types(one.get("schema", {})) or [TypeWord(kind)])]
    return ApiAnswer(status, answer.get("description", ""), types)


def _parameter(parameter: Schema) -> ValueField:
    schema = parameter["schema"]
    required = bool(parameter.get("required"))
    return ValueField(parameter["name"], _types(schema), required, _note(schema), parameter["in"])


def _models(described: Schema, operations: Sequence[Operation]) -> Sequence[ApiModel]:
    """Return the values that operations mention, and those that these mention, by name."""
    schemas = described["components"]["schemas"]
    open_names = [word.model for one in operations for word in _mentioned(one)]
    found: dict[str, ApiModel] = {}
    while open_names:
        name = open_names.pop()
        if name and name not in found:
            found[name] = _model(name, schemas[name])
            open_names += [word.model for field in found[name].fields for word in field.types]
    return [found[name] for name in sorted(found)]


def _mentioned(operation: Operation) -> Iterator[TypeWord]:
    yield from operation.body
    for parameter in operation.parameters:
        yield from parameter.types
    for answer in operation.answers:
        yield from answer.types


def _model(name: str, schema: Schema) -> ApiModel:
    required = schema.get("required", ())
    fields = [
        ValueField(field, _types(one), field in required, _note(one))
        for field, one in schema.get("properties", {}).items()
    ]
    return ApiModel(name, _words(schema.get("description", "")), fields, [str(one) for one in schema.get("enum", ())])


def _types(schema: Schema) -> list[TypeWord]:
    """Say the type of a value in words, such as ``list of`` and the name of a model."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(OF_MODELS)
        return [TypeWord(name, name)]
    several = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if several:
        words = [_types(one) for one in several]
        return [word for place, one in enumerate(words) for word in ([TypeWord("or")] if place else []) + one]
    if schema.get("type") == "array":
        return [TypeWord("list of"), *_types(schema.get("items", {}))]
    if isinstance(schema.get("additionalProperties"), Mapping):
        return [TypeWord("map of"), *_types(schema["additionalProperties"])]
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if choices:
        return [TypeWord(" or ".join(f'"{one}"' for one in choices))]
    return [TypeWord(str(schema.get("format") or schema.get("type") or "any JSON"))]


def _note(schema: Schema) -> Markup:
    """Say what else holds for a value: its meaning, its limits and what it is when it is left out."""
    limits = {**schema, **{name: value for one in schema.get("anyOf", ()) for name, value in one.items()}}
    said = [f"{words} {limits[name]}" for name, words in LIMITS.items() if abs(limits.get(name, LARGEST)) < LARGEST]
    default = schema.get("default")
    if default not in (None, "", [], {}):
        said.append(f"``{default}`` when it is left out")
    return _words("; ".join(filter(None, (schema.get("description", ""), *said))))


def _words(text: str) -> Markup:
    """Return a text of the description with its code marked as such."""
    paragraphs = str(escape(" ".join(text.split())))
    return Markup(CODE.sub(r"<code>\1</code>", paragraphs))  # noqa: S704 - escaped in the lines above
