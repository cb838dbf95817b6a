"""While Temporal is away, messages are taken in and wait; when it is back they are answered in order."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from temporal.server import EmbeddedServer, ServerConfig
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("without-temporal")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """Give a Temporal server that does not run yet."""
    server = EmbeddedServer(ServerConfig(tmp_path / "elsewhere", free_port(), free_port()), report=lambda _: None)
    yield server
    await server.stop()


async def test_messages_wait_in_the_store_until_temporal_is_there(tmp_path: Path, server: EmbeddedServer) -> None:
    away = {"address": server.address, "heartbeatSeconds": 3}
    async with running_instance(tmp_path, start=False, temporal=away, jobs={"maxPending": 5}) as maestro:
        await maestro.start(ready=False)
        async with maestro.client("waiting") as client:
            acks = [await client.say(f"message {number}") for number in range(5)]
            assert [ack["type"] for ack in acks] == ["ack"] * 5
            await refused_when_full(maestro, client_id="one too many")
            assert maestro.llm.requests == []
            assert (await client.say("/status"))["error"] == "Backlogged", "its reply would wait as well"
            assert (await client.say("/stop"))["type"] == "ack", "it makes room"
            await server.start()
            spoken = [(await client.wait_for("message", patience=30))["content"] for _ in range(4)]
            assert spoken == [f"answer to: message {number}" for number in range(1, 5)]
            assert (await client.say("one too many", "one too many"))["duplicate"] is False
            assert (await client.wait_for("message"))["content"] == "answer to: one too many"
        await maestro.ended("waiting", "completed", 6)
        [stopped] = await maestro.ended("waiting", "cancelled")
    assert stopped["reason"] == "stopped before it began"
    assert [request.last_user for request in maestro.llm.requests] == [
        *(f"message {number}" for number in range(1, 5)),
        "one too many",
    ]


async def refused_when_full(maestro: Instance, client_id: str) -> None:
    """Check that one more message is refused with a clear word and leaves nothing behind."""
    async with maestro.client("waiting") as client:
        refused = await client.say("one too many", client_id)
    assert (refused["type"], refused["error"], refused["clientId"]) == ("error", "Backlogged", client_id)
    assert "try again" in refused["message"]
    assert len(maestro.query("SELECT 1 FROM inbox")) == 5
    assert len(maestro.query("SELECT 1 FROM queue")) == 5


async def test_messages_taken_while_the_server_restarts_are_answered_once(tmp_path: Path) -> None:
    async with running_instance(tmp_path) as maestro, maestro.client("bumpy") as client:
        assert await client.ask("before") == "answer to: before"
        maestro.kill_temporal()
        for number in range(3):
            assert (await client.say(f"during {number}"))["type"] == "ack"
        spoken = [(await client.wait_for("message", patience=60))["content"] for _ in range(3)]
        assert spoken == [f"answer to: during {number}" for number in range(3)]
        await maestro.ended("bumpy", "completed", 4)
        assert len(maestro.llm.matching("during")) == 3
