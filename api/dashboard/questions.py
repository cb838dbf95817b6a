"""The page of questions and approvals: what waits for a person's word, and what was said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.dashboard.pages import lead_back, render, with_parameters
from api.errors import status_of
from api.front import SAFE_METHODS
from api.guards import OPERATOR, PasswordRoute
from api.live import unchanged
from api.routes.jobs import QuestionQuery
from api.routes.surroundings import Parts, parts_of
from maestro.domain.columns import LARGEST
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.questions.question import QuestionStatus, of_operator
from maestro.domain.questions.views import QuestionPage, QuestionView, question_view
from maestro.domain.reading import read
from maestro.store.jobs.questions import QuestionRecord
from maestro.store.store import Store
from maestro.store.transaction import Transaction

PAGE = "/questions"
TITLE = "Questions – Maestro"
MOST_OPEN = 100
"""Open questions that the page lists; the command and the API list the others."""
SETTLED = tuple(status for status in QuestionStatus if status is not QuestionStatus.OPEN)
MINUTE = "%Y-%m-%d %H:%M"
NOTHING = QuestionPage(items=(), next=None)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Number = Annotated[int, Form(ge=1, le=LARGEST)]


@dataclass(frozen=True)
class _AnswerForm:
    """What somebody typed for which question, and why it was not taken, or that it was."""

    number: int = 0
    words: str = ""
    problem: str = ""


_NO_ANSWER = _AnswerForm()


@router.get("")
def show(request: Request, parts: Parts) -> Response:
    """List what waits for an answer, and below it what does so no more."""
    # What runs out does so without a commit.
    return unchanged(request, f"{parts.clock():{MINUTE}}") or _page(request, _NO_ANSWER)


@router.post("/answer")
def answer(request: Request, parts: Parts, number: Number, words: Annotated[str, Form()] = "") -> Response:
    """Answer a question in words, and lead back to the list."""
    return _decide(request, parts.store, _AnswerForm(number, words), None)


@router.post("/approve")
def approve(request: Request, parts: Parts, number: Number) -> Response:
    """Let an agent call the tool that it asks for, and lead back to the list."""
    return _decide(request, parts.store, _AnswerForm(number), approves=True)


@router.post("/refuse")
def refuse(request: Request, parts: Parts, number: Number) -> Response:
    """Do not let an agent call the tool that it asks for, and lead back to the list."""
    return _decide(request, parts.store, _AnswerForm(number), approves=False)


def _decide(request: Request, store: Store, said: _AnswerForm, approves: bool | None) -> Response:
    try:
        with store.begin() as tx:
            asked = tx.questions.get(said.number)
            tx.answer(of_operator(asked.question, said.words or None, approves, tx.now), OPERATOR)
    except MaestroError as error:
        return _page(request, _AnswerForm(said.number, said.words, str(error)), error)
    return lead_back(PAGE, settled=said.number)


def _page(request: Request, said: _AnswerForm, error: MaestroError | None = None) -> Response:
    problem, wanted = said.problem, QuestionQuery()
    try:
        wanted = _wanted(request)
    except InvalidEdit as wrong:
        error, problem = error or wrong, problem or str(wrong)
    with parts_of(request).store.view() as tx:
        waiting = tx.questions.waiting(MOST_OPEN + 1)
        shown = _views(tx, waiting[:MOST_OPEN])
        settled = _settled(tx, wanted)
    asking = request.method in SAFE_METHODS
    return render(
        request,
        "questions.html",
        **({"status": status_of(error)} if error else {}),
        title=TITLE,
        waiting=shown,
        more=len(waiting) > MOST_OPEN,
        settled=settled,
        statuses=SETTLED,
        chosen=wanted.status,
        first=wanted.cursor is None,
        said=said,
        problem=problem,
        done=request.query_params.get("settled", "") if asking else "",
        look=with_parameters(request, settled=None) if asking else PAGE,
    )


def _wanted(request: Request) -> QuestionQuery:
    """Return what the address asks for; an answer that was not taken has none, and is followed by everything."""
    if request.method not in SAFE_METHODS:
        return QuestionQuery()
    asked = request.query_params
    given: dict[str, object] = {"status": [word for word in asked.getlist("status") if word]}
    return read(QuestionQuery, given | ({"cursor": asked["cursor"]} if asked.get("cursor") else {}))


def _settled(tx: Transaction, wanted: QuestionQuery) -> QuestionPage:
    among = tuple(status for status in wanted.status if status in SETTLED) or SETTLED
    found, following = tx.questions.page(among, wanted.cursor, wanted.limit)
    return QuestionPage(items=tuple(_views(tx, found)), next=str(following) if following else None)


def _views(tx: Transaction, found: Sequence[QuestionRecord]) -> Sequence[QuestionView]:
    return [question_view(one.question, one.agent, one.job, tx.now) for one in found]
