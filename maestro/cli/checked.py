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


def row_number(text: str, noun: str, argument: str, mark: str = "") -> int:
    """Return the number of a row, before which ``mark`` may stand; raises ``typer.BadParameter`` when there is none.

    A command asks only when it has read the configuration: what is wrong there is said first.
    """
    digits = text.removeprefix(mark)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS):
        raise typer.BadParameter(f"{text!r} is no number of a {noun}, such as 7", param_hint=argument)
    return int(digits)


def _wrong(error: ValidationError) -> typer.BadParameter:
    return typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, "))
