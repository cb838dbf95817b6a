"""FastAPI dependencies of the routes: the API's parts, the agent chat, and a row number in a path."""

from typing import Annotated

from fastapi import Depends, Path, Request

from api.parts import AgentChat, ApiParts
from maestro.domain.columns import LARGEST
from maestro.domain.errors import NotFound


def parts_of(request: Request) -> ApiParts:
    """Return the API's parts of the app that answers this request."""
    found = request.app.state.parts
    assert isinstance(found, ApiParts)
    return found


async def _parts(request: Request) -> ApiParts:
    # Async, because FastAPI would run a plain function in a thread of its pool.
    return parts_of(request)


def chat_of(parts: ApiParts) -> AgentChat:
    """Return the agent chat (#maestro); raises ``NotFound`` if the configuration disables it."""
    if parts.chat is None:
        raise NotFound("chat.enabled is false, so there is no #maestro chat here")
    return parts.chat


Parts = Annotated[ApiParts, Depends(_parts)]

Number = Annotated[int, Path(ge=1, le=LARGEST)]
"""A row number as a path parameter."""
