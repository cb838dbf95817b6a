"""What was typed, checked by the rules of the value it becomes."""

from typing import Any, TypeVar

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError

MOST_DIGITS = 18

Model = TypeVar("Model", bound=BaseModel)


def made(kind: type[Model], /, **fields: object) -> Model:
    """Return a value of these fields; raises ``typer.BadParameter`` with the first rule that they break."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _wrong(error) from None


def fits(kind: Any, text: str) -> str:
    """Return a text that is of this kind; raises ``typer.BadParameter`` with the first rule that it breaks."""
    try:
        checked: str = TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        raise _wrong(error) from None
    return checked


def row_number(text: str, what: str, hint: str) -> int:
    """Return a number as lists show it; raises ``typer.BadParameter`` for anything else.

    To be asked once the configuration is known to be right: what is wrong with that comes first.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise typer.BadParameter(f"{text!r} is no number of {what}, such as 7", param_hint=hint)
    return int(text)


def _wrong(error: ValidationError) -> typer.BadParameter:
    return typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, "))
