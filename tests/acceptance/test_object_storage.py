"""Files in an object storage: two hosts share them, an outage delays messages and loses none."""

import asyncio
import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from maestro.domain.health import DiagnosisLevel
from maestro.installation.storage import open_files
from maestro.operations.conversations import ConversationOperations
from tests.support.diagnosed import doctor
from tests.support.instance import running_instance
from tests.support.llm_server import LLMServer
from tests.support.object_storage import BUCKET, ObjectStorage, object_storage
from tests.support.separate import SHARED_KEYS, separate
from tests.support.uploads import tell, upload
from tests.support.web_client import web_client

PNG = b"\x89PNG\r\n\x1a\n and pixels"
DIGEST = hashlib.sha256(PNG).hexdigest()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[ObjectStorage]:
    with object_storage(tmp_path / "objects") as server:
        yield server


def pictures(llm: LLMServer, text: str) -> list[bytes]:
    """Return the pictures that the model got with a message."""
    [request] = llm.matching(text)
    content: Any = request.body["messages"][-1]["content"]
    parts = [] if isinstance(content, str) else content
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(";base64,")[2]) for url in urls]


async def test_a_file_that_one_host_received_is_seen_and_sent_by_another(
    tmp_path: Path, storage: ObjectStorage
) -> None:
    sections = {
        "media": storage.settings,
        "store": {"url": f"sqlite:///{tmp_path}/shared.db"},
        "keys": SHARED_KEYS,
        "agents": [{"slug": "conductor", "role": "conductor", "tools": ["write_file", "send_file"]}],
        "tools": {"files": True},
    }
    with LLMServer.running() as llm:
        llm.script("send it", calls=(("write_file", '{"path": "a.txt", "content": "abc"}'),), rounds=0)
        llm.script("send it", calls=(("send_file", '{"path": "a.txt"}'),), rounds=1)
        llm.script("send it", reply="Here it is.", rounds=2)
        async with separate(tmp_path, llm, **sections) as maestro:
            # The worker is another host: it shares the store, and nothing of the data folder.
            await maestro.worker.end()
            maestro.worker = maestro.another("--data-dir", str(tmp_path / "other"), "worker")
            await maestro.revive("worker")
            async with web_client(maestro.web_port, channelId="c-1") as client:
                await tell(client, "what is on it", await upload(client, maestro.web_port, "cat.png", PNG))
                assert pictures(llm, "what is on it") == [PNG]
                assert await client.ask("send it") == "Here it is."
                file = (await client.wait_for("message"))["file"]
                url = f"http://127.0.0.1:{maestro.web_port}{file['url']}"
                headers = {"Authorization": f"Bearer {client.resume_token}"}
                async with httpx.AsyncClient(trust_env=False) as http:
                    assert (await http.get(url, headers=headers)).text == "abc"
    assert file["size"] == 3
    assert storage.list_objects() == sorted([DIGEST, hashlib.sha256(b"abc").hexdigest()])
    assert not (tmp_path / "data" / "media").exists()


async def test_a_message_with_a_file_waits_for_a_storage_that_is_away_and_is_answered_once(
    tmp_path: Path, storage: ObjectStorage
) -> None:
    async with running_instance(tmp_path, media=storage.settings) as maestro:
        port = maestro.loaded.settings.web.port
        async with maestro.client("away") as client:
            picture = await upload(client, port, "cat.png", PNG)
            for path in (tmp_path / "data").rglob(DIGEST):
                path.unlink()  # as if another host had received it
            storage.stop()
            with pytest.raises(AssertionError, match="MediaUnavailable"):
                await upload(client, port, "dog.png", PNG + b" of a dog")
            asking = asyncio.create_task(tell(client, "what is on it", picture))
            await maestro.until(
                "SELECT * FROM job_steps WHERE error = 'MediaUnavailable' AND detail LIKE '%object storage%'"
            )
            assert not maestro.llm.matching("what is on it")
            storage.start()
            await asking
        assert pictures(maestro.llm, "what is on it") == [PNG]
        [job] = await maestro.ended("away", "completed")
        assert len(maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])) == 1


async def test_an_agents_file_waits_for_the_storage_and_is_sent_once(tmp_path: Path, storage: ObjectStorage) -> None:
    agents = [{"slug": "conductor", "role": "conductor", "tools": ["write_file", "send_file"]}]
    tools = {"files": True}
    async with running_instance(tmp_path, media=storage.settings, agents=agents, tools=tools) as maestro:
        maestro.llm.script("send it", calls=(("write_file", '{"path": "a.txt", "content": "abc"}'),), rounds=0)
        maestro.llm.script("send it", calls=(("send_file", '{"path": "a.txt"}'),), rounds=1)
        maestro.llm.script("send it", reply="Here it is.", rounds=2)
        async with maestro.client("sending") as client:
            storage.stop()
            asking = asyncio.create_task(client.ask("send it"))
            await maestro.until("SELECT * FROM tool_calls WHERE tool = 'send_file' AND state = 'started'")
            assert not maestro.query("SELECT * FROM job_files")
            storage.start()
            assert await asking == "Here it is."
            assert (await client.wait_for("message"))["file"]["filename"] == "a.txt"
        assert len(maestro.query("SELECT * FROM job_files")) == 1
    assert storage.list_objects() == [hashlib.sha256(b"abc").hexdigest()]


async def test_the_files_of_a_deleted_conversation_leave_the_bucket(tmp_path: Path, storage: ObjectStorage) -> None:
    async with running_instance(tmp_path, media=storage.settings) as maestro:
        async with maestro.client("gone") as client:
            await tell(client, "look", await upload(client, maestro.loaded.settings.web.port, "cat.png", PNG))
        await maestro.ended("gone", "completed")
        assert storage.list_objects() == [DIGEST]
        # An object of the last hour may belong to a row that is not committed yet.
        os.utime(storage.path_of_digest(DIGEST), (time.time() - 7200,) * 2)
        [row] = maestro.query("SELECT id FROM conversations WHERE channel = 'gone'")
        with maestro.operator() as operator:
            settings = maestro.loaded.settings
            files = open_files(settings)
            ConversationOperations(operator.store, settings.data_dir, files).delete(row["id"], "a test")
        assert storage.list_objects() == []
        assert maestro.query("SELECT * FROM discarded_files WHERE path LIKE 'media/%'") == []


async def test_doctor_writes_reads_and_deletes_an_object(tmp_path: Path, storage: ObjectStorage) -> None:
    def configure(**changes: object) -> None:
        media = {**storage.settings, **changes}
        (tmp_path / "maestro.json").write_text(json.dumps({"media": media}))

    configure()
    report = await doctor(tmp_path)
    assert report.of("media").found == f"files in s3://{BUCKET}/of/maestro can be written, read and deleted"
    assert storage.list_objects() == []
    configure(secretAccessKey="another")
    wrong = (await doctor(tmp_path)).of("media")
    assert wrong.verdict is DiagnosisLevel.BROKEN
    assert "SignatureDoesNotMatch" in wrong.found
    assert "media.accessKeyId and media.secretAccessKey" in wrong.fix
    configure()
    storage.stop()
    away = (await doctor(tmp_path)).of("media")
    assert f"http://127.0.0.1:{storage.port} (media.endpoint)" in away.fix
