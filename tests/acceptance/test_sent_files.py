"""Files that agents send, and buttons below what they ask, from the model's call to the person's client."""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.tools import NOT_MADE_IN_WHAT_IF
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port
from tests.support.web_client import WebClient, web_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("sent-files")]

KEY = "a key that makes its holder a user and not the owner"
WRITE = ("write_file", '{"path": "out/costs.csv", "content": "a,b\\n1,2\\n"}')
SEND = ("send_file", '{"path": "out/costs.csv", "caption": "The costs"}')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    tools = ["write_file", "send_file", "ask_question"]
    async with running_instance(
        tmp_path_factory.mktemp("files"),
        web={"apiKey": KEY},
        webui={"enabled": True, "port": free_port(), "password": "the operator's own"},
        agents=[{"slug": "conductor", "role": "conductor", "tools": tools}],
        tools={"files": True, "approval": ["write_file"], "approvers": []},
        owner={"ids": ["web:nobody"]},
    ) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def person(maestro: Instance, channel: str) -> AbstractAsyncContextManager[WebClient]:
    """Connect as somebody who is not an owner."""
    return maestro.client(channel, api_key=KEY)


def workspace(maestro: Instance, channel: str) -> Path:
    """Return the folder of a channel's conversation, made as a tool would."""
    (row,) = maestro.query("SELECT id FROM conversations WHERE channel = ?", channel)
    folder = maestro.data_dir / "workspaces" / str(row["id"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def test_a_file_comes_after_the_answer_and_is_fetched_by_whose_it_is(maestro: Instance, channel: str) -> None:
    maestro.llm.script("begin", reply="begun")
    maestro.llm.script("send me the costs", calls=(SEND, SEND), rounds=0)
    maestro.llm.script("send me the costs", reply="Here they are: {results}", rounds=1)
    async with person(maestro, channel) as grace:
        await grace.ask("begin")
        (workspace(maestro, channel) / "out").mkdir()
        (workspace(maestro, channel) / "out" / "costs.csv").write_text("a,b\n1,2\n")
        answer = await grace.ask("send me the costs")
        frame = await grace.wait_for("message")
    assert answer.startswith("Here they are: costs.csv (8 bytes) goes out after your answer.")
    assert frame["content"] == "The costs"
    file = frame["file"]
    assert (file["filename"], file["contentType"], file["size"]) == ("costs.csv", "text/csv", 8)
    url = f"http://127.0.0.1:{maestro.loaded.settings.web.port}{file['url']}"
    async with httpx.AsyncClient() as http:
        fetched = await http.get(url, headers={"Authorization": f"Bearer {grace.resume_token}"})
        assert (fetched.status_code, fetched.text) == (200, "a,b\n1,2\n")
        assert (await http.get(url)).status_code == 401
    port, token = maestro.loaded.settings.web.port, grace.resume_token
    async with web_client(port, resumeToken=token, channelId=channel, lastId=0) as again:
        frames = [await again.wait_for("message") for _ in range(3)]
    assert frames[-1] == frame


async def test_what_cannot_be_sent_is_told_to_the_model(maestro: Instance, channel: str) -> None:
    maestro.llm.script("send what is not there", calls=(SEND,), rounds=0)
    maestro.llm.script("send what is not there", reply="It came to: {results}", rounds=1)
    async with person(maestro, channel) as grace:
        assert "The file cannot be sent" in await grace.ask("send what is not there")
    assert (
        maestro.query("SELECT id FROM job_files WHERE job_id IN (SELECT id FROM queue WHERE channel = ?)", channel)
        == []
    )


async def test_trying_out_sends_nothing(maestro: Instance, channel: str) -> None:
    maestro.llm.script("try to send", reply="not yet")
    async with person(maestro, channel) as grace:
        await grace.ask("try to send")
    (workspace(maestro, channel) / "out").mkdir()
    (workspace(maestro, channel) / "out" / "costs.csv").write_text("a,b\n")
    maestro.llm.script("try to send", calls=(SEND,), rounds=0)
    maestro.llm.script("try to send", reply="tried: {results}", rounds=1)
    (job,) = maestro.query("SELECT id FROM queue WHERE channel = ?", channel)
    with maestro.operator() as operator:
        tried = await operator.jobs.replay(job["id"], ReplayMode.WHAT_IF, "ada")
    await maestro.until("SELECT id FROM queue WHERE id = ? AND status = 'completed'", tried)
    assert maestro.llm.matching("try to send")[-1].results == [("send_file", NOT_MADE_IN_WHAT_IF)]
    assert maestro.query("SELECT id FROM job_files WHERE job_id = ?", tried) == []


async def test_a_question_with_choices_has_buttons_whose_value_answers_it(maestro: Instance, channel: str) -> None:
    arguments = '{"question": "Which colour?", "choices": ["Red", "Dark blue"]}'
    maestro.llm.script("paint the boat", calls=(("ask_question", arguments),), rounds=0)
    maestro.llm.script("paint the boat", reply="It came to: {results}", rounds=1)
    async with person(maestro, channel) as grace:
        await grace.say("paint the boat")
        asked = await grace.wait_for("message")
        assert [button["label"] for button in asked["buttons"]] == ["Red", "Dark blue"]
        await grace.say(asked["buttons"][1]["value"])
        answer = await grace.wait_for("message")
    assert (answer["content"], "buttons" in answer) == ("It came to: Dark blue", False)


async def test_an_approval_has_two_buttons_and_who_may_not_decide_is_told_so(maestro: Instance, channel: str) -> None:
    maestro.llm.script("write the costs", calls=(WRITE,), rounds=0)
    maestro.llm.script("write the costs", reply="It came to: {results}", rounds=1)
    async with person(maestro, channel) as grace:
        await grace.say("write the costs")
        asked = await grace.wait_for("message")
        assert [button["label"] for button in asked["buttons"]] == ["Approve", "Deny"]
        number = re.search(r"#(\d+)", asked["buttons"][0]["value"])
        assert number is not None
        assert asked["buttons"][1]["value"] == f"no #{number[1]}"
        told = await grace.ask(asked["buttons"][0]["value"])
        assert told == f"Only an owner or an approver may decide about #{number[1]}."
