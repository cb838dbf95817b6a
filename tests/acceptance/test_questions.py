"""A job asks a person and waits outside its lane, days if need be; approvals are for the listed.

See docs/decisions.md: questions.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from maestro.domain.jobs.job import CANCELLED_NOTICE
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import OutgoingMessage
from maestro.domain.people.people import PersonId
from tests.support.command import Ended
from tests.support.command import maestro as command
from tests.support.instance import Instance, Row, running_instance
from tests.support.ports import free_port
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("questions")]

KEY = "a key that makes its holder a user and not the owner"
PASSWORD = "the operator's own"
LONG = 60.0
SHORT_HOURS = 1.5 / 3600


@dataclass
class Shop:
    """A server outside, where each visit has an effect that can be counted."""

    port: int = 0
    visits: int = 0

    @property
    def url(self) -> str:
        """What a tool is to fetch."""
        return f"http://127.0.0.1:{self.port}/order"

    async def visit(self, _: web.Request) -> web.Response:
        """Count a visit."""
        self.visits += 1
        return web.Response(text="ordered")


@asynccontextmanager
async def open_shop() -> AsyncIterator[Shop]:
    """Run a server for the length of a block."""
    shop, app = Shop(), web.Application()
    app.router.add_get("/order", shop.visit)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shop.port = runner.addresses[0][1]
    try:
        yield shop
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(
        tmp_path_factory.mktemp("questions"),
        web={"apiKey": KEY},
        webui={"enabled": True, "port": free_port(), "password": PASSWORD},
        tools={"approval": ["http_fetch"], "privateHosts": ["127.0.0.1"]},
    ) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def user(maestro: Instance, channel: str) -> AbstractAsyncContextManager[WebClient]:
    """Connect as somebody who is not an owner."""
    return maestro.client(channel, api_key=KEY)


def scripted(maestro: Instance, about: str, tool: str, arguments: dict[str, object], delay: float = 0) -> None:
    """Have the model call a tool when it hears this, and then tell what came of it."""
    maestro.llm.script(match=about, calls=[(tool, arguments)], rounds=0, delay=delay)
    maestro.llm.script(match=about, reply="It came to: {results}", rounds=1)


async def asked(maestro: Instance, client: WebClient, about: str, question: str) -> Row:
    """Say something that makes the model ask; return the job once the question was heard and the job waits."""
    scripted(maestro, about, "ask_question", {"question": question})
    await client.say(about)
    await heard(client, question)
    return await waiting(maestro, client.channel)


async def wanted(maestro: Instance, client: WebClient, about: str, shop: Shop) -> tuple[Row, int]:
    """Say something that makes the model call a tool that needs a yes; return the waiting job and the number."""
    scripted(maestro, about, "http_fetch", {"url": shop.url})
    await client.say(about)
    text = await heard(client, "May I call the tool http_fetch?")
    assert shop.url in text
    found = re.search(r"yes #(\d+)", text)
    assert found is not None
    return await waiting(maestro, client.channel), int(found[1])


async def heard(client: WebClient, words: str) -> str:
    """Return the next message that contains these words."""
    while True:
        content = str((await client.wait_for("message", patience=LONG))["content"])
        if words in content:
            return content


async def waiting(maestro: Instance, channel: str) -> Row:
    (job,) = await maestro.until("SELECT * FROM queue WHERE channel = ? AND status = 'waiting'", channel)
    return job


async def ended(maestro: Instance, job: Row, status: str) -> Row:
    (row,) = await maestro.until("SELECT * FROM queue WHERE id = ? AND status = ?", job["id"], status)
    return row


def running(maestro: Instance, channel: str) -> list[Row]:
    """Return the job that holds the lane of a channel."""
    return maestro.query("SELECT * FROM queue WHERE channel = ? AND lane <> '' AND status = 'running'", channel)


def question_of(maestro: Instance, job: Row) -> Row:
    (question,) = maestro.query("SELECT * FROM questions WHERE job_id = ?", job["id"])
    return question


def results(maestro: Instance, about: str) -> list[tuple[str, str]]:
    """Return what the model was told of its tool calls the last time it was asked."""
    return maestro.llm.matching(about)[-1].results


def api(maestro: Instance) -> httpx.AsyncClient:
    """Talk to the API as the operator."""
    port = maestro.loaded.settings.webui.port
    return httpx.AsyncClient(base_url=f"http://localhost:{port}", auth=("maestro", PASSWORD))


async def cli(maestro: Instance, *arguments: str) -> str:
    """Use the command beside the running Maestro."""
    config = ("--config", str(maestro.config_file))
    ran = await command("questions", *arguments, *config, folder=maestro.data_dir.parent)
    assert (ran.code, ran.errors) == (0, "")
    return ran.output


# Questions


async def test_an_answer_is_not_queued_behind_the_lane_which_goes_on_meanwhile(maestro: Instance, channel: str) -> None:
    answered = asyncio.Event()

    async def hold(message: OutgoingMessage) -> None:
        if message.content == "the other answer":
            await answered.wait()

    async with user(maestro, channel) as grace:
        maestro.taps.after[channel] = hold
        scripted(maestro, "paint the shed", "ask_question", {"question": "Which colour?"}, delay=1)
        maestro.llm.script(match="meanwhile", reply="the other answer")
        await grace.say("paint the shed")
        await grace.say("meanwhile")
        await heard(grace, "Which colour?")
        await heard(grace, "the other answer")
        job = await waiting(maestro, channel)
        await grace.say("dark blue", "the-answer")
        question, (behind,) = question_of(maestro, job), running(maestro, channel)
        assert (question["status"], question["answer"]) == ("answered", "dark blue")
        assert behind["id"] != job["id"], "the lane is taken, and the answer did not wait for it"
        answered.set()
        assert await heard(grace, "It came to") == "It came to: dark blue"
        assert grace.frames[-1]["replyTo"].endswith(":the-answer")

        answer = maestro.query("SELECT * FROM queue WHERE reason = ?", f"answers question #{question['id']}")
        assert [(row["lane"], row["status"]) for row in answer] == [(None, "completed")]
        assert results(maestro, "paint the shed") == [("ask_question", "dark blue")]
        assert (await ended(maestro, job, "completed"))["run"] == 2
        assert len(maestro.llm.matching("paint the shed")) == 2, "the first call was not made again"


async def test_the_number_of_a_choice_is_an_answer(maestro: Instance, channel: str) -> None:
    arguments: dict[str, object] = {"question": "Which flag?", "choices": ["Red", "Dark blue"]}
    scripted(maestro, "hoist a flag", "ask_question", arguments)
    async with user(maestro, channel) as grace:
        await grace.say("hoist a flag")
        text = await heard(grace, "Which flag?")
        assert text.endswith("Answer with a number or your own words:\n1. Red\n2. Dark blue")
        job = await waiting(maestro, channel)
        await grace.say(f"2 #{question_of(maestro, job)['id']}")
        assert await heard(grace, "It came to") == "It came to: Dark blue"


async def test_an_operator_answers_over_the_api(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as grace, api(maestro) as http:
        job = await asked(maestro, grace, "name the boat", "Which name?")
        (listed,) = [
            one for one in (await http.get("/api/questions?status=open")).json()["items"] if one["jobId"] == job["id"]
        ]
        assert (listed["text"], listed["askedOf"]) == ("Which name?", f"web:{grace.user}")
        answer = await http.post(f"/api/questions/{listed['id']}/answer", json={"answer": "Calypso"})
        assert answer.json()["answeredBy"] == "operator"
        assert await heard(grace, "It came to") == "It came to: Calypso"
        again = await http.post(f"/api/questions/{listed['id']}/answer", json={"answer": "Argo"})
        assert again.status_code == 409


async def test_an_operator_answers_from_the_command_line(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as grace:
        job = await asked(maestro, grace, "pick a day", "Which day?")
        number = str(question_of(maestro, job)["id"])
        assert "Which day?" in await cli(maestro, "show", number)
        assert job["id"] in await cli(maestro, "answer", number, "Friday")
        assert await heard(grace, "It came to") == "It came to: Friday"


async def test_a_stop_ends_the_job_that_waits_and_a_resume_asks_again(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as grace:
        job = await asked(maestro, grace, "plant a tree", "Which tree?")
        number = question_of(maestro, job)["id"]
        assert await grace.ask("/status", patience=LONG) == f"Nothing is running here. #{number} waits for an answer."
        assert await grace.ask("/stop", patience=LONG) == "Stopped."
        await ended(maestro, job, "cancelled")
        assert question_of(maestro, job)["status"] == "cancelled"
        late = await grace.ask(f"#{number} an oak", patience=LONG)
        assert late.startswith(f"#{number} was cancelled.")

        with maestro.operator() as operator:
            await operator.jobs.replay(job["id"], ReplayMode.RESUME, "ada")
        await heard(grace, "Which tree?")
        await waiting(maestro, channel)
        await grace.say(f"#{number} a beech")
        assert await heard(grace, "It came to") == "It came to: a beech"


async def test_an_operator_cancels_the_job_that_waits(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as grace:
        job = await asked(maestro, grace, "buy a horse", "Which horse?")
        with maestro.operator() as operator:
            await operator.jobs.cancel(job["id"], "ada")
        await ended(maestro, job, "cancelled")
        assert question_of(maestro, job)["status"] == "cancelled"
        assert (await grace.wait_for("message"))["content"] == CANCELLED_NOTICE
        assert await grace.ask("never mind", patience=LONG) == "answer to: never mind"


async def test_a_terminal_shows_the_question_and_answers_it_with_the_next_call(maestro: Instance) -> None:
    scripted(maestro, "book a table", "ask_question", {"question": "For how many?"})
    first = await chat(maestro, "book a table")
    assert (first.code, first.output) == (1, "")
    assert "For how many?" in first.errors
    second = await chat(maestro, "for two")
    assert (second.code, second.output, second.errors) == (0, "It came to: for two\n", "")


async def chat(maestro: Instance, text: str) -> Ended:
    """Say one thing with ``maestro chat``."""
    folder = maestro.data_dir.parent
    environment = {"XDG_STATE_HOME": str(folder / "state")}
    return await command("chat", text, "--config", str(maestro.config_file), folder=folder, environment=environment)


# Approvals


async def test_who_is_not_on_the_list_decides_nothing_and_an_owner_runs_the_tool_once(
    maestro: Instance, channel: str
) -> None:
    async with open_shop() as shop, user(maestro, channel) as grace:
        job, number = await wanted(maestro, grace, "order the books", shop)
        refused = await grace.ask("yes", patience=LONG)
        assert refused == f"Only an owner or an approver may decide about #{number}."
        assert question_of(maestro, job)["status"] == "open"
        assert await grace.ask("what would it do?", patience=LONG) == "answer to: what would it do?"
        assert shop.visits == 0

        with make_owner(maestro, grace.user):
            assert await grace.ask("yes", patience=LONG) == f"Approved: #{number}."
            assert "ordered" in await heard(grace, "It came to")
        await ended(maestro, job, "completed")
        assert shop.visits == 1
        log = maestro.query("SELECT actor, action FROM audit_log WHERE subject = ? ORDER BY id", str(number))
        who = f"web:{grace.user}"
        assert [tuple(row) for row in log] == [(who, "question.refused"), (who, "question.approve")]


async def test_an_owner_who_is_elsewhere_decides_by_the_number(maestro: Instance, channel: str) -> None:
    async with open_shop() as shop, user(maestro, channel) as grace, user(maestro, f"{channel}-2") as boss:
        job, number = await wanted(maestro, grace, "order the chairs", shop)
        with make_owner(maestro, boss.user):
            assert await boss.ask(f"yes #{number}", patience=LONG) == f"Approved: #{number}."
        assert "ordered" in await heard(grace, "It came to")
        await ended(maestro, job, "completed")
        assert shop.visits == 1


async def test_nobody_is_asked_about_a_call_that_is_not_made_any_more(maestro: Instance, channel: str) -> None:
    about, url = "order from who is gone", f"http://127.0.0.1:{free_port()}/"
    for number in range(4):
        maestro.llm.script(match=about, calls=[("http_fetch", {"url": url})], rounds=number)
    maestro.llm.script(match=about, reply="It came to: {results}", rounds=4)
    async with user(maestro, channel) as grace:
        await grace.say(about)
        for _ in range(3):
            found = re.search(r"yes #(\d+)", await heard(grace, "May I call the tool http_fetch?"))
            assert found is not None
            await cli(maestro, "approve", found[1])
        assert "failed three times in a row" in await heard(grace, "It came to")
        (job,) = maestro.query("SELECT * FROM queue WHERE channel = ? AND lane <> ''", channel)
        states = maestro.query("SELECT state FROM tool_calls WHERE job_id = ? ORDER BY number", job["id"])
        assert [row["state"] for row in states] == ["failed", "failed", "failed", "refused"]
        assert len(maestro.query("SELECT 1 FROM questions WHERE job_id = ?", job["id"])) == 3


async def test_a_no_is_told_to_the_model_and_nothing_runs(maestro: Instance, channel: str) -> None:
    async with open_shop() as shop, user(maestro, channel) as grace:
        job, number = await wanted(maestro, grace, "order the lamps", shop)
        await cli(maestro, "deny", str(number))
        assert "A person said no" in await heard(grace, "It came to")
        ((tool, said),) = results(maestro, "order the lamps")
        assert (tool, said.startswith("A person said no")) == ("http_fetch", True)
        await ended(maestro, job, "completed")
        assert shop.visits == 0


@contextlib.contextmanager
def make_owner(maestro: Instance, user_id: str) -> Iterator[None]:
    """Have somebody be an owner for the length of a block."""
    person = PersonId("web", user_id)
    with maestro.operator() as operator, operator.store.begin() as tx:
        tx.users.owners.add_owner(person, "ada")
    try:
        yield
    finally:
        with maestro.operator() as operator, operator.store.begin() as tx:
            tx.users.owners.remove_owner(person)


# Time


async def test_a_question_survives_a_restart_and_nobody_is_asked_twice(tmp_path: Path) -> None:
    async with running_instance(tmp_path) as instance:
        async with instance.client("den") as grace:
            job = await asked(instance, grace, "wake me", "When?")
        await instance.restart()
        assert (await waiting(instance, "den"))["id"] == job["id"]
        number = question_of(instance, job)["id"]
        assert job["id"] in await cli(instance, "answer", str(number), "at seven")
        await ended(instance, job, "completed")
        assert results(instance, "wake me") == [("ask_question", "at seven")]
        assert len(instance.query("SELECT * FROM deliveries WHERE content = 'When?'")) == 1
        assert len(instance.llm.matching("wake me")) == 2, "the first call was not made again"


async def test_when_nobody_answers_in_time_the_model_is_told(tmp_path: Path) -> None:
    async with (
        running_instance(tmp_path, questions={"expiryHours": SHORT_HOURS}) as instance,
        instance.client("den") as grace,
    ):
        scripted(instance, "call the plumber", "ask_question", {"question": "Which one?"})
        await grace.say("call the plumber")
        await heard(grace, "Which one?")
        assert await heard(grace, "It came to") == "It came to: No person answered in time."
        (question,) = await instance.until("SELECT * FROM questions WHERE status = 'expired'")
        await ended(instance, instance.jobs("den")[0], "completed")
        late = await grace.ask(f"#{question['id']} the old one", patience=LONG)
        assert late.startswith(f"#{question['id']} has expired.")
