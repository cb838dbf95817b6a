"""The process dies while an answer acts: an agent, its cron, a task for another agent and its result exist once."""

import asyncio

import pytest

from tests.chaos.promise import assert_books_closed, assert_delivered_once, assert_journal_closed
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-delegation")]

AGENTS = [{"slug": "conductor", "role": "conductor"}, {"slug": "ada"}, {"slug": "bob"}]

ACTING = ["before tags done", "after tags done"]
"""The transaction in which an answer acts."""
HANDING_OVER = ["before deliver done", "after deliver done", "before take-up done", "after take-up done"]
"""The answer that gave the task is out, or nearly, and nobody has begun it; and the beginning of the task itself."""

AGENT_AND_CRON = """Done.
[CREATE_AGENT]
slug: {name}
description: keeps the time
[/CREATE_AGENT]
[CREATE_CRON]
agent: {name}
name: bell
schedule: 0 9 * * 1-5
prompt: Ring.
[/CREATE_CRON]"""


def named(point: str) -> str:
    """Return a word of this point, for what is said and for what is made."""
    return point.replace(" ", "-").replace("_", "-")


async def led_to(evidence: Evidence, job: Row, count: int) -> list[Row]:
    """Return the jobs that hang on this one once so many have ended."""
    sql = "SELECT * FROM queue WHERE parent_id = ? AND completed_at IS NOT NULL ORDER BY completed_at"
    return await evidence.found(sql, job["id"], count=count)


async def assert_said_once(evidence: Evidence, somebody: Person, job: Row) -> str:
    """The job has one answer, which was bought once, kept once and sent once; return it."""
    assert job["status"] == "completed"
    assert evidence.calls(job["id"], "answer")["answered"] == 1
    (answer,) = evidence.answers(job["id"])
    await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert_delivered_once(evidence, somebody, job, answer)
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)
    return answer


@pytest.mark.parametrize("point", ACTING)
async def test_an_agent_and_its_cron_exist_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    name = named(point)
    llm.script(name, reply=AGENT_AND_CRON.format(name=name))
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, name) as somebody:
        await somebody.say(f"{name} please, @conductor", name)
        await crash
        (job,) = await evidence.ended(name)
        await assert_said_once(evidence, somebody, job)
    made = evidence.rows("SELECT id, version FROM agents WHERE slug = ?", name)
    assert [agent["version"] for agent in made] == [1]
    crons = evidence.rows("SELECT name FROM cron_jobs WHERE agent_id = ?", made[0]["id"])
    assert [cron["name"] for cron in crons] == ["bell"]
    actions = evidence.rows("SELECT tag, state FROM actions WHERE job_id = ? ORDER BY seq", job["id"])
    assert [(one["tag"], one["state"]) for one in actions] == [("CREATE_AGENT", "done"), ("CREATE_CRON", "done")]


@pytest.mark.parametrize("point", [*ACTING, *HANDING_OVER])
async def test_a_task_is_done_once_and_after_the_answer_that_gave_it(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    name = f"give-{named(point)}"
    llm.script(name, reply=f"Bob will. [DELEGATE:bob]do it for {name[5:]}[/DELEGATE]")
    llm.script(f"do it for {name[5:]}", reply="It is done.")
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, name) as somebody:
        await somebody.say(f"{name} please, @ada", name)
        await crash
        (job,) = await evidence.ended(name)
        (task,) = await led_to(evidence, job, 1)
        assert await assert_said_once(evidence, somebody, job) == "Bob will."
        assert await assert_said_once(evidence, somebody, task) == "It is done."
        assert [frame["content"] for frame in somebody.replies] == ["Bob will.", "It is done."]
    assert len(evidence.rows("SELECT id FROM queue WHERE channel = ?", name)) == 2


@pytest.mark.parametrize("point", [*ACTING, *HANDING_OVER])
async def test_a_delegator_hears_the_result_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    name = f"hear-{named(point)}"
    llm.script(name, reply=f"I ask. [DELEGATE:bob wait]count for {name[5:]}[/DELEGATE]")
    llm.script(f"count for {name[5:]}", reply="Seven.")
    llm.script("It answered:\n> Seven.", reply="It is seven.")
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, name) as somebody:
        await somebody.say(f"{name} please, @ada", name)
        await crash
        (job,) = await evidence.ended(name)
        task, goes_on = await led_to(evidence, job, 2)
        assert (task["hears"], goes_on["task"]) == (1, "")
        assert await assert_said_once(evidence, somebody, job) == "I ask."
        assert evidence.answers(task["id"]) == ["Seven."]
        assert await assert_said_once(evidence, somebody, goes_on) == "It is seven."
        assert [frame["content"] for frame in somebody.replies] == ["I ask.", "It is seven."]
    assert len(evidence.rows("SELECT id FROM queue WHERE channel = ?", name)) == 3


@pytest.mark.parametrize("point", ACTING)
async def test_a_result_is_reported_once(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    """The process dies as the delegate's answer ends its job and lets the delegator go on."""
    name = f"report-{named(point)}"
    llm.script(name, reply=f"I ask. [DELEGATE:bob wait]weigh for {name[7:]}[/DELEGATE]")
    llm.script(f"weigh for {name[7:]}", reply="Nine.", delay=1.0)
    llm.script("It answered:\n> Nine.", reply="It is nine.")
    async with person(maestro.web_port, name) as somebody:
        await somebody.say(f"{name} please, @ada", name)
        await asyncio.to_thread(
            llm.wait_for, lambda requests: any(f"weigh for {name[7:]}" in one.last_user for one in requests)
        )
        maestro.arm(point)
        await maestro.crash_at(point)
        (job,) = await evidence.ended(name)
        task, goes_on = await led_to(evidence, job, 2)
        assert evidence.answers(task["id"]) == ["Nine."]
        assert await assert_said_once(evidence, somebody, goes_on) == "It is nine."
    assert len(evidence.rows("SELECT id FROM queue WHERE channel = ?", name)) == 3
