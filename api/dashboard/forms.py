"""How the form of a page is read, carried out and answered."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.responses import Response

from maestro.domain.errors import MaestroError

Result = TypeVar("Result")


class TextForm(BaseModel):
    """The base of forms: every field is a text, which the input of the operation checks."""

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return what is in the fields, without the blanks around it."""
        return {name: text.strip() for name, text in self.model_dump(exclude=set(left_out)).items()}


def submit(
    operation: Callable[[], Result], done: Callable[[Result], Response], refused: Callable[[MaestroError], Response]
) -> Response:
    """Carry out what a form asks for, and answer with ``done``, or with ``refused`` when an error says why not."""
    try:
        result = operation()
    except MaestroError as error:
        return refused(error)
    return done(result)
