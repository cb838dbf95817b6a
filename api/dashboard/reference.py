"""The API reference: a list of all operations, and a page for each group with its models."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from api.dashboard.pages import render
from api.guards import VIEWER, PasswordRoute
from maestro.domain.errors import NotFound

PAGE = "/docs"
MODEL_REFERENCE = "#/components/schemas/"
CODE = re.compile(r"``?([^`]+)``?")
LARGEST = 2**31
"""The page hides numeric limits of this size or more, because they only come from the database's integers."""
LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "maxLength": "characters at most:",
    "maxItems": "items at most:",
}

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Schema = Mapping[str, Any]


@router.get("")
def show_reference(request: Request) -> HTMLResponse:
    """List every operation, by group."""
    groups: dict[str, list[Schema]] = {}
    for operation in _list_operations(request.app.openapi()):
        groups.setdefault(operation["tags"][0], []).append(operation)
    home = f"{request.url.scheme}://{request.headers['host']}"
    return render(request, "reference.html", groups=groups, home=home, markup=_render_markup)


@router.get("/{group}")
def show_group(request: Request, group: str) -> HTMLResponse:
    """Show the operations of a group, and the models that they take and return."""
    schema = request.app.openapi()
    operations = [operation for operation in _list_operations(schema) if operation["tags"][0] == group]
    if not operations:
        raise NotFound(f"the API has no group {group}")
    return render(
        request,
        "reference-group.html",
        group=group,
        operations=operations,
        models=_find_models(schema["components"]["schemas"], operations),
        markup=_render_markup,
        type_of=_describe_type,
        types_of=lambda part: Markup(" ").join(
            _describe_type(body.get("schema", {})) for body in part.get("content", {}).values()
        ),
        meaning_of=_describe_value,
    )


def _list_operations(schema: Schema) -> Sequence[Schema]:
    """Return every operation with its method, path and security schemes, and the anchor of its section."""
    return [
        {
            **operation,
            "method": method.upper(),
            "path": path,
            "anchor": f"{method}-{re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')}",
            "security": sorted({scheme for schemes in operation.get("security", ()) for scheme in schemes}),
            "viewer": operation.get(VIEWER),
        }
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]


def _find_models(schemas: Schema, operations: Sequence[Schema]) -> Sequence[tuple[str, Schema]]:
    models: dict[str, Schema] = {}
    pending = list(_model_names(operations))
    while pending:
        name = pending.pop()
        if name not in models:
            models[name] = schemas[name]
            pending += _model_names(schemas[name])
    return sorted(models.items())


def _model_names(value: object) -> Iterator[str]:
    """Yield the names of the models to which a part of the OpenAPI document refers."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].removeprefix(MODEL_REFERENCE)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _model_names(each)


def _describe_type(schema: Schema) -> Markup:
    """Return a type in words, such as ``list of`` and a link to a model."""
    if "$ref" in schema:
        return Markup('<a href="#{0}">{0}</a>').format(schema["$ref"].removeprefix(MODEL_REFERENCE))
    if alternatives := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return Markup(" or ").join(map(_describe_type, alternatives))
    if schema.get("type") == "array":
        return Markup("list of ") + _describe_type(schema.get("items", {}))
    if isinstance(schema.get("additionalProperties"), Mapping):
        return Markup("map of ") + _describe_type(schema["additionalProperties"])
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return escape(" or ".join(f'"{choice}"' for choice in choices))
    return escape(schema.get("format") or schema.get("type") or "any JSON")


def _describe_value(schema: Schema, required: bool) -> Markup:
    limits = {**schema, **{name: value for each in schema.get("anyOf", ()) for name, value in each.items()}}
    known = {name: words for name, words in LIMITS.items() if abs(limits.get(name, LARGEST)) < LARGEST}
    notes = [f"{words} {limits[name]:.15g}" for name, words in known.items()]
    default = schema.get("default")
    if not required and default not in (None, "", [], {}):
        notes.append(f"``{default}`` when it is left out")
    return _render_markup("; ".join(filter(None, (schema.get("description", ""), *notes))))


def _render_markup(text: str) -> Markup:
    """Return a description as HTML, with text in backticks as ``code`` elements."""
    escaped = str(escape(" ".join(text.split())))
    return Markup(CODE.sub(r"<code>\1</code>", escaped))  # noqa: S704 - the line above escapes the text
