"""What a person hears when Maestro cannot work with their Temporal server: cause and fix once, and it waits for it."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.separate import ForkedPart, Part, TemporalApart
from tests.support.temporal_gate import key_gate

KEY = "key-that-nobody-may-see-0123456789"
COMMANDS = [("up",), ("worker",), ("api",), ("connect", "web")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TemporalApart]:
    """A Temporal server that knows nothing of Maestro."""
    folder = tmp_path / "server"
    folder.mkdir()
    apart = TemporalApart(folder, free_port())
    await apart.start()
    yield apart
    await apart.end()


@asynccontextmanager
async def started(folder: Path, *command: str, **temporal: Any) -> AsyncIterator[Part]:
    """Start it with this Temporal server; in the end it must follow a signal although it never got to work."""
    sections = {
        "temporal": temporal,
        "web": {"port": free_port()},
        "webui": {"port": free_port()},
        "health": {"workerPort": free_port(), "connectPort": free_port()},
        "llm": {"accounts": [{"name": "demo", "provider": "demo"}]},
    }
    (folder / "maestro.json").write_text(json.dumps(sections))
    part = ForkedPart([*command], folder)
    await part.begin()
    try:
        yield part
    finally:
        code = await part.end(signal.SIGTERM)
    assert code == 0, part.said
    assert KEY not in "\n".join(part.said)
    assert "Traceback" not in "\n".join(part.said)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_a_wrong_address_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with started(tmp_path, *command, address=address) as maestro:
        await maestro.says(
            f"Nothing listens at {address}: start the Temporal server there, or correct temporal.address. Trying again"
        )


async def test_a_wrong_namespace_is_named(tmp_path: Path, server: TemporalApart) -> None:
    async with started(tmp_path, "worker", address=f"127.0.0.1:{server.port}", namespace="nowhere") as maestro:
        await maestro.says("has no namespace 'nowhere': create the namespace with `maestro init`")
        await maestro.says("or correct temporal.namespace.")


async def test_an_expired_key_is_named(tmp_path: Path, server: TemporalApart) -> None:
    async with (
        key_gate(server.port, key="the-new-key-of-this-month") as gate,
        started(tmp_path, "worker", address=gate.address, apiKey=KEY) as maestro,
    ):
        await maestro.says("says that the API key has expired")
        await maestro.says("put it where temporal.apiKey is read from and restart Maestro")


async def test_search_attributes_that_are_missing_are_added(tmp_path: Path, server: TemporalApart) -> None:
    async with started(tmp_path, "worker", address=f"127.0.0.1:{server.port}") as maestro:
        await maestro.says("The worker is ready")
    assert not [line for line in maestro.said if "search attribute" in line]


async def test_search_attributes_that_we_may_not_add_are_named(tmp_path: Path, server: TemporalApart) -> None:
    async with key_gate(server.port, key=KEY) as gate:
        gate.denied = frozenset({"AddSearchAttributes"})
        async with started(tmp_path, "worker", address=gate.address, apiKey=KEY) as maestro:
            await maestro.says("Without them no message can be started")
            await maestro.says("temporal operator search-attribute create -n default")
