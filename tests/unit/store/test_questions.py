"""Questions as rows: found by an index, settled once, closed with their job."""

from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.errors import NotFound
from maestro.domain.messages import LaneKey
from maestro.domain.questions.question import Question, QuestionAnswer, QuestionKind, QuestionStatus
from maestro.store.transaction import Transaction
from tests.support.job_rows import JobRows
from tests.support.plans import explain
from tests.support.statements import statements

LANE = LaneKey("web/general")


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


def ask(tx: Transaction, job_id: str, place: int = 0, hours: int = 1) -> int:
    """Have a job ask; return the question's number."""
    question = Question(
        job_id=job_id,
        number=1,
        place=place,
        kind=QuestionKind.QUESTION,
        text="Which colour?",
        lane=LANE,
        asked_of="grace",
        asked_at=tx.now,
        expires_at=tx.now + timedelta(hours=hours),
    )
    return tx.jobs.questions.add_question(question).id or 0


def stands(rows: JobRows, question_id: int) -> tuple[QuestionStatus, str, str]:
    with rows.store.view() as tx:
        found = tx.jobs.questions.get_question(question_id).question
        return found.status, found.answer, found.answered_by


def test_those_of_a_lane_are_found_oldest_first_until_their_time_is_over(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        first, second, third = (ask(tx, job_id, place, hours) for place, hours in enumerate((2, 3, 1)))
        elsewhere = tx.jobs.questions.get_question(ask(tx, job_id, 3)).question
        elsewhere.lane = "web/elsewhere"
    with rows.store.view() as tx:
        assert [one.id for one in tx.jobs.questions.list_open_questions(LANE)] == [first, second, third]
        assert tx.jobs.questions.list_open_questions(LaneKey("nowhere")) == []
        one = tx.jobs.questions.find_question_of_tool_call(job_id, 1, 1)
        assert one is not None
        assert one.id == second
        assert tx.jobs.questions.find_question_of_tool_call(job_id, 2, 1) is None
    rows.clock.go(hours=1)
    with rows.store.view() as tx:
        assert [one.id for one in tx.jobs.questions.list_open_questions(LANE)] == [first, second]


def test_where_nobody_is_asked_it_costs_one_look_into_the_index_of_the_open_ones(rows: JobRows, tmp_path: Path) -> None:
    with rows.store.view() as tx, statements(tx) as asked:
        tx.jobs.questions.list_open_questions(LANE)
    (statement,) = asked
    plan = explain(tmp_path / "maestro.db", statement)
    assert plan.indexes == ("ix_questions_open",), plan
    assert not plan.scanned | plan.read_through


def test_a_question_is_settled_once(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        number = ask(tx, job_id)
        question = tx.jobs.questions.get_question(number).question
        assert tx.jobs.questions.record_answer(QuestionAnswer(question, "blue"), "web:grace")
        assert not tx.jobs.questions.record_answer(QuestionAnswer(question, "red"), "web:grace")
    assert stands(rows, number) == (QuestionStatus.ANSWERED, "blue", "web:grace")


def test_after_its_time_a_question_cannot_be_settled(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        number = ask(tx, job_id)
    rows.clock.go(hours=1)
    with rows.store.begin() as tx:
        assert not tx.jobs.questions.record_answer(
            QuestionAnswer(tx.jobs.questions.get_question(number).question, "blue"), "web:grace"
        )
    assert stands(rows, number) == (QuestionStatus.OPEN, "", "")


def test_a_job_that_ends_takes_its_open_questions_with_it(rows: JobRows) -> None:
    job_id, other = rows.add(), rows.add()
    with rows.store.begin() as tx:
        answered, left, of_other = ask(tx, job_id, 0), ask(tx, job_id, 1), ask(tx, other)
        tx.jobs.questions.record_answer(
            QuestionAnswer(tx.jobs.questions.get_question(answered).question, "blue"), "web:grace"
        )
        tx.jobs.questions.cancel_open_questions(job_id)
    assert [stands(rows, one)[0] for one in (answered, left, of_other)] == ["answered", "cancelled", "open"]


def test_a_question_that_was_cancelled_is_asked_again_under_its_number(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        number = ask(tx, job_id)
        tx.jobs.questions.cancel_open_questions(job_id)
    rows.clock.go(hours=5)
    with rows.store.begin() as tx:
        assert ask(tx, job_id) == number
    with rows.store.view() as tx:
        assert [one.id for one in tx.jobs.questions.list_open_questions(LANE)] == [number]


def test_pages_come_newest_first_and_miss_nothing(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        numbers = [ask(tx, job_id, place, hours=1 + place % 2) for place in range(5)]
        tx.jobs.questions.record_answer(
            QuestionAnswer(tx.jobs.questions.get_question(numbers[0]).question, "blue"), "web:grace"
        )
    rows.clock.go(hours=1)

    def found(*wanted: QuestionStatus) -> list[int]:
        with rows.store.view() as tx:
            page, following = tx.jobs.questions.list_question_page(wanted, None, 10)
        assert following is None
        return [one.question.id or 0 for one in page]

    with rows.store.view() as tx:
        first, following = tx.jobs.questions.list_question_page((), None, 3)
        rest, end = tx.jobs.questions.list_question_page((), following, 3)
    assert [one.question.id for one in (*first, *rest)] == numbers[::-1]
    assert end is None
    assert (first[0].agent, first[0].job and first[0].job.id) == (None, job_id)
    assert found(QuestionStatus.OPEN) == [numbers[3], numbers[1]]
    assert found(QuestionStatus.EXPIRED) == [numbers[4], numbers[2]]
    assert found(QuestionStatus.ANSWERED, QuestionStatus.OPEN) == [numbers[3], numbers[1], numbers[0]]
    assert found(QuestionStatus.DENIED) == []


def test_a_question_that_does_not_exist_is_named(rows: JobRows) -> None:
    with rows.store.view() as tx:
        assert tx.jobs.questions.find_question(7) is None
        with pytest.raises(NotFound, match="there is no question 7"):
            tx.jobs.questions.get_question(7)
