"""The page of questions: what waits is answered by plain forms, and what was said stays to be seen."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from maestro.domain.questions.question import ANSWER_CHARS, Question, QuestionKind
from tests.support.api_client import BASIC, app_of, client, parts
from tests.support.job_rows import JobRows
from tests.support.questions import ARGUMENTS, EXPIRY, waiting_approval, waiting_question

PAGE = "/questions"
NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
VIEWER = ("viewer", "only for looking at it all")


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def parted(page: httpx.Response) -> tuple[list[int], list[int]]:
    """Return the numbers of what waits, and of what is settled."""
    assert page.status_code == 200, page.text
    above, _, below = page.text.partition('id="before"')
    return tuple([int(one) for one in re.findall(r'id="question-(\d+)"', part)] for part in (above, below))  # type: ignore[return-value]


async def test_what_waits_says_who_asks_what_of_whom(rows: JobRows, http: httpx.AsyncClient) -> None:
    question, approval = waiting_question(rows), waiting_approval(rows)
    page = await http.get(PAGE)
    assert parted(page) == ([question.id, approval.id], [])
    assert "Which colour?" in page.text
    assert "web:u-1, or an owner" in page.text
    assert "an owner or web:alan" in page.text
    assert f'href="/queue/{question.job_id}"' in page.text
    assert ARGUMENTS.replace('"', "&#34;") in page.text
    assert '<a href="/agent/ada">ada</a>' in page.text


@pytest.mark.parametrize(
    ("kind", "action", "words", "status", "kept"),
    [
        ("question", "answer", " dark blue ", "answered", "dark blue"),
        ("approval", "approve", "", "answered", "yes"),
        ("approval", "refuse", "", "denied", "no"),
    ],
)
async def test_a_form_settles_what_waits(
    rows: JobRows, http: httpx.AsyncClient, kind: str, action: str, words: str, status: str, kept: str
) -> None:
    asked = waiting_question(rows) if kind == "question" else waiting_approval(rows)
    led = await http.post(f"{PAGE}/{action}", data={"number": asked.id, "words": words})
    assert (led.status_code, led.headers["location"]) == (303, f"{PAGE}?settled={asked.id}")
    page = await http.get(led.headers["location"])
    assert parted(page) == ([], [asked.id])
    assert f"#{asked.id} is settled" in page.text
    with rows.store.view() as tx:
        found = tx.jobs.questions.get_question(asked.id or 0).question
        (entry,) = tx.system.audit.list_latest_entries(5)
    assert (found.status, found.answer, found.answered_by) == (status, kept, "operator")
    assert (entry.actor, entry.subject) == ("operator", str(asked.id))


async def test_a_choice_is_one_button_and_other_words_count_too(rows: JobRows, http: httpx.AsyncClient) -> None:
    asked = waiting_question(rows, choices=("Red", "Dark blue"))
    page = await http.get(PAGE)
    assert re.findall(r'name="words" value="([^"]+)"', page.text) == ["Red", "Dark blue"]
    assert 'placeholder="Another answer"' in page.text
    await http.post(f"{PAGE}/answer", data={"number": asked.id, "words": "Dark blue"})
    assert parted(await http.get(PAGE)) == ([], [asked.id])
    with rows.store.view() as tx:
        assert tx.jobs.questions.get_question(asked.id or 0).question.answer == "Dark blue"


async def test_what_is_not_taken_says_why_and_what_was_typed_stays(rows: JobRows, http: httpx.AsyncClient) -> None:
    approval, question = waiting_approval(rows), waiting_question(rows)
    page = await http.post(f"{PAGE}/answer", data={"number": approval.id, "words": "perhaps"})
    assert page.status_code == 400
    assert f"question {approval.id} is an approval: approve or deny it" in page.text
    page = await http.post(f"{PAGE}/answer", data={"number": question.id, "words": "  "})
    assert (page.status_code, "answer it with a text" in page.text) == (400, True)
    page = await http.post(f"{PAGE}/approve", data={"number": 99})
    assert (page.status_code, "there is no question 99" in page.text) == (404, True)
    await http.post(f"{PAGE}/answer", data={"number": question.id, "words": "red"})
    again = await http.post(f"{PAGE}/answer", data={"number": question.id, "words": "blue"})
    assert (again.status_code, "is answered already" in again.text) == (409, True)
    # What a script would ask for again is a page, and not the form that was sent.
    assert 'hx-get="/questions/answer' not in again.text
    assert "data-live" not in again.text


async def test_what_was_typed_for_a_question_that_still_waits_stays(rows: JobRows, http: httpx.AsyncClient) -> None:
    question = waiting_question(rows)
    page = await http.post(f"{PAGE}/approve", data={"number": question.id})
    assert page.status_code == 400
    assert parted(httpx.Response(200, text=page.text))[0] == [question.id]


async def test_the_settled_are_filtered_by_the_address(rows: JobRows, http: httpx.AsyncClient) -> None:
    denied, answered = waiting_approval(rows), waiting_question(rows)
    await http.post(f"{PAGE}/refuse", data={"number": denied.id})
    await http.post(f"{PAGE}/answer", data={"number": answered.id, "words": "red"})
    assert parted(await http.get(PAGE)) == ([], [answered.id, denied.id])
    assert parted(await http.get(PAGE, params={"status": "denied"})) == ([], [denied.id])
    assert parted(await http.get(PAGE, params={"status": "expired"})) == ([], [])
    wrong = await http.get(PAGE, params={"status": "maybe"})
    assert (wrong.status_code, "status" in wrong.text) == (400, True)


async def test_what_ran_out_waits_no_more(rows: JobRows, http: httpx.AsyncClient) -> None:
    late = waiting_question(rows)
    before = await http.get(PAGE)
    rows.clock.now += EXPIRY
    after = await http.get(PAGE, headers={"If-None-Match": before.headers["etag"]})
    assert parted(after) == ([], [late.id])
    assert '<span class="tag ">expired</span>' in after.text


async def test_nothing_new_is_told_without_a_page(rows: JobRows, http: httpx.AsyncClient) -> None:
    waiting_question(rows)
    tag = (await http.get(PAGE)).headers["etag"]
    assert (await http.get(PAGE, headers={"If-None-Match": tag})).status_code == 304
    waiting_question(rows)
    assert (await http.get(PAGE, headers={"If-None-Match": tag})).status_code == 200


async def test_a_viewer_sees_what_waits_and_no_form(rows: JobRows) -> None:
    question = waiting_question(rows)
    guard = replace(parts(rows).guard, viewer_password=VIEWER[1])
    async with client(app_of(rows, guard=guard), auth=VIEWER) as http:
        page = await http.get(PAGE)
        assert parted(page) == ([question.id], [])
        assert "<textarea" not in page.text
        refused = await http.post(f"{PAGE}/answer", data={"number": question.id, "words": "red"})
        assert refused.status_code == 403


async def test_nothing_that_somebody_wrote_is_markup(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        ada = tx.agents.get_agent_by_slug("ada")
        for number, kind in enumerate(QuestionKind):
            tx.jobs.questions.add_question(
                Question(
                    job_id=None,
                    number=number,
                    place=0,
                    agent_id=ada.id,
                    kind=kind,
                    lane="",
                    text=NASTY,
                    context=NASTY,
                    tool=NASTY,
                    approvers=NASTY,
                    asked_of=NASTY,
                    asked_at=tx.now,
                    expires_at=tx.now + EXPIRY,
                )
            )
    page = await http.get(PAGE)
    assert len(parted(page)[0]) == 2
    await http.post(f"{PAGE}/answer", data={"number": 1, "words": NASTY})
    for one in (page, await http.get(PAGE)):
        assert "<script>alert" not in one.text
        assert "<img" not in one.text


async def test_without_any_it_says_when_agents_ask(http: httpx.AsyncClient) -> None:
    page = await http.get(PAGE)
    assert "No open questions or approvals." in page.text
    assert "/settings?q=tools.approval" in page.text


async def test_an_answer_has_an_end(rows: JobRows, http: httpx.AsyncClient) -> None:
    asked = waiting_question(rows)
    refused = await http.post(f"{PAGE}/answer", data={"number": asked.id, "words": "a" * (ANSWER_CHARS + 1)})
    assert refused.status_code == 400
    assert f"at most {ANSWER_CHARS} characters" in refused.text
    led = await http.post(f"{PAGE}/answer", data={"number": asked.id, "words": "a" * ANSWER_CHARS})
    assert led.status_code == 303
