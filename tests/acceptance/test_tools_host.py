"""Tool calls on the host that has the folders of conversations: they wait for it, and operators are told."""

import asyncio
import json
from pathlib import Path

import httpx

from tests.support import database
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.support.separate import READY, SHARED_KEYS, Separate
from tests.support.web_client import web_client

QUEUE = "maestro-tools"
WRITE = ("write_file", '{"path": "a.txt", "content": "abc"}')


async def test_tool_calls_wait_for_the_host_with_the_folders_and_run_there_only(tmp_path: Path) -> None:
    with LLMServer.running() as llm:
        llm.script("write it", calls=(WRITE,), rounds=0)
        llm.script("write it", reply="It is written.", rounds=1)
        agents = [{"slug": "conductor", "role": "conductor", "tools": ["write_file"]}]
        store = {"url": f"sqlite:///{tmp_path}/shared.db"}
        maestro = Separate(tmp_path, llm, {"agents": agents, "store": store, "keys": SHARED_KEYS})
        builder = maestro.another("--config", str(_configure(maestro)), "worker")
        try:
            await maestro.start()
            async with httpx.AsyncClient(base_url=f"http://localhost:{maestro.api_port}", trust_env=False) as api:
                ready = await api.get("/readyz")
                assert (ready.status_code, QUEUE in ready.json()["checks"]["worker"]) == (503, True), ready.text
                async with web_client(maestro.web_port, channelId="c-1") as client:
                    asking = asyncio.create_task(client.ask("write it"))
                    await until(lambda: len(llm.matching("write it")) == 1, what="the first call of the model")
                    await builder.says(READY["worker"], await builder.begin())
                    assert await asking == "It is written."
                assert (await api.get("/readyz")).status_code == 200
        finally:
            await builder.end()
            await maestro.end()
    [row] = database.query(tmp_path / "shared.db", "SELECT id FROM conversations")
    assert (tmp_path / "builder" / "workspaces" / str(row["id"]) / "a.txt").read_text() == "abc"
    assert not (tmp_path / "data" / "workspaces").exists()


def _configure(maestro: Separate) -> Path:
    """Name a queue of tool calls that ``maestro`` does not poll; return the configuration of a host that does."""
    tree = json.loads(maestro.config.read_text())
    tree["temporal"]["toolsQueue"] = QUEUE
    worker, connect = free_ports(2)
    host = {"dataDir": str(maestro.folder / "builder"), "health": {"workerPort": worker, "connectPort": connect}}
    other = maestro.folder / "builder.json"
    other.write_text(json.dumps({**tree, **host, "tools": {"files": True}}))
    maestro.config.write_text(json.dumps({**tree, "tools": {"files": True, "here": False}}))
    return other
