"""The tool loop: one activity per model call and per tool call, at most so many rounds, and then an answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.tools import FAILED_REPEATEDLY
from tests.support.history import history_of
from tests.support.instance import Instance, running_instance

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("tool-loop")]

SUM = ("calculate", '{"expression": "2 + 3"}')
PRODUCT = ("calculate", '{"expression": "(15 * 8) / 3"}')
WRONG = ("calculate", '{"expression": "1 / 0"}')
ROUNDS = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("tools")) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def tool_rows(maestro: Instance, channel: str) -> list[tuple[int, int, str, str]]:
    """Return number, place, tool and state of a channel's tool calls."""
    found = maestro.query(
        "SELECT number, place, tool, state FROM tool_calls JOIN queue ON queue.id = job_id WHERE channel = ? "
        "ORDER BY number, place",
        channel,
    )
    return [tuple(row) for row in found]


async def test_a_model_calls_a_tool_and_answers_with_its_result(maestro: Instance, channel: str) -> None:
    maestro.llm.script("what is two and three", calls=(SUM,), rounds=0)
    maestro.llm.script("what is two and three", reply="It is {results}.", rounds=1)
    async with maestro.client(channel) as client:
        assert await client.ask("what is two and three") == "It is 5."
    first, second = maestro.llm.matching("what is two and three")
    assert "calculate" in first.tools
    assert second.results == [("calculate", "5")]
    assert tool_rows(maestro, channel) == [(1, 0, "calculate", "done")]


async def test_calls_of_one_answer_are_made_in_parallel_and_answered_in_order(maestro: Instance, channel: str) -> None:
    maestro.llm.script("several things", calls=(SUM, PRODUCT, ("get_time", "{}")), reply="let me look", rounds=0)
    maestro.llm.script("several things", reply="done", rounds=1)
    async with maestro.client(channel) as client:
        assert await client.ask("several things") == "done"
    _, second = maestro.llm.matching("several things")
    assert [result for _, result in second.results[:2]] == ["5", "40"]
    assert "let me look" in second.texts
    assert [row[:3] for row in tool_rows(maestro, channel)] == [
        (1, 0, "calculate"),
        (1, 1, "calculate"),
        (1, 2, "get_time"),
    ]


async def test_after_five_rounds_the_model_has_to_answer(maestro: Instance, channel: str) -> None:
    for done in range(ROUNDS + 1):
        maestro.llm.script("never enough", calls=(("calculate", f'{{"expression": "{done} + 1"}}'),), rounds=done)
    maestro.llm.script("never enough", reply="now I answer", rounds=ROUNDS)
    async with maestro.client(channel) as client:
        assert await client.ask("never enough") == "now I answer"
    requests = maestro.llm.matching("never enough")
    assert [request.tool_choice for request in requests] == [""] * ROUNDS + ["none"]
    assert len(tool_rows(maestro, channel)) == ROUNDS


async def test_a_forced_answer_is_never_empty(maestro: Instance, channel: str) -> None:
    """The model goes on asking for tools: what it has to say besides is nothing, twice."""
    maestro.llm.script("only tools", calls=(SUM,))
    async with maestro.client(channel) as client:
        answer = await client.ask("only tools")
    assert answer.strip()
    assert len(tool_rows(maestro, channel)) == ROUNDS
    assert (await maestro.ended(channel, "completed"))[0]["error"] == ""


@pytest.mark.parametrize(
    ("name", "call", "told"),
    [
        ("unknown", ("fly", "{}"), "does not exist"),
        ("malformed", ("calculate", '{"expression": "2 +'), "not valid JSON"),
        ("wrong", ("calculate", '{"sum": 1}'), "expression"),
        ("failing", WRONG, "zero"),
        ("forbidden", ("run_shell", '{"command": "true"}'), "does not exist"),
    ],
)
async def test_what_goes_wrong_with_a_call_is_told_to_the_model(
    maestro: Instance, channel: str, name: str, call: tuple[str, str], told: str
) -> None:
    text = f"a call that is {name}"
    maestro.llm.script(text, calls=(call,), rounds=0)
    maestro.llm.script(text, reply="I see", rounds=1)
    async with maestro.client(channel) as client:
        assert await client.ask(text) == "I see"
    _, second = maestro.llm.matching(text)
    [(_, result)] = second.results
    assert told in result
    assert tool_rows(maestro, channel)[0][3] == "failed"


async def test_the_same_failing_call_three_times_in_a_row_is_not_made_again(maestro: Instance, channel: str) -> None:
    maestro.llm.script("try harder", calls=(WRONG,))
    maestro.llm.script("try harder", reply="I give up", rounds=4)
    async with maestro.client(channel) as client:
        assert await client.ask("try harder") == "I give up"
    last = maestro.llm.matching("try harder")[-1]
    assert [result == FAILED_REPEATEDLY for _, result in last.results] == [False, False, False, True]
    assert [row[3] for row in tool_rows(maestro, channel)] == ["failed"] * 3 + ["refused"]


async def test_text_of_the_model_and_of_tools_stays_out_of_the_history(maestro: Instance, channel: str) -> None:
    secret = "a-word-nobody-else-says"
    maestro.llm.script("tell nobody", calls=(("memory_search", f'{{"query": "{secret}"}}'), (secret, "{}")), rounds=0)
    maestro.llm.script("tell nobody", reply="done", rounds=1)
    async with maestro.client(channel) as client:
        assert await client.ask("tell nobody") == "done"
    [job] = await maestro.ended(channel, "completed")
    history = await history_of(maestro, job["id"])
    assert secret.encode() not in history
    assert b"Call the tool memory_search" in history
    assert b"Call the tool unknown" in history


async def test_an_agent_without_tools_is_offered_none(tmp_path: Path) -> None:
    plain = {"slug": "conductor", "role": "conductor", "tools": []}
    async with running_instance(tmp_path, agents=[plain], chat={"enabled": False}) as maestro:
        async with maestro.client("plain") as client:
            assert await client.ask("hello") == "answer to: hello"
        [request] = maestro.llm.matching("hello")
        assert request.tools == []


async def test_what_a_model_is_told_of_its_tools_leaves_less_room_for_history(tmp_path: Path) -> None:
    agents: list[dict[str, Any]] = [{"slug": "bare", "tools": []}, {"slug": "tooled"}]
    bound = [{"platform": "web", "channel": agent["slug"], "agent": agent["slug"]} for agent in agents]
    small: dict[str, Any] = {"models": [{"name": "gpt-4o-mini", "window": 4096}]}
    settings: dict[str, Any] = {"llm": small, "chat": {"enabled": False}}
    async with running_instance(tmp_path, agents=agents, channels=bound, **settings) as maestro:
        maestro.llm.script(reply="fine")
        remembered = {}
        for agent in ("bare", "tooled"):
            async with maestro.client(agent) as client:
                for number in range(4):
                    assert await client.ask(f"{agent} {number} " + "word " * 540) == "fine"
            texts = maestro.llm.matching(f"{agent} 3")[-1].texts
            remembered[agent] = sum(text.startswith(f"{agent} ") for text in texts)
    assert remembered["bare"] == 4
    assert 1 < remembered["tooled"] < 4
