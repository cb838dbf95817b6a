"""The pages of skills: the list with invalid files and a test message, and one skill with its file."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormAction, FormText, form_routes, read_filters, submit
from api.dashboard.pages import redirect_to_page, refusal_page, render
from api.guards import FOR_VIEWERS, OPERATOR, Parts, PasswordRoute, request_parts
from maestro.domain.errors import Conflict, MaestroError
from maestro.domain.skills.skill import SkillRow
from maestro.domain.skills.views import SkillChange, SkillDetail, SkillTrial, SkillTrialRequest, skill_page
from maestro.domain.values import read
from maestro.operations.skills import SkillOperations

PAGE = "/skills"
HERE = "skills"
PAGE_SIZE = 100
STATES = ("enabled", "disabled")
NOTICES = {
    "added": "The skill is used from the next message on.",
    "enabled": "The skill is enabled: messages can trigger it again.",
    "disabled": "The skill is disabled: no message triggers it until it is enabled.",
    "removed": "The skill's file was deleted.",
}
"""Notices after a completed form; the page's address holds only their keys, so that it cannot inject a text."""
EXAMPLE = """---
slug: tea
name: Making tea
description: How to make tea.
triggers:
  keywords: [tea, teapot]
  patterns: []
required_tools: []
---
Boil the water first. Tell the person how long to wait.
"""
"""The example text in the form for a new skill."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)
router.routes.extend(
    form_routes(
        f"{PAGE}/{{slug}}",
        lambda request, error, slug: _skill_page(request, slug, error),
        FormAction("/enable", "skills", SkillOperations.change, "enabled", SkillChange(enabled=True)),
        FormAction("/disable", "skills", SkillOperations.change, "disabled", SkillChange(enabled=False)),
    )
)


class TrialForm(BaseModel):
    """The form that tests which skills a message would trigger, optionally for one agent."""

    message: str = ""
    agent: str = ""


@router.get("")
def show_skills(request: Request, done: str = "") -> HTMLResponse:
    """List the skills by slug, and the invalid skill files."""
    return _list_page(request, notice=NOTICES.get(done, ""))


@router.post("/try", openapi_extra=FOR_VIEWERS)
def try_message(request: Request, parts: Parts, form: Annotated[TrialForm, Form()]) -> Response:
    """Show which skills a message would trigger, and why the others would not; no model is called."""
    return submit(
        lambda: parts.skills.trial(read(SkillTrialRequest, form.model_dump())),
        lambda result: _list_page(request, form, result),
        lambda error: _list_page(request, form, problem=error),
    )


@router.get("/new")
def show_new_skill(request: Request) -> HTMLResponse:
    """Show the form for a new skill."""
    return _form_page(request, EXAMPLE)


@router.post("")
def add_skill(request: Request, parts: Parts, text: FormText = "") -> Response:
    """Add a skill file to the folder, and redirect to the skill's page; an error is shown above the form."""
    return submit(
        lambda: parts.skills.add(_file_content(text), OPERATOR),
        _show_added,
        lambda error: _form_page(request, text, error),
    )


@router.get("/{slug}")
def show_skill(request: Request, slug: str, done: str = "") -> HTMLResponse:
    """Show a skill: its triggers and its instructions."""
    return _skill_page(request, slug, notice=NOTICES.get(done, ""))


@router.post("/{slug}")
def change_skill(request: Request, parts: Parts, slug: str, text: FormText = "") -> Response:
    """Replace the file of a skill; for a shipped skill, add an operator's file that overrides it."""
    return submit(
        lambda: parts.skills.add(_file_content(text), OPERATOR, replace=True),
        _show_added,
        lambda error: _skill_page(request, slug, error, text=text),
    )


@router.post("/{slug}/remove")
def remove_skill(request: Request, parts: Parts, slug: str) -> Response:
    """Delete the file of an operator's skill, and redirect to the list."""
    return submit(
        lambda: parts.skills.remove(slug, OPERATOR),
        lambda _: redirect_to_page(PAGE, done="removed"),
        lambda error: _skill_page(request, slug, error),
    )


def _show_added(skill: SkillDetail) -> Response:
    return redirect_to_page(f"{PAGE}/{skill.slug}", done="added")


def _file_content(text: str) -> bytes:
    # Browsers send line ends as CR LF, but the file has LF.
    return text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")


def _list_page(
    request: Request,
    form: TrialForm | None = None,
    trial: SkillTrial | None = None,
    problem: MaestroError | None = None,
    notice: str = "",
) -> HTMLResponse:
    filters = read_filters(request, ("q", "source", "state"))
    cursor = request.query_params.get("cursor") or None
    with request_parts(request).store.view() as tx:
        rows = tx.agents.skills.list_skills()
        page = skill_page(
            [row for row in rows if matches_filters(row, filters)],
            tx.agents.skills.list_skill_problems(),
            cursor,
            PAGE_SIZE,
        )
        agents = tx.agents.list_agent_slugs()
    return render(
        request,
        "skills.html",
        at=PAGE,
        page=page,
        filters=filters,
        first=cursor is None,
        sources=("own", "shipped"),
        states=STATES,
        agents=agents,
        form=form or TrialForm(),
        trial=trial,
        problem=problem,
        notice=notice,
    )


def matches_filters(row: SkillRow, filters: Mapping[str, str]) -> bool:
    q, source, state = filters["q"].casefold(), filters["source"], filters["state"]
    texts = (row.slug, row.name, row.description, row.category, row.keywords)
    return (
        (not q or any(q in text.casefold() for text in texts))
        and (not source or row.shipped is (source == "shipped"))
        and (not state or row.enabled is (state == "enabled"))
    )


def _form_page(request: Request, text: str, problem: MaestroError | None = None) -> HTMLResponse:
    return render(request, "skill-new.html", text=text, problem=problem)


def _skill_page(
    request: Request, slug: str, problem: MaestroError | None = None, *, text: str = "", notice: str = ""
) -> HTMLResponse:
    parts = request_parts(request)
    try:
        skill = parts.skills.show(slug)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    file, unreadable = text, ""
    if not file:
        try:
            file = parts.skills.text(slug)
        except Conflict as error:
            unreadable = str(error)
    return render(
        request,
        "skill.html",
        skill=skill,
        text=file,
        unreadable=unreadable,
        editing=bool(text),
        problem=problem,
        notice=notice,
    )
