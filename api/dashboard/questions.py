"""The page of questions and approvals: first the open ones, then those answered or expired."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.dashboard.forms import FormRow, FormText, read_query, submit
from api.dashboard.pages import link, not_modified, redirect_to, render
from api.front import SAFE_METHODS
from api.guards import OPERATOR, Parts, PasswordRoute, parts_of
from api.parts import ApiParts
from maestro.domain.errors import MaestroError
from maestro.domain.questions.question import QuestionStatus
from maestro.operations.questions import QuestionQuery

PAGE = "/questions"
MOST_OPEN = 100
"""The most open questions on the page; the command and the API list all."""
SETTLED = tuple(status for status in QuestionStatus if status is not QuestionStatus.OPEN)
MINUTE = "%Y-%m-%d %H:%M"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@router.get("")
def show_questions(request: Request, parts: Parts) -> Response:
    """List the open questions, and below them the closed ones."""
    # The current minute is part of the page's ETag, because a question expires without a commit.
    return not_modified(request, f"{parts.clock():{MINUTE}}") or _render_page(request)


@router.post("/answer")
def answer_question(request: Request, parts: Parts, number: FormRow, words: FormText = "") -> Response:
    """Answer a question with a text, and redirect to the list."""
    return _answer(request, parts, number, words)


@router.post("/approve")
def approve_tool_call(request: Request, parts: Parts, number: FormRow) -> Response:
    """Approve a tool call, and redirect to the list."""
    return _answer(request, parts, number, approves=True)


@router.post("/refuse")
def refuse_tool_call(request: Request, parts: Parts, number: FormRow) -> Response:
    """Refuse a tool call, and redirect to the list."""
    return _answer(request, parts, number, approves=False)


def _answer(
    request: Request, parts: ApiParts, number: int, words: str = "", *, approves: bool | None = None
) -> Response:
    return submit(
        lambda: parts.questions.settle(number, words or None, approves, OPERATOR),
        lambda question: redirect_to(PAGE, settled=question.id),
        lambda error: _render_page(request, number, words, error),
    )


def _render_page(request: Request, number: int = 0, words: str = "", problem: MaestroError | None = None) -> Response:
    """Return the page; ``words`` is the refused answer to the question with this number."""
    questions, reading = parts_of(request).questions, request.method in SAFE_METHODS
    query = QuestionQuery()
    if reading:  # the address of a form that was refused has no filter
        states = list(filter(None, request.query_params.getlist("status")))
        query, problem = read_query(QuestionQuery, {"status": states, "cursor": request.query_params.get("cursor")})
    waiting = questions.waiting(MOST_OPEN + 1)
    settled = tuple(status for status in query.status if status in SETTLED) or SETTLED
    return render(
        request,
        "questions.html",
        waiting=waiting[:MOST_OPEN],
        more=len(waiting) > MOST_OPEN,
        settled=questions.list(query.model_copy(update={"status": settled})),
        statuses=SETTLED,
        chosen=query.status,
        first=query.cursor is None,
        answered=number,
        words=words,
        problem=problem,
        done=request.query_params.get("settled", "") if reading else "",
        address=link(request, settled=None) if reading else PAGE,
    )
