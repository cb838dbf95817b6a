"""Port 5070 when something is wrong, or much is missing: clients are told, stay or come back, and lose nothing."""

import asyncio

import pytest

from connectors.web.session import REPLAY_PAGE
from maestro.domain.errors import StoreBusy
from tests.support.chatting import person
from tests.support.configured_logs import configured_logs
from tests.support.memory_context import MemoryContext
from tests.support.web_client import web_client
from tests.support.web_server import web_server


async def test_a_refusal_says_only_what_can_be_sent() -> None:
    async with web_server() as server, web_client(server.port) as client:
        await client.send('{"type":"message","clientId":"\\ud800","content":"x"}')
        error = await client.next()
        assert (error["type"], error["clientId"]) == ("error", "\ufffd")
        assert (await client.say("x"))["type"] == "ack"


@pytest.mark.parametrize(
    ("failure", "error"), [(StoreBusy("locked"), "StoreBusy"), (RuntimeError("a private word"), "InternalError")]
)
async def test_whatever_fails_is_told_and_the_next_message_is_taken(
    failure: Exception, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    context = MemoryContext(failure=failure)
    with configured_logs():
        async with web_server(context) as server, web_client(server.port) as client:
            told = await client.say("hello", "one")
            context.failure = None
            assert (await client.say("hello", "one"))["duplicate"] is False
    assert (told["type"], told["error"], told["clientId"]) == ("error", error, "one")
    assert "try again" in told["message"]
    logged = capsys.readouterr().err
    assert ("RuntimeError" in logged) is (error == "InternalError")
    assert "private" not in logged + told["message"]


async def test_a_client_that_sends_again_while_the_store_is_busy_is_accepted_once() -> None:
    context = MemoryContext()
    async with web_server(context) as server, person(server.port, "c") as client:
        await client.until(lambda: client.frames[-1]["type"] == "resumed")
        context.failure = StoreBusy("locked")
        await client.say("hello", "one")
        await client.until(lambda: [frame["type"] for frame in client.frames].count("error") > 1)
        context.failure = None
        await client.acknowledged("one")
        assert client.connections == 1, "it need not reconnect"
    assert [message.content for message in context.inbox] == ["hello"]


@pytest.mark.parametrize(("failure", "code"), [(StoreBusy(), 1013), (RuntimeError(), 1011)])
async def test_who_cannot_be_given_what_was_missed_is_told_to_come_back(failure: Exception, code: int) -> None:
    async with web_server(MemoryContext(failure=failure)) as server:
        async with web_client(server.port, channelId="c", lastId=0) as client:
            assert (await client.next())["type"] == "error"
            assert await client.closed() == code
        await server.answer("c", "missed")
        server.context.failure = None
        async with web_client(server.port, channelId="c", lastId=0) as again:
            assert (await again.next())["content"] == "missed"


async def test_a_long_absence_is_made_up_for_page_by_page() -> None:
    total = 2 * REPLAY_PAGE + 7
    async with web_server(queue_limit=8) as server:
        for number in range(total):
            await server.answer("c", str(number))
        context = server.context
        async with web_client(server.port, channelId="c", lastId=3) as client:
            assert (await client.wait_for("resumed"))["lastId"] == total
            await server.answer("c", "live")
            assert (await client.wait_for("message"))["id"] == 4
            await asyncio.sleep(0.1)
        async with web_client(server.port, channelId="c", lastId=total + 1) as again:
            assert await again.next() == {"type": "resumed", "lastId": total + 1}
    assert [frame["id"] for frame in client.frames if frame["type"] == "message"] == list(range(4, total + 1))
    assert context.largest_page == REPLAY_PAGE


async def test_a_cursor_above_the_highest_id_counts_as_none() -> None:
    async with web_server() as server:
        async with web_client(server.port, channelId="c", lastId=500) as client:
            assert await client.next() == {"type": "resumed", "lastId": 0}
            await server.answer("c", "live")
            assert (await client.wait_for("message"))["id"] == 1
        async with web_client(server.port, channelId="c", lastId=500) as again:
            assert (await again.next())["id"] == 1  # of the last moments: nobody knows what it heard of them
            assert await again.next() == {"type": "resumed", "lastId": 1}


async def test_the_longest_message_is_taken_however_it_is_written() -> None:
    """As many characters as Maestro takes of anybody; in JSON the longest of them may be twelve bytes each."""
    async with web_server() as server, web_client(server.port) as client:
        assert (await client.say("\N{GRINNING FACE}" * 300_000))["type"] == "ack"
    assert len(server.context.inbox[0].content) == 300_000
