"""The page of questions and approvals: those that wait for an answer, and those that are settled."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.dashboard.forms import FormRow, submit
from api.dashboard.pages import lead_back, render, with_parameters
from api.front import SAFE_METHODS
from api.guards import OPERATOR, PasswordRoute
from api.live import unchanged
from api.parts import ApiParts
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import read
from maestro.domain.questions.question import QuestionStatus
from maestro.operations.questions import QuestionQuery

PAGE = "/questions"
TITLE = "Questions – Maestro"
MOST_OPEN = 100
"""Open questions that the page lists; the command and the API list the others."""
SETTLED = tuple(status for status in QuestionStatus if status is not QuestionStatus.OPEN)
MINUTE = "%Y-%m-%d %H:%M"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@dataclass(frozen=True)
class _AnswerForm:
    """The answer that was typed, and the number of its question."""

    number: int = 0
    words: str = ""


_NO_ANSWER = _AnswerForm()


@router.get("")
def show(request: Request, parts: Parts) -> Response:
    """List the questions that wait for an answer, and below them those that are settled."""
    # The minute is part of the version, because a question expires without a commit.
    return unchanged(request, f"{parts.clock():{MINUTE}}") or _page(request, _NO_ANSWER)


@router.post("/answer")
def answer(request: Request, parts: Parts, number: FormRow, words: Annotated[str, Form()] = "") -> Response:
    """Answer a question in words, and lead back to the list."""
    return _settle(request, parts, _AnswerForm(number, words))


@router.post("/approve")
def approve(request: Request, parts: Parts, number: FormRow) -> Response:
    """Let an agent call the tool that it asks for, and lead back to the list."""
    return _settle(request, parts, _AnswerForm(number), approves=True)


@router.post("/refuse")
def refuse(request: Request, parts: Parts, number: FormRow) -> Response:
    """Do not let an agent call the tool that it asks for, and lead back to the list."""
    return _settle(request, parts, _AnswerForm(number), approves=False)


def _settle(request: Request, parts: ApiParts, form: _AnswerForm, *, approves: bool | None = None) -> Response:
    return submit(
        lambda: parts.questions.settle(form.number, form.words or None, approves, OPERATOR),
        lambda question: lead_back(PAGE, settled=question.id),
        lambda error: _page(request, form, error),
    )


def _page(request: Request, form: _AnswerForm, problem: MaestroError | None = None) -> Response:
    query, questions = QuestionQuery(), parts_of(request).questions
    try:
        query = _query(request)
    except InvalidEdit as error:
        problem = problem or error
    waiting = questions.waiting(MOST_OPEN + 1)
    among = tuple(status for status in query.status if status in SETTLED) or SETTLED
    reading = request.method in SAFE_METHODS
    return render(
        request,
        "questions.html",
        title=TITLE,
        waiting=waiting[:MOST_OPEN],
        more=len(waiting) > MOST_OPEN,
        settled=questions.page(among, query.cursor, query.limit),
        statuses=SETTLED,
        chosen=query.status,
        first=query.cursor is None,
        said=form,
        problem=problem,
        done=request.query_params.get("settled", "") if reading else "",
        look=with_parameters(request, settled=None) if reading else PAGE,
    )


def _query(request: Request) -> QuestionQuery:
    """Return the filter in the address; after a form that was refused there is none."""
    if request.method not in SAFE_METHODS:
        return QuestionQuery()
    given: dict[str, object] = {"status": [word for word in request.query_params.getlist("status") if word]}
    cursor = request.query_params.get("cursor")
    return read(QuestionQuery, given | ({"cursor": cursor} if cursor else {}))
