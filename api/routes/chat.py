"""The #maestro chat for people: what was posted, and a post of their own."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from api.guards import PasswordRoute
from api.routes.surroundings import Parts, chat_of
from maestro.domain.chat.message import HUMAN, Post
from maestro.domain.values import Value

_POSTS = TypeAdapter(Sequence[Post])

router = APIRouter(route_class=PasswordRoute, tags=["chat"], prefix="/api/chat")


class NewPost(Value):
    """What a person posts; whatever else is said, also of an author, does not matter: it is ``@human``."""

    model_config = ConfigDict(extra="ignore")

    text: str


class PostedView(Value):
    """The id of the new post."""

    id: int
    success: bool


class ChatQuery(Value):
    """``limit`` is how many of the newest posts to list; without it, all of the session."""

    limit: int | None = Field(default=None, ge=1, le=100_000)


@router.post("")
def post(parts: Parts, new: NewPost) -> PostedView:
    """Post as @human; 400 for an empty text."""
    posted = chat_of(parts).service.post(HUMAN, new.text)
    return PostedView(id=posted.id, success=posted.success)


@router.get("", response_model=list[Post])
def list_posts(request: Request, parts: Parts, query: Annotated[ChatQuery, Query()]) -> Response:
    """List what was posted in this session, oldest first; with If-None-Match, 304 while nothing is new."""
    service = chat_of(parts).service
    tag = f'"{service.edition()}-{query.limit or "all"}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(_POSTS.dump_json(service.timeline(query.limit)), media_type="application/json", headers=headers)
