"""The tools of agents outside: who has which, and that a question is put once and answered to whoever asks again."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Semaphore

import pytest
from jsonschema import Draft202012Validator

from maestro.chat import ChatService
from maestro.domain.agents.agent import Agent
from maestro.domain.questions.question import QuestionStatus, operator_answer
from maestro.domain.questions.views import MOST_OPEN
from maestro.domain.redaction import ScanResult, ScanRules
from maestro.domain.settings.jobs import ChatLimits, ChatSettings, QuestionSettings
from maestro.store.store import Store
from maestro.tools.base import ToolFailure
from maestro.tools.chat import OutsideTools, call_outside_tool
from tests.support.job_rows import JobRows
from tests.support.outside import MOST_CHARS, add_agent, add_architect, outside_tools, until_asked

Result = Mapping[str, object]


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


class HangingScanner:
    """Finds nothing, and not before it is told to."""

    def __init__(self) -> None:
        self.hanging = Semaphore(0)
        self.free = Event()

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Wait."""
        self.hanging.release()
        assert self.free.wait(60)
        return ScanResult(text)


def agent_of(rows: JobRows, slug: str = "ada") -> Agent:
    with rows.store.view() as tx:
        return tx.agents.get_agent_by_slug(slug)


async def call(tools: OutsideTools, agent: Agent, name: str, **arguments: object) -> Result:
    """Call a tool; what it returns fits its schema."""
    tool = tools.find_tool(name, agent)
    assert tool is not None
    result = await call_outside_tool(tool, agent, arguments)
    Draft202012Validator(json.loads(tool.output)).validate(result)
    return result


async def ask(rows: JobRows, question: str = "Which colour?", slug: str = "ada", **more: object) -> Result:
    return await call(outside_tools(rows), agent_of(rows, slug), "ask_question", question=question, **more)


def answer(store: Store, number: object, words: str = "blue") -> None:
    assert isinstance(number, int)
    with store.begin() as tx:
        assert tx.jobs.answer_question(
            operator_answer(tx.jobs.questions.get_question(number).question, words, None, tx.now), "operator"
        )


def names(tools: OutsideTools, agent: Agent) -> list[str]:
    return [tool.name for tool in tools.list_tools(agent)]


def test_agents_have_the_chat_and_the_question_and_architects_the_question(rows: JobRows) -> None:
    add_architect(rows)
    tools = outside_tools(rows)
    assert names(tools, agent_of(rows)) == ["chat.post", "chat.getNew", "ask_question"]
    assert names(tools, agent_of(rows, "arch")) == ["ask_question"]
    assert tools.find_tool("chat.post", agent_of(rows, "arch")) is None


def test_without_a_chat_the_question_is_left(rows: JobRows) -> None:
    assert names(outside_tools(rows, chat=False), agent_of(rows)) == ["ask_question"]


async def test_what_does_not_fit_is_told(rows: JobRows) -> None:
    tools, agent = outside_tools(rows), agent_of(rows)
    for name, arguments, reason in (
        ("chat.post", {}, "'text' is a required property"),
        ("chat.post", {"text": "x", "author": "@human"}, "'author' was unexpected"),
        ("chat.post", {"text": float("nan")}, "NaN is not a number"),
        ("chat.post", {"text": " "}, "must say something"),
        ("chat.getNew", {"since": 3}, "Call chat.getNew with one JSON object"),
        ("ask_question", {"question": " "}, "The question is empty"),
    ):
        with pytest.raises(ToolFailure, match=reason):
            await call(tools, agent, name, **arguments)


async def test_reading_again_says_that_the_last_was_read(rows: JobRows) -> None:
    tools, agent = outside_tools(rows), agent_of(rows)
    await call(tools, agent, "chat.post", text="one")
    first = await call(tools, agent, "chat.getNew")
    await call(tools, agent, "chat.post", text="two")
    second = await call(tools, agent, "chat.getNew")
    assert [first["newPointer"], second["newPointer"]] == [1, 2]
    assert await call(tools, agent, "chat.getNew") == {"messages": [], "newPointer": 2}


async def test_posts_that_wait_for_the_scanner_hold_up_nobody_who_reads(rows: JobRows) -> None:
    scanner = HangingScanner()
    chat = ChatService(rows.store, scanner, lambda: ChatSettings(limits=ChatLimits(max_message_chars=MOST_CHARS)))
    rules = QuestionSettings(expiry_hours=1, patience_seconds=0)
    tools, agent = OutsideTools(rows.store, chat, lambda: rules), agent_of(rows)
    # More than threads that asyncio has for everything on a machine with few processors.
    posts = [asyncio.create_task(call(tools, agent, "chat.post", text=f"{number}")) for number in range(12)]
    await asyncio.to_thread(scanner.hanging.acquire)
    assert await call(tools, agent, "chat.getNew") == {"messages": [], "newPointer": 0}
    scanner.free.set()
    assert {one["id"] for one in await asyncio.gather(*posts)} == set(range(1, 13))


# Questions


async def test_a_question_is_put_once_and_its_answer_comes_to_whoever_asks_again(rows: JobRows) -> None:
    first = await ask(rows)
    assert first == {"questionId": 1, "status": "open"}
    assert await ask(rows, "  Which colour?\n") == first
    answer(rows.store, 1)
    answered = {"questionId": 1, "status": "answered", "answer": "blue"}
    assert [await ask(rows), await ask(rows)] == [answered, answered]
    with rows.store.view() as tx:
        (only,), _ = tx.jobs.questions.list_question_page((), None, 10)
    assert (only.agent, only.job, only.question.answered_by) == ("ada", None, "operator")


async def test_choices_are_kept_for_who_answers_and_their_number_is_enough(rows: JobRows) -> None:
    assert await ask(rows, choices=["Red", "Blue"]) == {"questionId": 1, "status": "open"}
    answer(rows.store, 1, "2")
    assert await ask(rows) == {"questionId": 1, "status": "answered", "answer": "Blue"}
    with rows.store.view() as tx:
        assert tx.jobs.questions.get_question(1).question.offered == ("Red", "Blue")


async def test_another_text_context_or_agent_is_another_question(rows: JobRows) -> None:
    add_agent(rows, "bob")
    asked = [await ask(rows), await ask(rows, "Why?"), await ask(rows, context="a wall"), await ask(rows, slug="bob")]
    assert [one["questionId"] for one in asked] == [1, 2, 3, 4]


async def test_a_question_that_nobody_answered_in_time_is_put_again(rows: JobRows) -> None:
    await ask(rows)
    rows.clock.go(hours=2)
    assert await ask(rows) == {"questionId": 2, "status": "open"}
    with rows.store.view() as tx:
        assert tx.jobs.questions.get_question(1).question.status_at(tx.now) is QuestionStatus.EXPIRED


async def test_a_question_that_expires_while_it_is_waited_for_says_so(rows: JobRows) -> None:
    tools = outside_tools(rows, patience=60)
    waiting = asyncio.create_task(call(tools, agent_of(rows), "ask_question", question="Why?"))
    await until_asked(rows, 1)
    rows.clock.go(hours=2)
    assert await waiting == {"questionId": 1, "status": "expired"}


async def test_the_answer_is_waited_for_and_nobody_is_held_up(rows: JobRows) -> None:
    tools, agent = outside_tools(rows, patience=60), agent_of(rows)
    waiting = [asyncio.create_task(call(tools, agent, "ask_question", question=f"Why {n}?")) for n in range(20)]
    await until_asked(rows, 20)
    assert await call(tools, agent, "chat.post", text="meanwhile") == {"id": 1, "success": True}
    for number in range(1, 21):
        await asyncio.to_thread(answer, rows.store, number, f"because {number}")
    results = await asyncio.gather(*waiting)
    assert sorted(str(one["answer"]) for one in results) == sorted(f"because {number}" for number in range(1, 21))


async def test_who_waits_is_sent_away_when_the_process_ends(rows: JobRows) -> None:
    tools = outside_tools(rows, patience=60)
    waiting = asyncio.create_task(call(tools, agent_of(rows), "ask_question", question="Why?"))
    await until_asked(rows, 1)
    tools.end_waits()
    assert await waiting == {"questionId": 1, "status": "open"}
    assert await call(tools, agent_of(rows), "ask_question", question="Why?") == {"questionId": 1, "status": "open"}


async def test_two_calls_at_once_put_one_question(rows: JobRows) -> None:
    results = await asyncio.gather(*(ask(rows) for _ in range(10)))
    assert {one["questionId"] for one in results} == {1}


async def test_an_agent_has_only_so_many_questions_open(rows: JobRows) -> None:
    for number in range(MOST_OPEN):
        await ask(rows, f"{number}?")
    with pytest.raises(ToolFailure, match="questions of this agent are open"):
        await ask(rows, "one more?")
    assert (await ask(rows, "7?"))["questionId"] == 8
    answer(rows.store, 8)
    assert (await ask(rows, "one more?"))["status"] == "open"


def test_every_tool_argument_and_result_is_explained(rows: JobRows) -> None:
    for tool in outside_tools(rows).list_tools(agent_of(rows)):
        assert len(tool.description) > 60
        for schema, unnamed in ((tool.parameters, 1), (tool.output, 1)):
            items = schema.count('"items"')
            assert schema.count('"description"') == schema.count('"type"') - unnamed - items
