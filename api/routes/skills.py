"""Skills: which there are, what is wrong with their files, how an operator changes them."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import PlainTextResponse

from api.guards import OPERATOR
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.domain.skills.views import SkillDetail
from maestro.operations.skills import SkillOperations

MARKDOWN = {"requestBody": {"required": True, "content": {"text/markdown": {"schema": {"type": "string"}}}}}
"""The body in the words of OpenAPI: the text of the file itself, whatever type the client says it is."""

router = OperationAPIRouter("skills")
router.serve("GET", "", SkillOperations.list, "list_skills")


async def _body(request: Request) -> bytes:
    return await request.body()


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=MARKDOWN)
def add_skill(parts: Parts, body: Annotated[bytes, Depends(_body)], replace: bool = False) -> SkillDetail:
    """Put a skill, as Markdown with front matter, into the folder; 409 if the slug is taken and ``replace`` not set."""
    return parts.skills.add(body, OPERATOR, replace=replace)


router.serve("POST", "/try", SkillOperations.trial, "try_message")


@router.get(
    "/{slug}/text",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/markdown": {"schema": {"type": "string"}}}, "description": "The file"}},
)
def show_text(parts: Parts, slug: str) -> PlainTextResponse:
    """Return the file of a skill as it stands in its folder, with its front matter; 409 if it cannot be read here."""
    return PlainTextResponse(parts.skills.text(slug), media_type="text/markdown")


router.serve("GET", "/{slug}", SkillOperations.show, "show_skill")
router.serve("PATCH", "/{slug}", SkillOperations.change, "change_skill")
router.serve("DELETE", "/{slug}", SkillOperations.remove, "remove_skill")
