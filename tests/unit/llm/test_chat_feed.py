"""Posts reach a model as the last that is done before its call, and the cursor moves with its answer alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import select
from structlog.testing import capture_logs

from maestro.domain.agent_chat import GET_NEW, HEADING, HUMAN, POST, REMINDER, ChatReminder, max_posts
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.calls import EmptyResponse, ProviderUnavailable
from maestro.domain.llm.models import FALLBACK_WINDOW
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMRequest, LLMResponse, PromptMessage, Role, ToolCall
from maestro.llm.accounts import Estimates, free_tokens
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.request_changes import (
    CacheMarkers,
    ChatFeed,
    RequestChanges,
    SecondAttempt,
    advance_chat_cursor,
)
from maestro.llm.protocols import Account, LLMClient, chain_middleware
from tests.support.answer_spool import answer_spool
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import reader
from tests.support.llm_fakes import Accounts, Held, Scripted, settled
from tests.support.llm_requests import request_of, response_of

DIRECTORY = Accounts([Account("main", "anthropic", "claude-haiku-4-5"), Account("small", "x", "tiny")])
WINDOWS = {"anthropic/claude-haiku-4-5": 200_000, "x/tiny": FALLBACK_WINDOW}
ESTIMATES = Estimates(DIRECTORY, lambda _: None)
DOWN = ProviderUnavailable("down")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def chatting(rows: JobRows, model: LLMClient) -> LLMClient:
    """The part of the chain that has to do with the chat, around a model."""
    return chain_middleware(
        model,
        SecondAttempt,
        lambda inner: RequestChanges(
            inner, CacheMarkers(DIRECTORY, lambda: True), ChatFeed(reader(rows.store), DIRECTORY, WINDOWS.__getitem__)
        ),
        lambda inner: Recorder(inner, rows.store, ESTIMATES, answer_spool(rows.store, advance_chat_cursor)),
    )


def request_for(job_id: str, number: int = 1, **change: object) -> LLMRequest:
    own = {"key": CallKey(job_id=job_id, number=number), "account": "main", "model": "claude-haiku-4-5"}
    return request_of().model_copy(update={"agent": "ada", "role": "coder", **own, **change})


def post(rows: JobRows, text: str, author: str = HUMAN) -> int:
    with rows.store.begin() as tx:
        return tx.chat.add_post(author, text)


def cursor(rows: JobRows) -> int:
    with rows.store.view() as tx:
        return tx.chat.list_unread("ada").after


def reminders(rows: JobRows) -> list[str]:
    """Return the jobs that an agent is still to be reminded of."""
    with rows.store.view() as tx:
        return [row.job_id for row in tx.chat.reminders._session.exec(select(ChatReminder))]


def calling(*names: str) -> LLMResponse:
    calls = tuple(ToolCall(id=f"call_1_{at}", name=name, arguments="{}") for at, name in enumerate(names))
    return response_of("").model_copy(update={"tool_calls": calls})


async def test_the_feed_is_the_last_turn_behind_all_marks_and_the_answer_moves_the_cursor(rows: JobRows) -> None:
    newest = post(rows, "tea is ready")
    model = Scripted(response_of("thanks"))
    await chatting(rows, model).complete(request_for(rows.add()))
    (asked,) = model.asked
    system, said, fed = asked.messages
    assert (fed.role, fed.chat, fed.cache, system.cache) == (Role.USER, True, False, True)
    assert fed.content.startswith(HEADING)
    assert fed.content.endswith("> tea is ready")
    assert (said.chat, asked.chat_after, asked.chat_upto) == (False, 0, newest)
    assert cursor(rows) == newest
    with rows.store.view() as tx:
        (call,) = tx.llm.calls.list_calls_of_job(asked.key.job_id)
    assert (call.chat_after, call.chat_upto) == (0, newest)


async def test_what_was_told_is_not_told_again(rows: JobRows) -> None:
    post(rows, "one")
    job_id, model = rows.add(), Scripted(response_of("a"), response_of("b"), response_of("c"))
    await chatting(rows, model).complete(request_for(job_id))
    await chatting(rows, model).complete(request_for(job_id, 2))
    post(rows, "two")
    await chatting(rows, model).complete(request_for(rows.add()))
    assert ["> one" in str(asked.messages) for asked in model.asked] == [True, False, False]
    assert len(model.asked[1].messages) == 2, "where nothing is new there is no turn either"
    assert "> two" in model.asked[2].messages[-1].content


async def test_a_call_that_fails_moves_nothing_and_the_next_is_told_more(rows: JobRows) -> None:
    post(rows, "one")
    job_id, model = rows.add(), Scripted(DOWN, response_of("fine"))
    with pytest.raises(ProviderUnavailable):
        await chatting(rows, model).complete(request_for(job_id))
    assert cursor(rows) == 0
    newest = post(rows, "two")
    await chatting(rows, model).complete(request_for(job_id))
    assert [text in model.asked[1].messages[-1].content for text in ("> one", "> two")] == [True, True]
    assert cursor(rows) == newest


async def test_a_second_try_after_an_empty_answer_has_the_feed_at_its_end_too(rows: JobRows) -> None:
    newest = post(rows, "one")
    model = Scripted(EmptyResponse("nothing"), response_of("fine"))
    await chatting(rows, model).complete(request_for(rows.add()))
    guidance, fed = model.asked[1].messages[-2:]
    assert (guidance.chat, fed.chat, fed) == (False, True, model.asked[0].messages[-1])
    assert cursor(rows) == newest


async def test_a_request_that_was_cut_off_goes_out_with_the_feed_and_the_reminder_it_had(rows: JobRows) -> None:
    first = post(rows, "one")
    job_id, held = rows.add(), Held()
    with rows.store.begin() as tx:
        tx.chat.reminders.record_reminder("ada", job_id)
    call = asyncio.create_task(chatting(rows, held).complete(request_for(job_id)))
    while not held.calls:
        await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    newest = post(rows, "two")
    model = Scripted(response_of("fine"), response_of("well"))
    await chatting(rows, model).complete(request_for(job_id))
    (asked,) = model.asked
    assert [message.chat for message in asked.messages] == [False, False, True]
    assert asked.messages[0].content.startswith(REMINDER)
    assert (asked.chat_upto, cursor(rows), asked.reminded) == (first, first, True)
    await chatting(rows, model).complete(request_for(job_id, 2))
    assert [text in model.asked[1].messages[-1].content for text in ("> one", "> two")] == [False, True]
    assert not model.asked[1].reminded
    assert cursor(rows) == newest


async def test_a_request_that_goes_out_again_uses_up_no_reminder_that_it_does_not_show(rows: JobRows) -> None:
    chatty, job_id, held = rows.add(), rows.add(), Held()
    call = asyncio.create_task(chatting(rows, held).complete(request_for(job_id)))
    while not held.calls:
        await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with rows.store.begin() as tx:
        tx.chat.reminders.record_reminder("ada", chatty)
    rows.end(chatty, JobStatus.FAILED)
    model = Scripted(response_of("fine"), response_of("well"))
    await chatting(rows, model).complete(request_for(job_id))
    assert reminders(rows) == [chatty]
    await chatting(rows, model).complete(request_for(job_id, 2))
    assert [asked.reminded for asked in model.asked] == [False, True]
    assert reminders(rows) == []


@pytest.mark.parametrize(
    "change",
    [
        {"role": "architect"},
        {"agent": ""},
        {"key": CallKey(job_id="message-080001", number=1, purpose=CallPurpose.SUMMARY)},
    ],
    ids=["architect", "nobody", "compaction"],
)
async def test_who_takes_no_part_is_told_nothing_and_reads_nothing(rows: JobRows, change: dict[str, object]) -> None:
    post(rows, "one")
    request = request_for(rows.add()).model_copy(update=change)
    ended = rows.failed()
    with rows.store.begin() as tx:
        tx.chat.reminders.record_reminder(request.agent, ended)
    model = Scripted(calling(POST))
    with capture_logs() as logs:
        await chatting(rows, model).complete(request)
    assert [turn.content for turn in model.asked[0].messages] == [turn.content for turn in request.messages]
    assert [entry["event"] for entry in logs] == ["llm.request"]
    assert cursor(rows) == 0
    assert reminders(rows) == [ended]


async def test_the_log_shows_the_posts_read_just_before_the_request(rows: JobRows) -> None:
    newest = post(rows, "one")
    job_id = rows.add()
    with capture_logs() as logs:
        await chatting(rows, Scripted(response_of("fine"))).complete(request_for(job_id))
    read, sent = logs
    assert (read["event"], read["job"], read["agent"]) == ("chat.retrieved", job_id, "ada")
    assert (read["posts"], read["newPointer"]) == (1, newest)
    assert (sent["event"], sent["job"], sent["newPointer"]) == ("llm.request", job_id, newest)


async def test_a_small_window_takes_what_fits_and_the_next_calls_the_rest(rows: JobRows) -> None:
    for number in range(40):
        post(rows, f"{number}: " + "word " * 160)
    job_id = rows.add()
    told: list[LLMRequest] = []
    model = Scripted(*(response_of("fine") for _ in range(9)))
    while cursor(rows) < 40:
        await chatting(rows, model).complete(request_for(job_id, len(told) + 1, account="small", model="tiny"))
        told.append(model.asked[-1])
    assert len(told) > 1
    heard = [line for asked in told for line in asked.messages[-1].content.split("\n") if line.startswith("> ")]
    assert [int(line[2:].split(":")[0]) for line in heard] == list(range(40))
    assert all(free_tokens(asked, FALLBACK_WINDOW) >= 0 for asked in told)


async def test_an_agent_gets_past_any_number_of_its_own_posts(rows: JobRows) -> None:
    job_id, own = rows.add(), max_posts(FALLBACK_WINDOW) + 5
    with rows.store.begin() as tx:
        for _ in range(own):
            newest = tx.chat.add_post("@ada", "mine")
    model = Scripted(*(response_of("fine") for _ in range(2)))
    for number in (1, 2):
        await chatting(rows, model).complete(request_for(job_id, number, account="small", model="tiny"))
    assert cursor(rows) == newest
    assert not any(message.chat for asked in model.asked for message in asked.messages)


async def test_after_a_turn_that_only_chatted_the_next_call_is_reminded_until_one_is_answered(rows: JobRows) -> None:
    job_id = rows.add()
    model = Scripted(calling(POST, GET_NEW), DOWN, response_of("sorry"), response_of("well"))
    await chatting(rows, model).complete(request_for(job_id))
    with pytest.raises(ProviderUnavailable):
        await chatting(rows, model).complete(request_for(job_id, 2))
    for number in (2, 3):
        await chatting(rows, model).complete(request_for(job_id, number))
    begins = [asked.messages[0].content.startswith(f"{REMINDER}\n\n") for asked in model.asked]
    assert begins == [False, True, True, False]
    assert [asked.reminded for asked in model.asked] == begins
    assert model.asked[1].messages[0].content.removeprefix(f"{REMINDER}\n\n") == request_of().messages[0].content


async def test_who_goes_on_chatting_is_reminded_again(rows: JobRows) -> None:
    job_id = rows.add()
    model = Scripted(calling(POST), calling(POST), calling(POST, "web_search"), response_of("done"))
    for number in range(1, 5):
        await chatting(rows, model).complete(request_for(job_id, number))
    assert [asked.reminded for asked in model.asked] == [False, True, True, False]


async def test_the_reminder_of_a_job_that_ended_is_shown_in_the_next_one(rows: JobRows) -> None:
    chatty, other = rows.add(), rows.add()
    model = Scripted(calling(POST), response_of("a"), response_of("b"), response_of("c"))
    await chatting(rows, model).complete(request_for(chatty))
    await chatting(rows, model).complete(request_for(other))
    rows.end(chatty, JobStatus.CANCELLED)
    await chatting(rows, model).complete(request_for(other, 2))
    await chatting(rows, model).complete(request_for(other, 3))
    assert [asked.reminded for asked in model.asked] == [False, False, True, False]


async def test_a_beginning_that_is_reminded_once_is_not_worth_keeping(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.chat.reminders.record_reminder("ada", job_id)
    system = PromptMessage(role=Role.SYSTEM, content="You are Ada. Today is Sunday.", stable=12)
    model = Scripted(response_of("fine"))
    await chatting(rows, model).complete(request_for(job_id, messages=(system, *request_of().messages[1:])))
    assert model.asked[0].messages[0].stable == 0
