"""Agents that give tasks to each other: own persona, same channel, no circles (docs/decisions.md: delegation)."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionDescription

from maestro.domain.errors import Conflict
from maestro.domain.jobs.replay import ReplayMode
from tests.support.instance import Instance, Row, running_instance
from tests.support.llm_server import Failure, Recorded
from tests.support.ports import free_port
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("delegation")]

KEY = "a key that makes its holder a user and not the owner"
PORT = free_port()
AGENTS = [
    {"slug": "ada", "name": "Ada", "systemPrompt": "You are the one who plans."},
    {"slug": "bob", "name": "Bob", "systemPrompt": "You are the one who counts.", "model": "openai/gpt-4.1-mini"},
    {"slug": "cleo", "name": "Cleo"},
    {"slug": "dan", "name": "Dan"},
    {"slug": "eve", "name": "Eve", "allowUsers": ["web:nobody-we-know"]},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(
        tmp_path_factory.mktemp("delegation"),
        agents=AGENTS,
        web={"apiKey": KEY},
        webui={"enabled": True, "port": PORT, "password": "the operator's own"},
    ) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def asked(maestro: Instance, text: str) -> Recorded:
    """Return the one request whose last message from outside contains this."""
    (request,) = maestro.llm.matching(text)
    return request


async def heard(client: WebClient) -> str:
    """Return the next answer."""
    return str((await client.wait_for("message", patience=60))["content"])


def said_to(client: WebClient) -> list[str]:
    """Return every message that arrived."""
    return [str(frame["content"]) for frame in client.frames if frame["type"] == "message"]


async def tasks_of(maestro: Instance, channel: str, count: int) -> list[Row]:
    """Return the jobs that agents gave in a channel, once so many have ended."""
    sql = "SELECT * FROM queue WHERE channel = ? AND parent_id IS NOT NULL ORDER BY created_at, id"
    ended = f"SELECT 1 FROM ({sql}) AS task GROUP BY channel HAVING count(completed_at) >= ?"
    await maestro.until(ended, channel, count)
    return maestro.query(sql, channel)


async def test_a_delegate_answers_as_itself_after_the_delegator(maestro: Instance, channel: str) -> None:
    maestro.llm.script("what is 2 and 2", reply="Bob knows.\n[DELEGATE:bob]\nadd 2 to 2\n[/DELEGATE]")
    maestro.llm.script("add 2 to 2", reply="It is 4. [MEMORY:learned_pattern] sums are easy [/MEMORY]")
    async with maestro.client(channel, api_key=KEY, user_name="Grace") as client:
        await client.say("@ada what is 2 and 2?")
        assert [await heard(client), await heard(client)] == ["Bob knows.", "It is 4."]
        request = asked(maestro, "add 2 to 2")
        assert "You are the one who counts." in request.texts[0]
        assert "the one who plans" not in "\n".join(request.texts)
        assert (request.model, len(request.texts)) == ("gpt-4.1-mini", 2)
        assert "Grace" in request.last_user
        await client.ask("@ada and what did Bob say?")
    history = asked(maestro, "and what did Bob say")
    told = next(turn for turn in history.asked.turns if "It is 4." in turn.text)
    assert (told.role, "bob" in told.text.lower()) == ("user", True), "the words of another agent are not Ada's own"
    ada, bob = (maestro.query("SELECT id FROM agents WHERE slug = ?", slug)[0]["id"] for slug in ("ada", "bob"))
    facts = maestro.query("SELECT agent_id FROM memory_facts WHERE content = 'sums are easy'")
    assert [fact["agent_id"] for fact in facts] == [bob]
    (task,) = await tasks_of(maestro, channel, 1)
    assert (task["kind"], task["agent_id"], task["depth"], task["priority"]) == ("delegation", bob, 1, 5)
    (conversation,) = maestro.query("SELECT * FROM conversations WHERE channel = ?", channel)
    assert (conversation["agent_id"], conversation["id"]) == (ada, task["conversation_id"])


async def test_a_task_is_a_child_that_outlives_its_parent(maestro: Instance, channel: str) -> None:
    maestro.llm.script("outlive me", reply="Go. [DELEGATE:bob]a task to live with[/DELEGATE]")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada outlive me")
        await heard(client), await heard(client)
    (task,) = await tasks_of(maestro, channel, 1)
    temporal = await maestro.temporal()
    child: WorkflowExecutionDescription = await temporal.get_workflow_handle(task["id"]).describe()
    assert child.parent_id == task["parent_id"]
    assert child.workflow_type == "DelegationWorkflow"
    parent = await temporal.get_workflow_handle(task["parent_id"]).fetch_history()
    policies = [
        event.start_child_workflow_execution_initiated_event_attributes.parent_close_policy
        for event in parent.events
        if event.HasField("start_child_workflow_execution_initiated_event_attributes")
    ]
    assert policies == [2], "ABANDON"


async def test_a_delegator_may_hear_the_result_and_answer_with_it(maestro: Instance, channel: str) -> None:
    maestro.llm.script(
        "price of both", reply="[DELEGATE:bob wait]price of tea[/DELEGATE][DELEGATE:cleo wait]price of rum[/DELEGATE]"
    )
    maestro.llm.script("price of tea\n\nOnly", reply="Tea is 3.")
    maestro.llm.script("price of rum\n\nOnly", reply="Rum is 9.")
    maestro.llm.script("Results of the tasks", reply="Together that is 12.")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada price of both?")
        assert await heard(client) == "I am asking @bob, @cleo."
        assert await heard(client) == "Together that is 12."
        await tasks_of(maestro, channel, 3)
        assert len(said_to(client)) == 2
    (told,) = [one for one in maestro.llm.matching("Results of the tasks") if "Tea is 3." in one.last_user]
    assert "Rum is 9." in told.last_user
    assert "You are the one who plans." in told.texts[0]
    assert "I am asking @bob, @cleo." in told.texts
    assert told.texts.count("Tea is 3.") == 0, "a result is told once"


async def test_a_task_that_fails_is_told_to_who_waits_for_it(maestro: Instance, channel: str) -> None:
    maestro.llm.script("do the impossible", reply="Wait. [DELEGATE:bob wait]square a circle[/DELEGATE]")
    maestro.llm.script("square a circle\n\nOnly", failure=Failure.status(400))
    maestro.llm.script("> square a circle\nThe agent could not finish", reply="Bob could not.")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada do the impossible")
        assert [await heard(client), await heard(client)] == ["Wait.", "Bob could not."]
        failed = next(task for task in await tasks_of(maestro, channel, 2) if task["task"])
        assert failed["status"] == "failed"
        maestro.llm.script("square a circle\n\nOnly", reply="Now I can.")
        maestro.llm.script("Now I can.", reply="Bob could, after all.")
        with maestro.operator() as operator:
            await operator.jobs.replay(failed["id"], ReplayMode.RESUME, "operator")
        assert await heard(client) == "Bob could, after all."
        maestro.change("UPDATE agents SET status = 'paused' WHERE slug = 'bob'")
        with maestro.operator() as operator:
            again = await operator.jobs.replay(failed["id"], ReplayMode.RESTART, "operator")
        assert await heard(client) == "Bob could not.", "who waits for the result tells of it, and nobody else"
        maestro.change("UPDATE agents SET status = 'active' WHERE slug = 'bob'")
        await tasks_of(maestro, channel, 5)
        assert len(said_to(client)) == 4
        with maestro.operator() as operator, pytest.raises(Conflict, match=again):
            await operator.jobs.replay(failed["id"], ReplayMode.RESUME, "operator")


async def test_a_message_is_restarted_when_its_tasks_are_done_and_replaces_what_came_of_them(
    maestro: Instance, channel: str
) -> None:
    maestro.llm.script("once more", reply="Bob will. [DELEGATE:bob]sing[/DELEGATE]")
    maestro.llm.script("> sing\n", failure=Failure.silence(), times=1)
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada once more")
        assert await heard(client) == "Bob will."
        await maestro.asked("> sing\n")
        (task,) = maestro.query("SELECT * FROM queue WHERE channel = ? AND task = 'sing'", channel)
        with maestro.operator() as operator:
            with pytest.raises(Conflict, match=task["id"]):
                await operator.jobs.replay(task["parent_id"], ReplayMode.RESTART, "operator")
            await operator.jobs.cancel(task["id"], "operator")
            await tasks_of(maestro, channel, 1)
            maestro.llm.script("> sing\n", reply="La la.")
            await operator.jobs.replay(task["id"], ReplayMode.RESUME, "operator")
            assert await heard(client) == "La la."
            await tasks_of(maestro, channel, 1)
            await operator.jobs.replay(task["parent_id"], ReplayMode.RESTART, "operator")
        assert [await heard(client), await heard(client)] == ["Bob will.", "La la."]
        await tasks_of(maestro, channel, 2)
    said = maestro.query(
        "SELECT superseded FROM messages JOIN queue ON queue.id = job_id WHERE channel = ? AND role = 'assistant' "
        "ORDER BY messages.id",
        channel,
    )
    assert [row["superseded"] for row in said] == [1, 1, 0, 0]


@pytest.mark.parametrize("way", ["/stop", "cancel"])
async def test_who_says_stop_hears_no_more_and_who_did_not_hears_of_a_cancelled_task(
    maestro: Instance, channel: str, way: str
) -> None:
    task = f"never end {way[1:]}"
    maestro.llm.script(f"begin {way[1:]}", reply=f"[DELEGATE:bob wait]{task}[/DELEGATE]")
    maestro.llm.script(f"> {task}\n\nOnly", failure=Failure.silence())
    maestro.llm.script(f"> {task}\nThe agent could not finish this (cancelled)", reply="Bob was called away.")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say(f"@ada begin {way[1:]}")
        assert await heard(client) == "I am asking @bob."
        await maestro.asked(f"> {task}\n\nOnly")
        if way == "cancel":
            (job,) = maestro.query("SELECT id FROM queue WHERE channel = ? AND task = ?", channel, task)
            with maestro.operator() as operator:
                await operator.jobs.cancel(job["id"], "operator")
            assert await heard(client) == "Bob was called away."
            return
        await client.say("/stop")
        assert await heard(client) == "Stopped."
        (ended,) = await tasks_of(maestro, channel, 1)
        assert ended["status"] == "cancelled"
        assert await client.ask("@ada and now?") == "answer to: @ada and now?"
        assert len(await tasks_of(maestro, channel, 1)) == 1


async def test_a_circle_ends_with_a_clear_note(maestro: Instance, channel: str) -> None:
    maestro.llm.script("round we go", reply="To Bob. [DELEGATE:bob]first lap[/DELEGATE]")
    maestro.llm.script("first lap", reply="Back to Ada. [DELEGATE:ada]second lap[/DELEGATE]")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada round we go")
        assert await heard(client) == "To Bob."
        answer = await heard(client)
        assert answer.startswith("Back to Ada.\n\n")
        assert "@ada" in answer
        assert "circle" in answer
        (task,) = await tasks_of(maestro, channel, 1)
        assert len(said_to(client)) == 2
    (action,) = maestro.query("SELECT * FROM actions WHERE job_id = ?", task["id"])
    assert (action["tag"], action["subject"], action["state"]) == ("DELEGATE", "ada", "refused")


@pytest.mark.parametrize(
    ("tag", "note"),
    [
        ("[DELEGATE:nobody]find yourself[/DELEGATE]", "there is no agent @nobody"),
        ("[DELEGATE:ada]think[/DELEGATE]", "cannot give a task to itself"),
        ("[DELEGATE:bob][/DELEGATE]", "the task was empty"),
        ("[DELEGATE:bob] never ends", "its closing tag is missing"),
        ("[DELEGATE:eve]whisper[/DELEGATE]", "may not talk to that agent"),
    ],
)
async def test_a_task_for_nobody_is_told_and_not_given(maestro: Instance, channel: str, tag: str, note: str) -> None:
    maestro.llm.script(channel, reply=f"Well. {tag}")
    async with maestro.client(channel, api_key=KEY) as client:
        answer = await client.ask(f"@ada {channel}")
        assert answer.startswith("Well.\n\n")
        assert note in answer
        assert "[" not in answer
    assert len(maestro.jobs(channel)) == 1


async def test_a_task_is_handed_on_three_times_at_most(maestro: Instance, channel: str) -> None:
    for said, slug in (("step 0", "bob"), ("step 1", "cleo"), ("step 2", "dan"), ("step 3", "conductor")):
        maestro.llm.script(said, reply=f"done {said} [DELEGATE:{slug}]step {int(said[-1]) + 1}[/DELEGATE]")
    maestro.change("UPDATE agents SET status = 'active' WHERE slug = 'conductor'")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada step 0")
        answers = [await heard(client) for _ in range(4)]
    assert answers[:3] == ["done step 0", "done step 1", "done step 2"]
    assert answers[3].startswith("done step 3\n\nThe task was not passed on")
    assert [task["depth"] for task in await tasks_of(maestro, channel, 3)] == [1, 2, 3]


async def test_a_delegate_may_ask_its_own_and_reports_with_what_came_of_it(maestro: Instance, channel: str) -> None:
    maestro.llm.script("the long way", reply="[DELEGATE:bob wait]outer task[/DELEGATE]")
    maestro.llm.script("outer task\n\nOnly", reply="[DELEGATE:cleo wait]inner task[/DELEGATE]")
    maestro.llm.script("inner task\n\nOnly", reply="inner result")
    maestro.llm.script("inner result", reply="outer result")
    maestro.llm.script("outer result", reply="final result")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada the long way")
        assert [await heard(client), await heard(client)] == ["I am asking @bob.", "final result"]
        await tasks_of(maestro, channel, 4)
        assert len(said_to(client)) == 2


async def test_the_job_shows_what_it_led_to_and_what_came_of_its_tags(maestro: Instance, channel: str) -> None:
    maestro.llm.script("show me", reply="[STATE:mood] fine [/STATE] Yes. [DELEGATE:bob]a visible task[/DELEGATE]")
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("@ada show me")
        await heard(client), await heard(client)
    (task,) = await tasks_of(maestro, channel, 1)
    async with httpx.AsyncClient(base_url=f"http://localhost:{PORT}", auth=("maestro", "the operator's own")) as api:
        parent = (await api.get(f"/api/jobs/{task['parent_id']}")).json()
        child = (await api.get(f"/api/jobs/{task['id']}")).json()
    assert parent["ledTo"] == [task["id"]]
    assert [(one["tag"], one["subject"], one["state"]) for one in parent["actions"]] == [
        ("STATE", "mood", "done"),
        ("DELEGATE", "bob", "done"),
    ]
    assert (child["parentId"], child["task"], child["kind"]) == (task["parent_id"], "a visible task", "delegation")
