"""Skills: which there are, what is wrong with their files, how an operator changes them (specification 003, step 9)."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import PlainTextResponse

from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.skills.trial import SkillTrial, TrialWish
from maestro.domain.skills.views import SkillChange, SkillDetail, SkillPage, skill_detail, skill_page

LIMIT = 100
MOST = 1000
MARKDOWN = {"requestBody": {"required": True, "content": {"text/markdown": {"schema": {"type": "string"}}}}}
"""The body in the words of OpenAPI: the text of the file itself, whatever type the client says it is."""

router = APIRouter(route_class=PasswordRoute, tags=["skills"], prefix="/api/skills")

Cursor = Annotated[str | None, Query(pattern=r"^[a-z0-9-]{1,63}$")]


async def _body(request: Request) -> bytes:
    return await request.body()


@router.get("")
def list_skills(parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: Cursor = None) -> SkillPage:
    """List the skills by slug, and what is wrong with files of skills."""
    with parts.store.view() as tx:
        return skill_page(tx.skills.all(), tx.skills.problems(), cursor, limit)


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=MARKDOWN)
def add_skill(parts: Parts, body: Annotated[bytes, Depends(_body)], replace: bool = False) -> SkillDetail:
    """Put a skill, as Markdown with front matter, into the folder; 409 if the slug is taken and ``replace`` not set."""
    return parts.skills.add(body, OPERATOR, replace=replace)


@router.post("/try", openapi_extra=FOR_VIEWERS)
def try_message(parts: Parts, wish: TrialWish) -> SkillTrial:
    """Tell which skills a message would bring in, the best first, and why not; nothing is sent and nothing is paid."""
    return parts.skills.trial(wish)


@router.get(
    "/{slug}/text",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/markdown": {"schema": {"type": "string"}}}, "description": "The file"}},
)
def show_text(parts: Parts, slug: str) -> PlainTextResponse:
    """Return the file of a skill as it stands in its folder, with its front matter; 409 if it cannot be read here."""
    return PlainTextResponse(parts.skills.text(slug), media_type="text/markdown")


@router.get("/{slug}")
def show_skill(parts: Parts, slug: str) -> SkillDetail:
    """Return a skill with what it tells the model."""
    with parts.store.view() as tx:
        return skill_detail(tx.skills.get(slug), tx.skills.problems())


@router.patch("/{slug}")
def change_skill(parts: Parts, slug: str, change: SkillChange) -> SkillDetail:
    """Enable or disable a skill, from the next message on."""
    return parts.skills.change(slug, change, OPERATOR)


@router.delete("/{slug}", status_code=HTTPStatus.NO_CONTENT)
def remove_skill(parts: Parts, slug: str) -> None:
    """Delete the file of an own skill; 409 for one that comes with Maestro, which can be disabled."""
    parts.skills.remove(slug, OPERATOR)
