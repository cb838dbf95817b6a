"""A data folder that an earlier release wrote until it was killed: this release takes it over, and nothing is missing.

``python -m tests.releases.record`` made the archive with the code of that release.
"""

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from maestro.store.engine.schema import list_revisions
from tests.releases.record import (
    BEHIND,
    CLIENTS,
    CONDUCTOR,
    FACT,
    FAILED,
    FOLDER,
    GREETING,
    KEY,
    OPEN,
    PROMPT,
    QUESTION,
    SUM,
    message_id,
)
from tests.support.command import Ports, maestro, up
from tests.support.database import change
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.support.web_client import WebClient, web_client

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("upgrade"),
    pytest.mark.sqlite_only(reason="release 0.1.0 knew no other database"),
]

RELEASES = ["0.1.0"]
REVISIONS = {"0.1.0": "0014"}
"""The newest migration of each release."""


@dataclass(frozen=True)
class Upgraded:
    """An installation of an earlier release on which this one runs."""

    folder: Path
    ports: Ports
    llm: LLMServer
    revision: str
    """The newest migration before the upgrade."""

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.folder / "data")

    def client(self, channel: str) -> AbstractAsyncContextManager[WebClient]:
        """Connect the client that used this channel before the upgrade, with the last message that it got.

        Its token has expired since the recording; on loopback, without a password, the user needs none.
        """
        return web_client(self.ports.web, channelId=channel, lastId=self.known(channel)["lastId"])

    def known(self, channel: str) -> dict[str, Any]:
        """Return what the client of this channel knew before the upgrade: its token and its last message."""
        known: dict[str, Any] = json.loads((self.folder / CLIENTS).read_text())[channel]
        return known

    async def read(self, path: str) -> Any:
        """Return what the API answers."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ports.webui}") as client:
            return (await client.get(path)).raise_for_status().json()

    async def operate(self, *words: str) -> None:
        """Run a command of this release, which has to succeed."""
        ended = await maestro(*words, folder=self.folder)
        assert ended.code == 0, ended

    def job(self, text: str) -> str:
        """Return the id of the job that answers a message."""
        [job] = self.evidence.jobs(message_id(text))
        return str(job["id"])


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RELEASES)
async def upgraded(
    request: pytest.FixtureRequest, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Upgraded]:
    folder = tmp_path_factory.mktemp("upgraded")
    with tarfile.open(FOLDER / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    web, webui, temporal, temporal_ui = free_ports(4)
    ports = Ports(webui, web, temporal, temporal_ui)
    (folder / "maestro.json").write_text(json.dumps({"agents": [CONDUCTOR]}))
    # The provider has another port than at the time of the recording.
    change(folder / "data" / "maestro.db", ("UPDATE accounts SET base_url = ?", llm.base_url("openai")))
    [before] = Evidence(folder / "data").rows("SELECT version_num FROM alembic_version")
    assert before["version_num"] == REVISIONS[request.param]
    async with up(folder, ports):
        yield Upgraded(folder, ports, llm, before["version_num"])


async def test_the_database_is_brought_up_to_this_release(upgraded: Upgraded) -> None:
    [now] = upgraded.evidence.rows("SELECT version_num FROM alembic_version")
    assert upgraded.revision != now["version_num"] == list_revisions()[-1]


async def test_what_was_open_is_answered_once_and_in_order_with_the_encrypted_key(upgraded: Upgraded) -> None:
    async with upgraded.client("kitchen") as client:
        answers = [await client.wait_for("message") for _ in (OPEN, BEHIND)]
    assert [answer["content"] for answer in answers] == [f"answer to: {OPEN}", f"answer to: {BEHIND}"]
    jobs = await upgraded.evidence.ended(message_id(OPEN), message_id(BEHIND))
    assert [(job["status"], job["run"]) for job in jobs] == [("completed", 1)] * 2, "the workflow did not go on"
    assert [upgraded.evidence.user_rows(message_id(text)) for text in (OPEN, BEHIND)] == [(1, 1)] * 2
    assert upgraded.evidence.calls(jobs[0]["id"]) == {"interrupted": 1, "answered": 1}
    assert upgraded.evidence.calls(jobs[1]["id"]) == {"answered": 1}
    assert [[request.key for request in upgraded.llm.matching(text)] for text in (OPEN, BEHIND)] == [[KEY]] * 2


async def test_a_token_from_before_the_upgrade_is_recognised(upgraded: Upgraded) -> None:
    headers = {"Authorization": f"Bearer {upgraded.known('kitchen')['resumeToken']}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{upgraded.ports.web}", headers=headers) as client:
        answer = await client.post("/api/message", json={"content": "hello", "channelId": "kitchen"})
    # It is hours older than a login may be (webui.sessionHours); a forged one would be called invalid.
    assert (answer.status_code, "has expired" in answer.json()["message"]) == (401, True)


async def test_conversations_and_prompts_are_there(upgraded: Upgraded) -> None:
    [kitchen] = [one for one in (await upgraded.read("/api/conversations"))["items"] if one["channel"] == "kitchen"]
    said = (await upgraded.read(f"/api/conversations/{kitchen['id']}/messages"))["items"]
    assert {GREETING, "Noted.", SUM} <= {message["content"].strip() for message in said}
    job = upgraded.job(SUM)
    calls = (await upgraded.read(f"/api/jobs/{job}/calls"))["items"]
    assert [call["state"] for call in calls] == ["answered", "answered"]
    prompt = json.dumps(await upgraded.read(f"/api/jobs/{job}/calls/{calls[1]['id']}/prompt"))
    assert [text for text in (PROMPT, GREETING, SUM, "2 + 3") if text not in prompt] == []


async def test_agents_with_their_versions_and_memory_are_there(upgraded: Upgraded) -> None:
    ada = await upgraded.read("/api/agents/ada")
    assert (ada["systemPrompt"], ada["voice"], ada["version"]) == (PROMPT, "dry", 2)
    assert FACT in json.dumps(await upgraded.read("/api/agents/ada/memory"))


async def test_a_question_that_was_open_is_answered(upgraded: Upgraded) -> None:
    async with upgraded.client("study") as client:
        await client.ask("rye", "the-answer")
    [job] = await upgraded.evidence.ended(message_id(QUESTION))
    assert job["status"] == "completed"
    assert "rye" in json.dumps(upgraded.llm.requests[-1].body)


async def test_a_failed_job_is_resumed(upgraded: Upgraded) -> None:
    job = upgraded.job(FAILED)
    assert (await upgraded.read(f"/api/jobs/{job}"))["status"] == "failed"
    async with upgraded.client("cellar") as client:
        await upgraded.operate("jobs", "replay", job)
        assert (await client.wait_for("message"))["content"] == f"answer to: {FAILED}"


async def test_schedules_are_there_and_run(upgraded: Upgraded) -> None:
    planned = (await upgraded.read("/api/schedules"))["items"]
    assert {(one["name"], one["state"]) for one in planned} == {("new year", "active"), ("oven", "paused")}
    async with upgraded.client("kitchen") as client:
        await upgraded.operate("schedules", "run", "cron-1")
        async with asyncio.timeout(60):
            while "Wish a happy new year." not in (await client.wait_for("message"))["content"]:
                pass


async def test_store_media_and_temporal_agree(upgraded: Upgraded) -> None:
    await upgraded.operate("fsck")
