"""Reads what somebody wrote into a value, and says in a sentence what is wrong with it."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from maestro.domain.errors import InvalidEdit

Shape = TypeVar("Shape", bound=BaseModel)

_SENTENCES = {
    "missing": "is missing; add it",
    "string_type": "expected a text",
    "string_unicode": "expected whole characters; there is half of one in it",
    "bool_type": "expected true or false",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "literal_error": "expected {expected}",
    "tuple_type": "expected a list",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "value_error": "{error}",
    "enum": "expected {expected}",
}


def read(shape: type[Shape], fields: Mapping[str, object]) -> Shape:
    """Return the value with these fields, named as in JSON or as in code.

    Raises ``InvalidEdit``, which names every field that breaks a rule, and never quotes a value.
    """
    try:
        return shape.model_validate(fields)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    raise InvalidEdit("; ".join(f"{_place(problem['loc'])}{sentence(problem, shape)}" for problem in found))


def sentence(problem: Mapping[str, Any], shape: type[BaseModel] | None = None) -> str:
    """Say one finding of pydantic's in our words."""
    if problem["type"] == "extra_forbidden" and shape is not None:
        known = ", ".join(field.alias or name for name, field in shape.model_fields.items())
        return f"unknown field; there are {known}"
    known_sentence = _SENTENCES.get(problem["type"])
    return known_sentence.format(**problem.get("ctx", {})) if known_sentence else str(problem["msg"])


def _place(location: tuple[int | str, ...]) -> str:
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{to_camel(part)}" for part in location)
    return f"{name.removeprefix('.')}: " if location else ""
