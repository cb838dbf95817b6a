"""Questions of agents to people: the list, and an operator's answer (docs/decisions.md: questions)."""

from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import Field, model_validator

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.columns import LARGEST
from maestro.domain.questions.question import ANSWER_CHARS, QuestionStatus, of_operator
from maestro.domain.questions.views import QuestionPage, QuestionView, question_view
from maestro.domain.values import Value
from maestro.store.jobs.questions import QuestionRecord
from maestro.store.store import Store

LIMIT = 50
MOST = 200

router = APIRouter(route_class=PasswordRoute, tags=["questions"], prefix="/api/questions")


class QuestionQuery(Value):
    """Which questions, and a page of them; ``cursor`` is the ``next`` of the page before."""

    status: tuple[QuestionStatus, ...] = ()
    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


class OperatorsAnswer(Value):
    """Either ``answer``, in words, or ``approve``, which is what an approval takes."""

    answer: str | None = Field(default=None, min_length=1, max_length=ANSWER_CHARS)
    approve: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.answer is None) == (self.approve is None):
            raise ValueError('send either {"answer": "..."} or {"approve": true} or {"approve": false}')
        return self


@router.get("")
def list_questions(parts: Parts, query: Annotated[QuestionQuery, Query()]) -> QuestionPage:
    """List questions, newest first; ``status`` may be given several times."""
    with parts.store.view() as tx:
        found, following = tx.questions.page(query.status, query.cursor, query.limit)
    items = tuple(question_view(one.question, one.agent, one.job, tx.now) for one in found)
    return QuestionPage(items=items, next=str(following) if following else None)


@router.get("/{question_id}")
def show_question(parts: Parts, question_id: Number) -> QuestionView:
    """Return a question."""
    return _shown(parts.store, question_id)


@router.post("/{question_id}/answer")
def answer_question(parts: Parts, question_id: Number, answer: OperatorsAnswer) -> QuestionView:
    """Answer a question as its operator, and let its job go on; 409 when it is not open any more."""
    with parts.store.begin() as tx:
        asked = tx.questions.get(question_id)
        tx.answer(of_operator(asked.question, answer.answer, answer.approve, tx.now), OPERATOR)
    return _shown(parts.store, question_id)


def _shown(store: Store, question_id: int) -> QuestionView:
    with store.view() as tx:
        asked: QuestionRecord = tx.questions.get(question_id)
    return question_view(asked.question, asked.agent, asked.job, tx.now)
