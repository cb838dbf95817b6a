"""``maestro questions``: what an operator sees and answers from a terminal, for people and as JSON."""

from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.questions.question import Question
from maestro.domain.questions.views import outside_question
from tests.support.job_rows import JobRows
from tests.support.questions import ARGUMENTS, waiting_approval, waiting_question
from tests.unit.cli.conftest import Maestro


def goes_on(rows: JobRows, question: Question) -> bool:
    """Say whether a dispatcher that looks now would go on with the job."""
    rows.clock.now = datetime.now(UTC)
    with rows.store.begin() as tx:
        tx.jobs.resume_due()
        return tx.jobs.read_status(question.job_id or "") is JobStatus.PENDING


def log(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]


def test_the_list_is_a_table(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("questions", "list").out == "No questions match.\n"
    assert maestro("questions", "list", "--json").json == {"items": [], "next": None}
    question, approval = waiting_question(rows), waiting_approval(rows)
    head, first, second = maestro("questions", "list").out.splitlines()
    assert head.split() == ["NUMBER", "STATUS", "KIND", "AGENT", "CHANNEL", "ASKED", "EXPIRES", "QUESTION"]
    assert first.split()[:5] == [str(approval.id), "open", "approval", "ada", "web/general"]
    assert second.split()[:5] == [str(question.id), "open", "question", "ada", "web/general"]
    assert second.endswith("Which colour?")


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    numbers = [waiting_question(rows).id for _ in range(5)]
    page = maestro("questions", "list", "--limit", "3", "--json").json
    rest = maestro("questions", "list", "--cursor", page["next"], "--json").json
    assert [one["id"] for one in (*page["items"], *rest["items"])] == numbers[::-1]
    assert rest["next"] is None
    assert f"--cursor {page['next']}" in maestro("questions", "list", "--limit", "3").out


def test_a_question_is_shown_whole(rows: JobRows, maestro: Maestro) -> None:
    approval = waiting_approval(rows)
    shown = maestro("questions", "show", f"#{approval.id}").out
    for part in (f"approval {approval.id}  open", "May I call the tool write_file?", ARGUMENTS, "web:alan"):
        assert part in shown
    question = waiting_question(rows)
    as_json = maestro("questions", "show", str(question.id), "--json").json
    assert (as_json["askedOf"], as_json["jobId"], as_json["agent"]) == ("web:u-1", question.job_id, "ada")


def test_an_answer_lets_the_job_go_on(rows: JobRows, maestro: Maestro) -> None:
    question = waiting_question(rows)
    ran = maestro("questions", "answer", str(question.id), "dark blue")
    assert ran.out == f"question {question.id} is answered; {question.job_id} goes on\n"
    answered = maestro("questions", "show", str(question.id), "--json").json
    assert (answered["answer"], answered["answeredBy"]) == ("dark blue", "operator")
    assert goes_on(rows, question)
    assert log(rows) == [("operator", "question.answer", str(question.id))]


def test_choices_are_shown_with_the_numbers_that_answer_them(rows: JobRows, maestro: Maestro) -> None:
    number = str(waiting_question(rows, choices=("Red", "Dark blue")).id)
    assert "1. Red, 2. Dark blue" in maestro("questions", "show", number).out
    assert maestro("questions", "answer", number, "2", "--json").json["answer"] == "Dark blue"


@pytest.mark.parametrize(("command", "status"), [("approve", "answered"), ("deny", "denied")])
def test_an_approval_is_decided_once(rows: JobRows, maestro: Maestro, command: str, status: str) -> None:
    approval = waiting_approval(rows)
    ran = maestro("questions", command, str(approval.id), "--json")
    assert (ran.code, ran.json["status"], ran.json["answeredBy"]) == (0, status, "operator")
    assert goes_on(rows, approval)
    again = maestro("questions", "approve", str(approval.id))
    assert (again.code, again.out) == (1, "")
    assert f"question {approval.id} is {status} already" in again.err
    assert log(rows) == [("operator", f"question.{command}", str(approval.id))]


def test_what_does_not_fit_is_refused_with_the_fix(rows: JobRows, maestro: Maestro) -> None:
    question, approval = waiting_question(rows), waiting_approval(rows)
    for arguments, code, hint in (
        (("answer", str(approval.id), "yes"), 1, "approve or deny it"),
        (("approve", str(question.id)), 1, "answer it with a text"),
        (("answer", str(question.id), " "), 1, "answer it with a text"),
        (("answer", "99", "blue"), 1, "there is no question 99"),
        (("show", "99"), 1, "there is no question 99"),
        (("show", "seven"), 2, "'seven' is no number of a question, such as 7"),
        (("deny", "-7"), 2, "-7"),
        (("show", "9" * 19), 2, "is no number of a question"),
    ):
        ran = maestro("questions", *arguments)
        assert (ran.code, ran.out) == (code, "")
        assert hint in ran.err
    assert not goes_on(rows, question)
    assert log(rows) == []


def test_a_question_of_an_agent_outside_belongs_to_no_job(rows: JobRows, maestro: Maestro) -> None:
    with rows.store.begin() as tx:
        expiry = timedelta(days=36500)
        tx.jobs.questions.add_outside_question(
            outside_question(tx.agents.get_agent_by_slug("ada"), "Which port?", "For a test.", tx.now, expiry)
        )
    _, row = maestro("questions", "list").out.splitlines()
    assert row.split()[:5] == ["1", "open", "question", "ada", "mcp"]
    shown = maestro("questions", "show", "1").out
    assert "job" not in shown
    assert "For a test." in shown
    said = maestro("questions", "answer", "1", "8080").out
    assert said == "question 1 is answered; the agent reads it when it asks again\n"
    shown_json = maestro("questions", "show", "1", "--json").json
    assert (shown_json["jobId"], shown_json["answer"], shown_json["channel"]) == (None, "8080", "")
    assert log(rows) == [("operator", "question.answer", "1")]
