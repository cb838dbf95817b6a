"""The API reference: a list of all operations, and a page for each group with its models."""

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
MODEL_REFERENCE = "#/components/schemas/"
CODE = re.compile(r"``?([^`]+)``?")
LARGEST = 2**31
"""Numeric limits from this value on come from the database's integers, and are not shown."""
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
    """One word of a type's description; ``model`` is the name of the model to link to, empty for plain text."""

    text: str
    model: str = ""


@dataclass(frozen=True)
class ValueField:
    """A field of a model, or a parameter of an operation; ``place`` is path or query, empty for a field."""

    name: str
    types: Sequence[TypeWord]
    required: bool
    note: Markup
    place: str = ""


@dataclass(frozen=True)
class ApiAnswer:
    """A response of an operation; the status ``default`` stands for every error."""

    status: str
    words: str
    types: Sequence[TypeWord]


@dataclass(frozen=True)
class Operation:
    """An HTTP method on a path; ``anchor`` is the operation's id on its page."""

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
    """A model that operations take or return: its fields, or the values of an enumeration."""

    name: str
    words: Markup
    fields: Sequence[ValueField]
    choices: Sequence[str]


@router.get("")
def show_reference(request: Request) -> HTMLResponse:
    """List every operation, by group."""
    groups: dict[str, list[Operation]] = {}
    for operation in _read_operations(request.app.openapi()):
        groups.setdefault(operation.group, []).append(operation)
    home = f"{request.url.scheme}://{request.headers['host']}"
    return render(request, "reference.html", groups=groups, home=home)


@router.get("/{group}")
def show_group(request: Request, group: str) -> HTMLResponse:
    """Show the operations of a group, and the models that they take and return."""
    schema = request.app.openapi()
    operations = [operation for operation in _read_operations(schema) if operation.group == group]
    if not operations:
        raise NotFound(f"the API has no group {group}")
    models = _read_models(schema["components"]["schemas"], operations)
    return render(request, "reference-group.html", group=group, operations=operations, models=models)


def _read_operations(schema: Schema) -> Iterator[Operation]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {})
            yield Operation(
                anchor=f"{method}-{re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')}",
                method=method.upper(),
                path=path,
                group=operation.get("tags", ["other"])[0],
                words=_render_markup(operation.get("description") or operation.get("summary", "")),
                parameters=[
                    _field(parameter["name"], parameter["schema"], bool(parameter.get("required")), parameter["in"])
                    for parameter in operation.get("parameters", ())
                ],
                body=[word for content in body.values() for word in _types(content.get("schema", {}))],
                answers=[_answer(status, answer) for status, answer in sorted(operation.get("responses", {}).items())],
                security=sorted({scheme for schemes in operation.get("security", ()) for scheme in schemes}),
                viewer=bool(operation.get(VIEWER)),
            )


def _answer(status: str, answer: Schema) -> ApiAnswer:
    content = answer.get("content", {})
    types = [word for kind, body in content.items() for word in (_types(body.get("schema", {})) or [TypeWord(kind)])]
    return ApiAnswer(status, answer.get("description", ""), types)


def _field(name: str, schema: Schema, required: bool, place: str = "") -> ValueField:
    return ValueField(name, _types(schema), required, _describe_value(schema), place)


def _read_models(schemas: Mapping[str, Schema], operations: Sequence[Operation]) -> Sequence[ApiModel]:
    """Return the models of these operations by name, with the models of their fields."""
    pending = [word.model for operation in operations for word in operation.body]
    pending += [word.model for operation in operations for part in operation.parameters for word in part.types]
    pending += [word.model for operation in operations for part in operation.answers for word in part.types]
    models: dict[str, ApiModel] = {}
    while pending:
        name = pending.pop()
        if name and name not in models:
            models[name] = _read_model(name, schemas[name])
            pending += [word.model for field in models[name].fields for word in field.types]
    return [models[name] for name in sorted(models)]


def _read_model(name: str, schema: Schema) -> ApiModel:
    required = schema.get("required", ())
    fields = [_field(field, value, field in required) for field, value in schema.get("properties", {}).items()]
    return ApiModel(name, _render_markup(schema.get("description", "")), fields, list(map(str, schema.get("enum", ()))))


def _types(schema: Schema) -> list[TypeWord]:
    """Return a type as words, such as ``list of`` and the name of a model."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(MODEL_REFERENCE)
        return [TypeWord(name, name)]
    if alternatives := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return [word for each in alternatives for word in (TypeWord("or"), *_types(each))][1:]
    if schema.get("type") == "array":
        return [TypeWord("list of"), *_types(schema.get("items", {}))]
    if isinstance(schema.get("additionalProperties"), Mapping):
        return [TypeWord("map of"), *_types(schema["additionalProperties"])]
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return [TypeWord(" or ".join(f'"{choice}"' for choice in choices))]
    return [TypeWord(str(schema.get("format") or schema.get("type") or "any JSON"))]


def _describe_value(schema: Schema) -> Markup:
    """Return the description of a value with its limits and its default."""
    limits = {**schema, **{name: value for each in schema.get("anyOf", ()) for name, value in each.items()}}
    notes = [f"{words} {limits[name]}" for name, words in LIMITS.items() if abs(limits.get(name, LARGEST)) < LARGEST]
    default = schema.get("default")
    if default not in (None, "", [], {}):
        notes.append(f"``{default}`` when it is left out")
    return _render_markup("; ".join(filter(None, (schema.get("description", ""), *notes))))


def _render_markup(text: str) -> Markup:
    """Return a description as HTML, with its code in ``code`` elements."""
    escaped = str(escape(" ".join(text.split())))
    return Markup(CODE.sub(r"<code>\1</code>", escaped))  # noqa: S704 - the line above escapes the text
