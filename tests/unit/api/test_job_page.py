"""The page of one job, and of what a model saw: what they say, what they leave out, and texts that stay texts."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Literal

import httpx
import pytest

from maestro.domain.agents.edits import AgentChange
from maestro.domain.conducting.conductor import ActionOutcome
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.flow import RouteAction, RouteOutcome, StatusOutcome
from maestro.domain.jobs.job import JobKind, JobStatus, StepRef, Wait
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.settings.llm import BudgetSettings
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import parse_answer
from maestro.domain.tools import ToolRun, ToolState
from maestro.operations.jobs import JobOperations
from tests.support.api_client import BASIC, app_of, client, no_temporal, parts
from tests.support.job_rows import SECRET_ANSWER, JobRows
from tests.support.spoken import Spoken

NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{7*7}}"
LONG = "word " * 2_000


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def page_of(http: httpx.AsyncClient, path: str) -> str:
    page = await http.get(path)
    assert page.status_code == 200, page.text
    return page.text


def step_of(page: str, name: str) -> str:
    """Return the part of a page that shows an attempt at a step."""
    found = re.search(rf'<li class="job-step" id="step-{name}".*?\n</li>', page, re.DOTALL)
    assert found, f"no step {name}"
    return found[0]


def words(part: str) -> str:
    """Return what stands in a part of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", part).split())


def add_two_accounts(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        for priority, name in enumerate(("first", "main")):
            tx.llm.accounts.add_account(
                ModelAccount(
                    name=name,
                    provider="anthropic",
                    model="claude-haiku-4-5",
                    priority=priority,
                    source=AccountSource.API,
                    created_at=tx.now,
                    updated_at=tx.now,
                )
            )


async def test_an_answer_of_another_account_says_so_and_why(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_two_accounts(rows)
    job_id = rows.add()
    rows.worked(job_id)
    page = await page_of(http, f"/queue/{job_id}")
    (said,) = re.findall(r'<div id="substitution">.*?</div>', page)
    assert "claude-haiku-4-5, main" in words(said)
    assert "because claude-haiku-4-5 failed with RateLimited" in words(said)
    detail = (await http.get(f"/api/jobs/{job_id}")).json()
    assert detail["substitution"]["account"] == "main"
    rows.clock.go(hours=1)
    with rows.store.begin() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        assert agent is not None
        tx.agents.change(agent, AgentChange(model="openai/gpt-4o"), "test")
    assert (await http.get(f"/api/jobs/{job_id}")).json()["substitution"] == detail["substitution"]


@pytest.mark.parametrize(("on_limit", "reason"), [("refuse", "could not be called"), ("fallback", "a daily budget")])
async def test_a_budget_is_the_reason_only_if_it_lets_a_cheaper_model_answer(
    rows: JobRows, on_limit: Literal["refuse", "fallback"], reason: str
) -> None:
    budgets = BudgetSettings(on_limit=on_limit, fallback_model="anthropic/claude-haiku-4-5")
    add_two_accounts(rows)
    job_id = rows.add()
    rows.worked(job_id)
    with rows.store.begin() as tx:
        tx._link.driver.execute("DELETE FROM llm_calls WHERE state = 'failed'")
    async with client(app_of(rows, budgets=lambda: budgets), auth=BASIC) as http:
        page = await page_of(http, f"/queue/{job_id}")
    (shown,) = re.findall(r'<div id="substitution">.*?</div>', page)
    assert reason in words(shown)


def journal(rows: JobRows, job_id: str, step: str, run: int = 1) -> StepRef:
    ref = StepRef(job_id=job_id, step=step)
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(ref, step, run)
    return ref


async def test_each_attempt_is_shown_with_what_it_did(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add("what is the weather?")
    rows.worked(job_id)
    page = await page_of(http, f"/queue/{job_id}")
    assert "Message of <bdi>Grace</bdi> for ada" in page
    assert "what is the weather?" in page
    assert "Build the prompt done about 9 tokens in 2 messages" in words(step_of(page, "context-1"))
    assert "interrupted" in step_of(page, "model-1-1")
    failed = words(step_of(page, "model-1-2"))
    assert "failed attempt 2" in failed
    assert "RateLimited 429 from the provider" in failed
    answered = step_of(page, "model-1-3")
    assert f"/queue/{job_id}/calls/3" in answered
    assert "anthropic/claude-haiku-4-5 main 120 100 30 $0.0025 900 ms answered stop" in words(answered)
    assert "m-1" in page
    assert "1,320 in, 30 out" in page
    assert f'href="http://localhost:8233/namespaces/default/workflows/{job_id}"' in page
    assert f'href="/api/jobs/{job_id}"' in page


async def test_what_runs_now_is_said_first_and_looked_at_each_second(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    page = await page_of(http, f"/queue/{job_id}")
    assert 'data-live="1000"' in page
    assert "Now: Ask the model, call 1 , attempt 3" in words(page)
    assert f'href="/queue/{job_id}/cancel"' in page
    assert "/replay?" not in page, "what runs cannot be replayed"


async def test_a_look_at_what_did_not_change_costs_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    first = await http.get(f"/queue/{job_id}")
    again = {"If-None-Match": first.headers["ETag"]}
    assert (await http.get(f"/queue/{job_id}", headers=again)).status_code == 304
    rows.end(job_id, JobStatus.CANCELLED)
    changed = await http.get(f"/queue/{job_id}", headers=again)
    assert changed.status_code == 200
    assert "cancelled" in changed.text


async def test_a_job_in_line_names_the_one_before_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    first, second = rows.add("first"), rows.add("second")
    page = await page_of(http, f"/queue/{second}")
    assert f'after <a href="/queue/{first}">' in page
    assert "No step has started yet" in page
    assert f'after <a href="/queue/{second}">' not in await page_of(http, f"/queue/{first}")


async def test_a_job_that_waits_says_for_what_and_until_when(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    ref = journal(rows, job_id, "tool-1-0")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, started_at=tx.now)
        wait = Wait(reason=WaitReason.PERSON, wake_at=tx.now + timedelta(days=2))
        tx.jobs.tool_runs.save_tool_run(_tool(rows, job_id, ToolState.WAITING))
        tx.jobs.steps.suspend_attempt(ref, "WaitsForPerson", "question 1 is open", wait)
        tx.jobs.park_job(job_id, wait)
    page = await page_of(http, f"/queue/{job_id}")
    assert "Waits for a person since now ; goes on in 2 d at the latest" in words(page)
    assert "waits for person" in words(step_of(page, "tool-1-0-1"))
    assert "get_time waiting" in words(step_of(page, "tool-1-0-1"))


async def test_older_runs_are_kept_below_the_newest(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed("try")
    for run in (1, 2):
        ref = journal(rows, job_id, "model-1", run)
        with rows.store.begin() as tx:
            tx.jobs.steps.fail_attempt(ref, "ProviderDown", f"no answer in run {run}")
        rows.clock.go(hours=1)
    page = await page_of(http, f"/queue/{job_id}")
    assert page.index("no answer in run 2") < page.index("no answer in run 1")
    assert '<details class="job-run" id="run-2" open>' in page
    assert '<details class="job-run" id="run-1">' in page


async def test_a_job_with_hundreds_of_runs_is_no_heavy_page(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed("try")
    for run in range(1, 301):
        ref = journal(rows, job_id, "model-1", run)
        with rows.store.begin() as tx:
            tx.jobs.steps.fail_attempt(ref, "RateLimited", "no account can answer " + "now " * 30)
    page = await page_of(http, f"/queue/{job_id}")
    assert len(page) < 150_000
    assert 'id="run-300" open' in page
    assert 'id="run-200"' not in page
    assert "Received and stored" not in page
    assert "Show the 200 older runs" in page
    every = await page_of(http, f"/queue/{job_id}?runs=all")
    assert 'id="run-1"' in every
    assert "Received and stored" in every
    assert "older runs" not in every


async def test_a_route_in_the_words_of_another_release_does_not_hide_the_rest(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    job_id = rows.add("still here")
    ref = journal(rows, job_id, "route")
    with rows.store.begin() as tx:
        tx.jobs.steps.finish_step(ref, StatusOutcome(status=JobStatus.WAITING))
    assert "still here" in await page_of(http, f"/queue/{job_id}")
    assert (await http.get(f"/api/jobs/{job_id}")).json()["route"] == ""


async def test_a_clock_that_is_set_back_makes_nothing_take_less_than_no_time(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    rows.clock.go(hours=-1)
    rows.end(job_id, JobStatus.COMPLETED)
    journal(rows, job_id, "tags")
    rows.clock.go(hours=-1)
    with rows.store.begin() as tx:
        tx.jobs.steps.fail_attempt(StepRef(job_id=job_id, step="tags"), "StoreBusy", "")
    took = [step["durationMs"] for step in (await http.get(f"/api/jobs/{job_id}")).json()["steps"]]
    assert took[-1] == 0
    for path in (f"/queue/{job_id}", "/queue"):
        assert not re.search(r"-\d[\d.]* (ms|s|min)\b", words(await page_of(http, path)))


async def test_the_route_says_its_reason(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.end(rows.add(agent=None), JobStatus.DROPPED, reason="nobody was mentioned")
    ref = journal(rows, job_id, "route")
    with rows.store.begin() as tx:
        tx.jobs.steps.finish_step(ref, RouteOutcome(action=RouteAction.DROP, reason="nobody was mentioned"))
    page = await page_of(http, f"/queue/{job_id}")
    assert "no agent answers: nobody was mentioned" in words(step_of(page, "route-1"))
    assert "mode=restart" in page, "what was dropped can be restarted"
    assert "mode=resume" not in page


async def test_tools_actions_and_chunks_stand_under_their_steps(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    for step in ("tool-1-0", "tags", "deliver"):
        journal(rows, job_id, step)
    with rows.store.begin() as tx:
        tx.jobs.tool_runs.save_tool_run(
            _tool(rows, job_id, ToolState.DONE, result=tx.llm.prompts.store_text("it is noon"))
        )
        [tag] = parse_answer("[STATE:mood] good [/STATE]").tags
        tx.jobs.actions.add_outcomes(
            job_id, [(tag, ActionOutcome(subject="mood", state=ActionState.REFUSED, detail="not yours"))]
        )
        tx.deliveries.add_chunk(_chunk(rows, job_id))
    page = await page_of(http, f"/queue/{job_id}")
    assert "it is noon" in step_of(page, "tool-1-0-1")
    assert "refused state mood not yours" in words(step_of(page, "tags-1"))
    assert "pending here it is" in words(step_of(page, "deliver-1"))


async def test_long_texts_are_cut_until_they_are_asked_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add(LONG)
    page = await page_of(http, f"/queue/{job_id}")
    assert len(page) < 20_000
    assert f'href="/queue/{job_id}?whole=message#message">Show the other 9,400 characters' in page
    assert LONG.strip() in await page_of(http, f"/queue/{job_id}?whole=message")


@pytest.mark.parametrize("kind", [JobKind.MESSAGE, JobKind.CRON])
async def test_no_text_is_markup(rows: JobRows, http: httpx.AsyncClient, kind: JobKind) -> None:
    job_id = rows.add(NASTY, user=NASTY, kind=kind)
    journal(rows, job_id, NASTY)
    ref = journal(rows, job_id, "deliver")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, task=NASTY, said=NASTY, channel=NASTY, thread=NASTY, account=NASTY)
        tx.jobs.steps.fail_attempt(ref, NASTY, NASTY)
        tx.jobs.tool_runs.save_tool_run(
            _tool(rows, job_id, ToolState.DONE, result=tx.llm.prompts.store_text(NASTY), tool=NASTY)
        )
        [tag] = parse_answer("[STATE:mood] good [/STATE]").tags
        tx.jobs.actions.add_outcomes(
            job_id, [(tag, ActionOutcome(subject=NASTY, state=ActionState.FAILED, detail=NASTY))]
        )
        chunk = _chunk(rows, job_id)
        chunk.content = chunk.error = chunk.filename = chunk.platform_message_id = NASTY
        tx.deliveries.add_chunk(chunk)
    rows.end(job_id, JobStatus.FAILED, NASTY, NASTY)
    for path in ("", "/replay?mode=restart", "/edit?mode=restart", "/cancel"):
        page = await page_of(http, f"/queue/{job_id}{path}")
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "49" not in re.sub(r"\d{3,}", "", words(page)).split(), "a text is no template"
    assert "&lt;script&gt;" in await page_of(http, f"/queue/{job_id}")


async def test_a_what_if_stands_beside_what_was_really_answered(rows: JobRows, http: httpx.AsyncClient) -> None:
    original = rows.end(rows.add("hi"), JobStatus.COMPLETED)
    with rows.store.begin() as tx:
        tx.jobs.update_job(original, said="what it said")
    trial = await JobOperations(rows.store, no_temporal).replay(original, ReplayMode.WHAT_IF, "operator")
    with rows.store.begin() as tx:
        tx.jobs.update_job(trial, said="what it would say")
    rows.end(trial, JobStatus.COMPLETED)
    page = words(await page_of(http, f"/queue/{trial}"))
    assert f"It would answer what it would say What {original} really answered what it said" in page
    assert "Actions it would have taken No tags." in page
    shown = await page_of(http, f"/queue/{original}")
    assert f'What-ifs</dt><dd><a href="/queue/{trial}">' in shown
    assert f"/queue/{original}/edit?mode=what-if" in await page_of(http, f"/queue/{trial}")


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.COMPLETED])
async def test_a_what_if_that_did_not_get_to_its_end_may_be_resumed(
    rows: JobRows, http: httpx.AsyncClient, status: JobStatus
) -> None:
    original = rows.end(rows.add("hi"), JobStatus.COMPLETED)
    control = JobOperations(rows.store, no_temporal)
    trial = rows.end(await control.replay(original, ReplayMode.WHAT_IF, "operator"), status)
    page = await page_of(http, f"/queue/{trial}")
    assert (f"/queue/{trial}/replay?mode=resume" in page) is (status is not JobStatus.COMPLETED)


async def test_jobs_are_linked_with_each_other(rows: JobRows, http: httpx.AsyncClient) -> None:
    parent, child = rows.add("parent"), rows.add("child", kind=JobKind.DELEGATION)
    host = rows.add("host")
    with rows.store.begin() as tx:
        tx.jobs.update_job(child, parent_id=parent, depth=1, task="look it up")
        tx.jobs.update_job(parent, merged_into=host)
    page = await page_of(http, f"/queue/{child}")
    assert f'Task of</dt><dd><a href="/queue/{parent}">' in page
    assert "look it up" in page
    page = await page_of(http, f"/queue/{parent}")
    assert f'Led to</dt><dd><a href="/queue/{child}">' in page
    assert f'Answered in</dt><dd><a href="/queue/{host}">' in page
    assert f'Answers for</dt><dd><a href="/queue/{parent}">' in await page_of(http, f"/queue/{host}")


async def test_what_is_not_there_is_a_page_that_says_so(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    for path in ("nope", "nope/replay", "nope/edit", "nope/cancel", f"{job_id}/calls/7"):
        page = await http.get(f"/queue/{path}")
        assert page.status_code == 404, path
        assert "Not found" in page.text
        assert "nope" in page.text or "has no model call 7" in page.text


async def test_a_prompt_is_shown_as_the_model_saw_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    job_id = await spoken.answered(f"and now? {NASTY}", f"{SECRET_ANSWER} {NASTY}")
    with rows.store.view() as tx:
        [call] = tx.llm.calls.list_calls_of_job(job_id)
    page = await page_of(http, f"/queue/{job_id}/calls/{call.id}")
    assert "<script>alert" not in page
    roles = re.findall(r'<li class="turn" id="turn-\d+" data-role="(\w+)"', page)
    assert roles == ["system", "user"]
    assert SECRET_ANSWER in page
    assert "own prompt" in page
    assert "get_time" in page
    assert f'<a href="/queue/{job_id}"><code>{job_id}' in page


async def test_a_long_turn_is_folded_and_cut_until_it_is_asked_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    await spoken.answered(LONG)
    job_id = await spoken.answered("short")
    with rows.store.view() as tx:
        [call] = tx.llm.calls.list_calls_of_job(job_id)
    page = await page_of(http, f"/queue/{job_id}/calls/{call.id}")
    assert re.search(r'id="turn-2" data-role="user">\s*<details>', page), "folded"
    assert re.search(r'id="turn-4" data-role="user">\s*<details open>', page), "what is answered is not"
    assert "?turn=2#turn-2" in page
    assert LONG.strip() in await page_of(http, f"/queue/{job_id}/calls/{call.id}?turn=2")


async def test_a_long_conversation_does_not_make_a_heavy_page(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    for _ in range(30):
        await spoken.answered(LONG[:5_500])
    job_id = await spoken.answered("short")
    with rows.store.view() as tx:
        [call] = tx.llm.calls.list_calls_of_job(job_id)
    page = await page_of(http, f"/queue/{job_id}/calls/{call.id}")
    assert page.count('<li class="turn"') > 60
    assert len(page) < 130_000
    assert LONG[:5_000] in await page_of(http, f"/queue/{job_id}/calls/{call.id}?turn=2")


async def test_who_only_looks_sees_everything_and_no_button(rows: JobRows) -> None:
    job_id = rows.failed()
    made = parts(rows)
    app = app_of(rows, guard=replace(made.guard, viewer_password="who only looks"))
    async with client(app, auth=("viewer", "who only looks")) as http:
        page = await page_of(http, f"/queue/{job_id}")
        assert "ProviderDown" in page
        assert "mode=resume" not in page
        plan = await page_of(http, f"/queue/{job_id}/replay?mode=resume")
        assert "<dt>Model calls<" in plan
        assert '<form class="act"' not in plan
        refused = await http.post(f"/queue/{job_id}/replay", data={"mode": "resume"})
        assert refused.status_code == 403


def _tool(rows: JobRows, job_id: str, state: ToolState, tool: str = "get_time", result: str = "") -> ToolRun:
    return ToolRun(
        job_id=job_id,
        number=1,
        place=0,
        tool=tool,
        arguments="",
        state=state,
        attempts=1,
        result=result,
        started_at=rows.clock.now,
    )


def _chunk(rows: JobRows, job_id: str) -> Delivery:
    return Delivery(
        job_id=job_id,
        purpose=DeliveryPurpose.ANSWER,
        seq=0,
        platform="web",
        account="default",
        channel="general",
        content="here it is",
        created_at=rows.clock.now,
    )
