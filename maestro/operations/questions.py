"""The operations on the questions and approvals for which jobs wait (docs/decisions.md: questions)."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from maestro.domain.columns import LARGEST
from maestro.domain.questions.question import ANSWER_CHARS, QuestionStatus, operator_answer
from maestro.domain.questions.views import QuestionPage, QuestionView, question_view
from maestro.domain.values import Value
from maestro.operations.inputs import RowId, StoreOperations
from maestro.store.jobs.questions import QuestionRecord
from maestro.store.transaction import Transaction

LIMIT = 50


class QuestionQuery(Value):
    """A filter of questions and the page of its result to return; ``cursor`` is the ``next`` of the previous page."""

    status: tuple[QuestionStatus, ...] = ()
    limit: int = Field(default=LIMIT, ge=1, le=200)
    cursor: int | None = Field(default=None, ge=1, le=LARGEST)


class OperatorAnswer(Value):
    """An operator's answer: ``answer``, the text for a question, or ``approve``, the decision on an approval."""

    answer: str | None = Field(default=None, min_length=1, max_length=ANSWER_CHARS)
    approve: bool | None = None

    @model_validator(mode="after")
    def _check_one_form(self) -> Self:
        if (self.answer is None) == (self.approve is None):
            raise ValueError('send either {"answer": "..."} or {"approve": true} or {"approve": false}')
        return self


class QuestionOperations(StoreOperations):
    """The operations on questions; an unknown number raises ``NotFound``."""

    def list(self, query: QuestionQuery) -> QuestionPage:
        """List questions, newest first; ``status`` may be given several times."""
        with self._store.view() as tx:
            records, following = tx.jobs.questions.list_question_page(query.status, query.cursor, query.limit)
            return QuestionPage(items=_question_views(tx, records), next=str(following) if following else None)

    def waiting(self, limit: int) -> Sequence[QuestionView]:
        """Return the questions that wait for an answer, oldest first, at most ``limit`` of them."""
        with self._store.view() as tx:
            return _question_views(tx, tx.jobs.questions.list_waiting_questions(limit))

    def show(self, question_id: RowId) -> QuestionView:
        """Return the question with this number."""
        with self._store.view() as tx:
            return _question_views(tx, [tx.jobs.questions.get_question(question_id)])[0]

    def answer(self, question_id: RowId, answer: OperatorAnswer, actor: str) -> QuestionView:
        """Answer a question as an operator, so that its job continues; 409 when the question is no longer open."""
        return self.settle(question_id, answer.answer, answer.approve, actor)

    def settle(self, question_id: int, text: str | None, approves: bool | None, actor: str) -> QuestionView:
        """Store a text or a decision as the answer; raises ``InvalidEdit`` if the question expects the other form."""
        with self._store.begin() as tx:
            record = tx.jobs.questions.get_question(question_id)
            tx.jobs.answer_question(operator_answer(record.question, text, approves, tx.now), actor)
        return self.show(question_id)


def _question_views(tx: Transaction, records: Sequence[QuestionRecord]) -> tuple[QuestionView, ...]:
    return tuple(question_view(record.question, record.agent, record.job, tx.now) for record in records)
