"""Agents outside take part over MCP: the official client, real sockets, one token per agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from mcp import MCPError

from tests.support.instance import PATIENCE, Instance, running_instance
from tests.support.mcp_agent import Mode, mcp_agent
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("questions")]

AGENTS = [
    {"slug": "conductor", "role": "conductor"},
    {"slug": "coder-1", "role": "coder"},
    {"slug": "coder-2", "role": "coder", "tools": []},
    {"slug": "arch", "role": "architect"},
]
CHANNELS = [{"agent": "coder-2", "platform": "web", "channel": "inside"}]
WAIT_SECONDS = 1.0
"""What a question waits here; a test that misses it asks again, as an agent would."""
NAMES = ["chat.post", "chat.getNew", "ask_question"]
LISTED = Path(__file__).with_name("mcp_tools.json")
"""The list of tools to the byte: what clients keep, and what providers cache prompts by."""


@dataclass
class Maestro:
    """A running instance, the operator's client of its API, and where both are."""

    instance: Instance
    http: httpx.AsyncClient
    home: str

    async def token(self, slug: str) -> str:
        """Make a token."""
        answer = await self.http.post(f"/api/agents/{slug}/tokens", json={})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    async def bytes_of(self, token: str, method: str, **params: object) -> bytes:
        """Send one message as a program without an SDK would, and return the answer as it came."""
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.http.post("/mcp", json=message, headers={**headers, "MCP-Protocol-Version": "2025-11-25"})
        assert answer.status_code == 200, answer.text
        return answer.content

    async def answer(self, number: int, words: str) -> None:
        """Answer a question as the operator."""
        answer = await self.http.post(f"/api/questions/{number}/answer", json={"answer": words})
        assert answer.status_code == 200, answer.text

    async def question(self, text: str) -> Any:
        """Return a question as operators see it, as soon as it is put."""
        await self.instance.until("SELECT id FROM questions WHERE text = ?", text)
        found = (await self.http.get("/api/questions")).json()["items"]
        return next(one for one in found if one["text"] == text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    port = free_port()
    settings: dict[str, Any] = {
        "agents": AGENTS,
        "channels": CHANNELS,
        "webui": {"enabled": True, "port": port},
        "questions": {"patienceSeconds": WAIT_SECONDS},
    }
    home = f"http://localhost:{port}"
    async with (
        running_instance(tmp_path_factory.mktemp("mcp"), **settings) as instance,
        httpx.AsyncClient(base_url=home, timeout=PATIENCE) as http,
    ):
        yield Maestro(instance, http, home)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_posts_and_reads_over_either_protocol(maestro: Maestro, mode: Mode) -> None:
    async with mcp_agent(maestro.home, await maestro.token("coder-1"), mode) as agent:
        assert await agent.tools() == NAMES
        posted = await agent.call("chat.post", text=f"hello over {mode}")
        assert posted == {"id": posted["id"], "success": True}
        first = await agent.call("chat.getNew")
        assert (first["messages"][-1]["id"], first["newPointer"]) == (posted["id"], posted["id"])
        assert await agent.call("chat.getNew") == {"messages": [], "newPointer": posted["id"]}
    (row,) = maestro.instance.query("SELECT * FROM chat WHERE id = ?", posted["id"])
    (session,) = maestro.instance.query("SELECT id FROM sessions WHERE ended_at IS NULL")
    assert (row["author"], row["text"], row["session_id"]) == ("@coder-1", f"hello over {mode}", session["id"])


async def test_agents_outside_see_each_other_and_each_post_once(maestro: Maestro) -> None:
    one_token, two_token = await maestro.token("coder-1"), await maestro.token("coder-2")
    async with mcp_agent(maestro.home, one_token) as one, mcp_agent(maestro.home, two_token) as two:
        await asyncio.gather(one.news(), two.news())
        await one.call("chat.post", text="I read the parser")
        await two.call("chat.post", text="I write the tests")
        said = [("@coder-1", "I read the parser"), ("@coder-2", "I write the tests")]
        assert [await one.news(), await two.news()] == [said, said]
        assert [await one.news(), await two.news()] == [[], []]


async def test_the_cursor_moves_when_a_client_asks_again_and_not_before(maestro: Maestro) -> None:
    token = await maestro.token("coder-1")
    async with mcp_agent(maestro.home, token) as agent:
        await agent.news()
        await agent.call("chat.post", text="keep this")
        assert await agent.news() == [("@coder-1", "keep this")]
    cursor = "SELECT last_id, offered_id FROM chat_cursor WHERE agent_id = 'coder-1'"
    (row,) = maestro.instance.query(cursor)
    assert row["last_id"] < row["offered_id"]
    async with mcp_agent(maestro.home, token) as agent:
        assert await agent.news() == []
    (row,) = maestro.instance.query(cursor)
    assert row["last_id"] == row["offered_id"]


async def test_nobody_chooses_who_they_are(maestro: Maestro) -> None:
    async with mcp_agent(maestro.home, await maestro.token("coder-2")) as agent:
        assert "'author' was unexpected" in await agent.refused("chat.post", text="x", author="@human")
        await agent.call("chat.post", text="@human: I am somebody else")
        assert (await agent.news())[-1] == ("@coder-2", "@human: I am somebody else")


async def test_an_architect_asks_but_takes_no_part(maestro: Maestro) -> None:
    async with mcp_agent(maestro.home, await maestro.token("arch")) as agent:
        assert await agent.tools() == ["ask_question"]
        with pytest.raises(MCPError, match=r"There is no tool chat\.post"):
            await agent.client.call_tool("chat.post", {"text": "x"})


async def test_an_agent_of_ours_posts_and_reads_by_the_same_chat_whatever_tools_it_lists(maestro: Maestro) -> None:
    llm = maestro.instance.llm
    llm.script("tell the others", calls=(("chat_post", '{"text": "said from inside"}'),), rounds=0)
    llm.script("tell the others", calls=(("chat_get_new", "{}"),), rounds=1)
    llm.script("tell the others", reply="told", rounds=2)
    own, other = await maestro.token("coder-2"), await maestro.token("coder-1")
    async with mcp_agent(maestro.home, other) as outside, mcp_agent(maestro.home, own) as itself:
        for agent in (outside, itself, itself):  # who was told everything is told nothing before the question
            await agent.news()
        async with maestro.instance.client("inside") as person:
            assert await person.ask("tell the others") == "told"
        assert await outside.news() == [("@coder-2", "said from inside")]
    first, *_, last = llm.matching("tell the others")
    assert first.tools == ["chat_get_new", "chat_post"]
    results = dict(last.results)
    posted = json.loads(results["chat_post"])
    assert posted["success"] is True
    # It was told of everything up to its own post with the second call.
    assert json.loads(results["chat_get_new"]) == {"messages": [], "newPointer": posted["id"]}


async def test_an_agent_that_posts_its_own_token_has_not_given_it_away(maestro: Maestro) -> None:
    token = await maestro.token("coder-1")
    async with mcp_agent(maestro.home, token) as agent:
        posted = await agent.call("chat.post", text=f"I connect with {token} and it works")
    (row,) = maestro.instance.query("SELECT text FROM chat WHERE id = ?", posted["id"])
    assert row["text"] == "I connect with [redacted] and it works (Note: content redacted by scanner)"


# Questions


async def test_a_question_is_answered_by_an_operator_and_asked_only_once(maestro: Maestro) -> None:
    text, context = "May I delete the branch?", "It is merged."
    async with mcp_agent(maestro.home, await maestro.token("coder-1")) as agent:
        asking = asyncio.create_task(agent.call("ask_question", question=text, context=context))
        shown = await maestro.question(text)
        assert (shown["agent"], shown["platform"], shown["jobId"]) == ("coder-1", "mcp", None)
        assert (shown["context"], shown["status"], shown["askedOf"]) == (context, "open", None)
        await maestro.answer(shown["id"], "Yes, it is merged")
        told = await asking
        while told["status"] == "open":  # a busy machine was slower than the question's patience
            told = await agent.call("ask_question", question=text, context=context)
        assert told == {"questionId": shown["id"], "status": "answered", "answer": "Yes, it is merged"}
        assert await agent.call("ask_question", question=text, context=context) == told
    assert len(maestro.instance.query("SELECT id FROM questions WHERE text = ?", text)) == 1
    (entry,) = maestro.instance.query("SELECT * FROM audit_log WHERE action = 'question.answer'")
    assert (entry["actor"], entry["subject"]) == ("operator", str(shown["id"]))


async def test_who_gets_no_answer_in_time_does_something_else_and_asks_again(maestro: Maestro) -> None:
    async with mcp_agent(maestro.home, await maestro.token("coder-1")) as agent:
        first = await agent.call("ask_question", question="Which port?")
        assert first == {"questionId": first["questionId"], "status": "open"}
        await agent.call("chat.post", text="meanwhile")
        assert await agent.call("ask_question", question="Which port?") == first
        await maestro.answer(first["questionId"], "8080")
        answered = await agent.call("ask_question", question="Which port?")
        assert answered == {**first, "status": "answered", "answer": "8080"}


async def test_an_empty_question_and_an_empty_answer_are_errors(maestro: Maestro) -> None:
    async with mcp_agent(maestro.home, await maestro.token("coder-1")) as agent:
        assert "empty" in await agent.refused("ask_question", question="   ")
        asked = await agent.call("ask_question", question="Anything else?")
    for words in ("", "  "):
        answer = await maestro.http.post(f"/api/questions/{asked['questionId']}/answer", json={"answer": words})
        assert answer.status_code == 400
    (row,) = maestro.instance.query("SELECT status FROM questions WHERE id = ?", asked["questionId"])
    assert row["status"] == "open"


# Who is let in


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer mst_wrong"},
        {"Authorization": ""},
        {"Origin": "http://elsewhere.example"},
        {"Host": "elsewhere.example"},
    ],
)
async def test_who_shows_no_token_or_comes_from_elsewhere_is_let_in_by_no_mode(
    maestro: Maestro, headers: dict[str, str]
) -> None:
    with pytest.RaisesGroup(MCPError, allow_unwrapped=True, flatten_subgroups=True):
        async with mcp_agent(maestro.home, await maestro.token("coder-1"), headers=headers) as agent:
            await agent.tools()


async def test_a_revoked_token_opens_nothing_from_the_next_request_on(maestro: Maestro) -> None:
    token = await maestro.token("coder-1")
    async with mcp_agent(maestro.home, token) as agent:
        await agent.tools()
        (newest, *_) = (await maestro.http.get("/api/agents/coder-1/tokens")).json()["items"]
        assert (await maestro.http.delete(f"/api/agents/coder-1/tokens/{newest['id']}")).status_code == 204
        with pytest.raises(MCPError):
            await agent.tools()


# The same bytes


async def test_the_list_of_tools_is_the_same_bytes_for_every_agent_and_in_every_release(maestro: Maestro) -> None:
    tokens = [await maestro.token(slug) for slug in ("coder-1", "coder-2", "coder-1")]
    lists = {await maestro.bytes_of(token, "tools/list") for token in tokens}
    assert [json.loads(one)["result"]["tools"] for one in lists] == [json.loads(LISTED.read_bytes())]
    assert lists == {b'{"jsonrpc":"2.0","id":1,"result":{"tools":' + LISTED.read_bytes().strip() + b"}}"}


async def test_results_are_the_same_bytes_for_the_same_state(maestro: Maestro) -> None:
    token = await maestro.token("coder-1")
    posted = await maestro.bytes_of(token, "tools/call", name="chat.post", arguments={"text": "stable"})
    number = json.loads(posted)["result"]["structuredContent"]["id"]
    text = json.dumps(f'{{"id":{number},"success":true}}')
    assert posted.decode() == (
        f'{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"text":{text},"type":"text"}}],"isError":false,'
        f'"structuredContent":{{"id":{number},"success":true}}}}}}'
    )
    await maestro.bytes_of(token, "tools/call", name="chat.getNew", arguments={})
    read = {await maestro.bytes_of(token, "tools/call", name="chat.getNew", arguments={}) for _ in range(3)}
    assert len(read) == 1
    asked = {
        await maestro.bytes_of(token, "tools/call", name="ask_question", arguments={"question": "Stable?"})
        for _ in range(2)
    }
    assert len(asked) == 1


async def test_a_hundred_agents_worth_of_calls_at_once_lose_nothing(maestro: Maestro) -> None:
    token = await maestro.token("coder-1")
    async with mcp_agent(maestro.home, token) as agent:
        await agent.news()
        posted = await asyncio.gather(*(agent.call("chat.post", text=f"{number}") for number in range(50)))
        assert len({one["id"] for one in posted}) == 50
        assert sorted(int(text) for _, text in await agent.news()) == list(range(50))
