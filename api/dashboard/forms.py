"""How the form of a page is read, carried out and answered."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Form
from pydantic import BaseModel
from starlette.responses import Response

from maestro.domain.agents.edits import MAX_REASON
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError

Result = TypeVar("Result")
FormRow = Annotated[int, Form(ge=1, le=LARGEST)]
"""The number of a row, in a form."""

_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class TextForm(BaseModel):
    """The base of forms: every field is a text, which the input of the operation checks."""

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return what is in the fields, without the blanks around it."""
        return {name: text.strip() for name, text in self.model_dump(exclude=set(left_out)).items()}


def reason_of(text: str) -> str:
    """Return the reason of an edit as it is stored: without blanks around it, and cut."""
    return text.strip()[:MAX_REASON]


def submit(
    operation: Callable[[], Result], done: Callable[[Result], Response], refused: Callable[[MaestroError], Response]
) -> Response:
    """Carry out what a form asks for, and answer with ``done``, or with ``refused`` when an error says why not."""
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
    """Do the same with an operation that waits; ``refused`` reads the store, so a thread calls it."""
    try:
        result = await operation()
    except MaestroError as error:
        return await asyncio.to_thread(refused, error)
    return done(result)


def moment_with_zone(text: str) -> str:
    """Return what was typed as a moment with a zone; a day alone is its beginning, and what is none stays as it is."""
    moment = f"{text}T00:00" if _DAY.fullmatch(text) else text
    return moment if _ZONE.search(moment) else f"{moment}Z"
