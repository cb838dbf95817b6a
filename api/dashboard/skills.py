"""The pages of skills: the list with what is wrong with files, a message tried, and one read, changed and switched."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import FOR_VIEWERS, OPERATOR, PasswordRoute
from api.parts import ApiParts
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import Conflict, MaestroError
from maestro.domain.fields import read
from maestro.domain.skills.skill import SkillRow
from maestro.domain.skills.views import SkillChange, SkillDetail, SkillTrial, SkillTrialRequest, skill_page

PAGE = "/skills"
HERE = "skills"
TITLE = "Skills – Maestro"
SHOWN = 100
SOURCES = ("own", "shipped")
STATES = ("enabled", "disabled")
DONE = {
    "added": "The skill is used from the next message on.",
    "enabled": "Messages bring it in again.",
    "disabled": "No message brings it in, until it is enabled.",
    "removed": "The file is gone.",
}
"""What was done, by the word that stands in the address: no text of an address is shown."""
BEGINNING = """---
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
"""What a new skill may look like."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Text = Annotated[str, Form()]


class TrialForm(BaseModel):
    """A message that is tried, and for which agent."""

    message: str = ""
    agent: str = ""


@dataclass(frozen=True)
class _Tried:
    """What was typed to be tried, and what would become of it."""

    typed: TrialForm = field(default_factory=TrialForm)
    found: SkillTrial | None = None
    problem: MaestroError | None = None


_UNTRIED = _Tried()


@router.get("")
def show(request: Request, done: str = "") -> HTMLResponse:
    """List the skills by slug, and what is wrong with files."""
    return _list(request, _UNTRIED, DONE.get(done, ""))


@router.post("/try", openapi_extra=FOR_VIEWERS)
def try_message(request: Request, parts: Parts, typed: Annotated[TrialForm, Form()]) -> HTMLResponse:
    """Show which skills a message would bring in, and why not; nothing is sent and nothing is paid."""
    try:
        wish = read(SkillTrialRequest, typed.model_dump())
        return _list(request, _Tried(typed, parts.skills.trial(wish)))
    except MaestroError as error:
        return _list(request, _Tried(typed, problem=error))


@router.get("/new")
def ask(request: Request) -> HTMLResponse:
    """Show the form for a skill that is to be made."""
    return _form(request, BEGINNING)


@router.post("")
def add(request: Request, parts: Parts, text: Text = "") -> Response:
    """Put a skill into the folder, and lead to its page; what cannot be is said above the form."""
    return submit(
        lambda: parts.skills.add(_form_fields(text), OPERATOR), _added, lambda error: _form(request, text, error)
    )


@router.get("/{slug}")
def show_one(request: Request, slug: str, done: str = "") -> HTMLResponse:
    """Show a skill: what brings it in, and what it tells the model."""
    return _one(request, slug, said=DONE.get(done, ""))


@router.post("/{slug}")
def change(request: Request, parts: Parts, slug: str, text: Text = "") -> Response:
    """Write the file of a skill anew; one that comes with Maestro gets one of the operator's own in its place."""
    return submit(
        lambda: parts.skills.add(_form_fields(text), OPERATOR, replace=True),
        _added,
        lambda error: _one(request, slug, error, text=text),
    )


@router.post("/{slug}/enable")
def enable(request: Request, parts: Parts, slug: str) -> Response:
    """Let messages bring in a skill."""
    return _switch(request, parts, slug, enabled=True)


@router.post("/{slug}/disable")
def disable(request: Request, parts: Parts, slug: str) -> Response:
    """Let no message bring in a skill."""
    return _switch(request, parts, slug, enabled=False)


@router.post("/{slug}/remove")
def remove(request: Request, parts: Parts, slug: str) -> Response:
    """Delete the file of an own skill, and lead back to the list."""
    return submit(
        lambda: parts.skills.remove(slug, OPERATOR),
        lambda _: lead_back(PAGE, done="removed"),
        lambda error: _one(request, slug, error),
    )


def _switch(request: Request, parts: ApiParts, slug: str, *, enabled: bool) -> Response:
    return submit(
        lambda: parts.skills.change(slug, SkillChange(enabled=enabled), OPERATOR),
        lambda _: lead_back(f"{PAGE}/{slug}", done="enabled" if enabled else "disabled"),
        lambda error: _one(request, slug, error),
    )


def _added(skill: SkillDetail) -> Response:
    return lead_back(f"{PAGE}/{skill.slug}", done="added")


def _form_fields(text: str) -> bytes:
    """Return a file of what was typed; browsers send the end of a line as two characters."""
    return text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")


def _list(request: Request, tried: _Tried, said: str = "") -> HTMLResponse:
    typed = {name: request.query_params.get(name, "").strip() for name in ("q", "source", "state")}
    cursor = request.query_params.get("cursor") or None
    with parts_of(request).store.view() as tx:
        rows = tx.agents.skills.all()
        shown = skill_page([row for row in rows if _fits(row, typed)], tx.agents.skills.problems(), cursor, SHOWN)
        agents = tx.agents.slugs()
    return render(
        request,
        "skills.html",
        at=PAGE,
        title=TITLE,
        shown=shown,
        typed=typed,
        first=cursor is None,
        sources=SOURCES,
        states=STATES,
        agents=agents,
        tried=tried,
        problem=tried.problem,
        said=said,
    )


def _fits(row: SkillRow, typed: dict[str, str]) -> bool:
    wanted, source, state = typed["q"].casefold(), typed["source"], typed["state"]
    texts = (row.slug, row.name, row.description, row.category, row.keywords)
    return (
        (not wanted or any(wanted in text.casefold() for text in texts))
        and (not source or row.shipped is (source == "shipped"))
        and (not state or row.enabled is (state == "enabled"))
    )


def _form(request: Request, text: str, problem: MaestroError | None = None) -> HTMLResponse:
    return render(request, "skill-new.html", title="Add a skill – Maestro", text=text, problem=problem)


def _one(
    request: Request, slug: str, problem: MaestroError | None = None, *, text: str = "", said: str = ""
) -> HTMLResponse:
    parts = parts_of(request)
    try:
        skill = parts.skills.show(slug)
    except MaestroError as error:
        return refused(request, HERE, error)
    file, unread = (text, "") if text else _file(request, slug)
    return render(
        request,
        "skill.html",
        title=f"{slug} – Maestro",
        skill=skill,
        text=file,
        unread=unread,
        typing=bool(text),
        problem=problem,
        said=said,
    )


def _file(request: Request, slug: str) -> tuple[str, str]:
    """Return the file of a skill, or why it cannot be read here."""
    try:
        return parts_of(request).skills.text(slug), ""
    except Conflict as error:
        return "", str(error)
