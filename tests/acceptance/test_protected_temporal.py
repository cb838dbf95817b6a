"""Maestro against a Temporal server that is protected, by certificates or by an API key that may expire."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.instance import Instance, running_instance, until
from tests.support.temporal_gate import key_gate, port_of, temporal_server, tls_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("protected-temporal")]

KEY = "the-right-key"
PATIENCE = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Give the port of a real Temporal server, in plain text."""
    async with temporal_server(tmp_path_factory.mktemp("temporal")) as server:
        yield port_of(server)


def queues(name: str) -> dict[str, str]:
    """Return settings that give an installation queues of its own on a server it shares."""
    return {"taskQueue": name, "llmQueue": f"{name}-llm", "connectorQueue": f"{name}-connector"}


async def test_a_message_is_answered_through_mutual_tls(tmp_path: Path, port: int) -> None:
    async with tls_gate(port, client_auth=True) as gate:
        (tmp_path / "ca.pem").write_text(gate.ca_pem)
        (tmp_path / "cert.pem").write_text(gate.client_cert_pem)
        (tmp_path / "key.pem").write_text(gate.client_key_pem)
        pems = {"tls": True, "tlsCa": "file:ca.pem", "tlsCert": "file:cert.pem", "tlsKey": "file:key.pem"}
        temporal = {"address": gate.address, **pems, **queues("by-certificate")}
        async with running_instance(tmp_path, temporal=temporal) as maestro, maestro.client("tls") as client:
            assert await client.ask("hello", patience=PATIENCE) == "answer to: hello"


async def test_messages_wait_while_the_api_key_is_refused_and_are_answered_after_it(tmp_path: Path, port: int) -> None:
    async with key_gate(port, KEY) as gate:
        temporal = {"address": gate.address, "apiKey": KEY, **queues("by-key")}
        async with running_instance(tmp_path, temporal=temporal) as maestro, maestro.client("key") as client:
            assert await client.ask("before", patience=PATIENCE) == "answer to: before"

            gate.key = "a newer key"
            await says(maestro, "the API key has expired")
            assert (await client.say("meanwhile"))["type"] == "ack"
            await says(maestro, "Temporal does not start 1 job(s), which wait in the store")

            gate.key = KEY
            await says(maestro, f"Temporal at {gate.address} works again.")
            assert (await client.wait_for("message", patience=PATIENCE))["content"] == "answer to: meanwhile"

            await maestro.ended("key", "completed", 2)
            assert [line for line in maestro.said if KEY in line] == []
            for words in ("the API key has expired", "works again", "does not start"):
                assert len([line for line in maestro.said if words in line]) == 1
    assert [request.last_user for request in maestro.llm.requests] == ["before", "meanwhile"]


async def test_an_answer_that_comes_while_the_key_is_refused_is_not_bought_again(tmp_path: Path, port: int) -> None:
    async with key_gate(port, KEY) as gate:
        temporal = {"address": gate.address, "apiKey": KEY, "heartbeatSeconds": 3, **queues("in-flight")}
        async with running_instance(tmp_path, temporal=temporal) as maestro, maestro.client("flight") as client:
            maestro.llm.script(match="slow question", delay=2.0)
            await client.say("slow question")
            await maestro.asked("slow question")
            gate.key = "a newer key"
            await says(maestro, "the API key has expired")
            await maestro.until("SELECT 1 FROM llm_calls WHERE state = 'answered'")
            gate.key = KEY
            assert (await client.wait_for("message", patience=PATIENCE))["content"] == "answer to: slow question"
            await maestro.ended("flight", "completed")
    assert len(maestro.llm.matching("slow question")) == 1


async def says(maestro: Instance, words: str) -> None:
    """Return once Maestro has told this."""
    await until(lambda: any(words in line for line in maestro.said), PATIENCE, what=words)
