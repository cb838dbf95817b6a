"""The process dies around a file that an agent sends: the person gets it once, after the answer."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.chaos.promise import assert_journal_closed
from tests.support.chatting import person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-sent-files")]

AGENTS = [{"slug": "helper", "tools": ["write_file", "send_file"]}]
WRITE = ("write_file", '{"path": "a.txt", "content": "kept"}')
SEND = ("send_file", '{"path": "a.txt", "caption": "Here it is"}')
POINTS = (
    *("before tool-2-0 begins", "after tool-2-0 begins", "after tool-2-0 call", "after tool-2-0 done"),
    *("after model-3 done", "after chunks", "after receipt"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    async with running(tmp_path_factory.mktemp("maestro"), llm, agents=AGENTS, tools={"files": True}) as started:
        yield started


@pytest.mark.parametrize("point", POINTS)
async def test_a_file_is_there_once(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    client_id = point.replace(" ", "-")
    llm.script(client_id, calls=(WRITE,), rounds=0)
    llm.script(client_id, calls=(SEND,), rounds=1)
    llm.script(client_id, reply="done", rounds=2)
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @helper", client_id)
        await crash
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    files = evidence.rows("SELECT filename FROM job_files WHERE job_id = ?", job["id"])
    assert (job["status"], [row["filename"] for row in files]) == ("completed", ["a.txt"])
    shown = [(frame["content"], frame.get("file", {}).get("filename", "")) for frame in somebody.replies]
    assert shown == [("done", ""), ("Here it is", "a.txt")]
    assert_journal_closed(evidence, job)
    async with httpx.AsyncClient() as http:
        fetched = await http.get(f"http://127.0.0.1:{maestro.web_port}{somebody.replies[-1]['file']['url']}")
    assert fetched.text == "kept"
