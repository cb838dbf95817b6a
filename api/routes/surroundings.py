"""What routes are given: the parts of the app that answers the request."""

from typing import Annotated

from fastapi import Depends, Path, Request

from api.parts import ApiParts
from maestro.domain.columns import LARGEST


def parts_of(request: Request) -> ApiParts:
    """Return the parts of the app that answers this request."""
    found = request.app.state.parts
    assert isinstance(found, ApiParts)
    return found


async def _parts(request: Request) -> ApiParts:
    # Not a plain function: FastAPI would spend a thread on it.
    return parts_of(request)


Parts = Annotated[ApiParts, Depends(_parts)]

Number = Annotated[int, Path(ge=1, le=LARGEST)]
"""The number of a row, in a path."""
