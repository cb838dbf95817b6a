"""With keys in temporal.codec.keys, Temporal holds nothing readable of a payload."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeScheduleRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from maestro.domain.jobs.job import JobRef
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Heartbeat
from tests.support.command import maestro as run_command
from tests.support.histories import payloads, stories, story
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("encrypted-payloads")]

KEY = "a key that makes its holder a user"
PASSWORD = "correct horse battery staple"
ENCRYPTED = {"encoding": b"binary/encrypted", "encryption-key-id": b"first"}
SUM = ("calculate", '{"expression": "2 + 3"}')


def new_key(name: str) -> dict[str, str]:
    """Return the setting of a new key."""
    return {"id": name, "key": base64.b64encode(os.urandom(32)).decode()}


def schedule(maestro: Instance, name: str) -> str:
    """Add a heartbeat that never comes by itself, and return its id in Temporal."""
    new = NewSchedule(agent="conductor", name=name, schedule="0 9 1 1 *", prompt="Look.", platform="web", channel=name)
    with maestro.operator() as operator, operator.store.begin() as tx:
        row = tx.background.schedules.add_schedule(Heartbeat, new, "operator")
    return f"maestro-{row.ref}"


async def action_payloads(client: Client, schedule_id: str) -> list[Payload]:
    """Return the payloads with which a schedule starts its runs, as Temporal keeps them."""
    request = DescribeScheduleRequest(namespace="default", schedule_id=schedule_id)
    described = await client.workflow_service.describe_schedule(request)
    start = described.schedule.action.start_workflow
    return [*start.input.payloads, *payloads(start.user_metadata), *payloads(start.memo)]


async def followed(maestro: Instance, client: Client, schedule_id: str, key: bytes) -> list[Payload]:
    """Return the payloads of a schedule once they are encrypted with a key."""
    await maestro.until("SELECT 1 FROM heartbeat_configs WHERE followed <> ''")
    async with asyncio.timeout(60):
        while True:
            found = await action_payloads(client, schedule_id)
            if all(payload.metadata.get("encryption-key-id") == key for payload in found):
                return found
            await asyncio.sleep(0.1)


@dataclass
class Encrypted:
    """A Maestro with a key, after jobs that ended in several ways."""

    maestro: Instance
    client: Client
    schedule_id: str
    endpoint: str

    @property
    def job(self) -> str:
        """The id of an answered job."""
        return str(self.maestro.jobs("plain")[0]["id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encrypted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Encrypted]:
    keys = {"codec": {"keys": [new_key("first")]}}
    webui = {"enabled": True, "port": free_port(), "password": PASSWORD}
    async with running_instance(
        tmp_path_factory.mktemp("encrypted"), temporal=keys, webui=webui, web={"apiKey": KEY}
    ) as maestro:
        maestro.llm.script("in tools", calls=(SUM, SUM), rounds=0)
        maestro.llm.script("in failed", failure=Failure.status(400))
        maestro.llm.script("in twice", failure=Failure.status(503), times=2)
        for channel, status in {"plain": "completed", "tools": "completed", "failed": "failed"}.items():
            async with maestro.client(channel, api_key=KEY) as client:
                await client.say(f"in {channel}")
                await maestro.ended(channel, status)
        async with maestro.client("twice", api_key=KEY) as client:
            await client.say("in twice")
            await maestro.ended("twice", "completed")
        temporal = await maestro.temporal()
        planned = schedule(maestro, "planned")
        await followed(maestro, temporal, planned, b"first")
        await temporal.get_schedule_handle(planned).trigger()
        await maestro.ended("planned", "completed")
        yield Encrypted(maestro, temporal, planned, f"http://localhost:{webui['port']}/api/codec")


def readable(message: Message) -> Iterator[Payload]:
    """Yield the payloads of an event that are not encrypted, without search attributes and the SDK's own markers."""
    own = {payload.SerializeToString() for payload in _open_to_temporal(message)}
    for payload in payloads(message):
        if payload.metadata.get("encoding") != ENCRYPTED["encoding"] and payload.SerializeToString() not in own:
            yield payload


def _open_to_temporal(event: Any) -> Iterator[Payload]:
    for _, about in event.ListFields():
        if isinstance(about, Message):
            yield from payloads(getattr(about, "search_attributes", Payload()))
    for name in ("data", "patch-data"):
        yield from event.marker_recorded_event_attributes.details[name].payloads


# What Temporal holds


async def test_nothing_of_a_payload_is_readable_in_a_history(encrypted: Encrypted) -> None:
    found = await stories(encrypted.client)
    assert len(found) == 5
    leaks = [
        (one.workflow_id, event.event_id, payload)
        for one in found
        for event in one.events
        for payload in readable(event)
    ]
    assert leaks == []
    keys = {
        payload.metadata.get("encryption-key-id")
        for one in found
        for event in one.events
        for payload in payloads(event)
        if payload.metadata["encoding"] == ENCRYPTED["encoding"]
    }
    assert keys == {b"first"}


async def test_inputs_results_summaries_and_failures_are_encrypted(encrypted: Encrypted) -> None:
    """Guard the test above: these are the payloads that it looks at."""
    plain = await story(encrypted.client, encrypted.job)
    started = plain.events[0]
    assert started.workflow_execution_started_event_attributes.input.payloads
    assert started.user_metadata.HasField("summary")
    assert any(event.marker_recorded_event_attributes.details["result"].payloads for event in plain.events)
    assert any(event.activity_task_completed_event_attributes.result.payloads for event in plain.events)
    failed = await story(encrypted.client, str(encrypted.maestro.jobs("failed")[0]["id"]))
    failure = failed.events[-1].workflow_execution_failed_event_attributes.failure
    assert failure.message == "Encoded failure"
    assert failure.encoded_attributes.metadata == ENCRYPTED
    for text in ("The job failed", "The provider", "conductor answers", "Traceback", "gpt-4o-mini"):
        assert text not in failed.text()


async def test_schedules_start_their_runs_with_encrypted_payloads(encrypted: Encrypted) -> None:
    found = await action_payloads(encrypted.client, encrypted.schedule_id)
    assert len(found) >= 3
    assert all(payload.metadata == ENCRYPTED for payload in found)


async def test_the_client_with_the_key_reads_results_and_details(encrypted: Encrypted) -> None:
    handle = encrypted.client.get_workflow_handle(encrypted.job)
    assert await handle.result() == "completed"
    assert await (await handle.describe()).static_summary() == "message on web, channel plain"
    assert "openai/gpt-4o-mini answers" in str(await handle.query("__temporal_workflow_metadata"))


# The codec endpoint


async def test_the_endpoint_shows_what_is_encrypted(encrypted: Encrypted) -> None:
    started = (await story(encrypted.client, encrypted.job)).events[0]
    [payload] = started.workflow_execution_started_event_attributes.input.payloads
    async with httpx.AsyncClient() as http:
        body = {"payloads": [MessageToDict(payload)]}
        refused = await http.post(f"{encrypted.endpoint}/decode", json=body)
        decoded = await http.post(f"{encrypted.endpoint}/decode", json=body, auth=("maestro", PASSWORD))
    assert (refused.status_code, refused.json()["error"]) == (401, "Unauthorized")
    [plain] = decoded.json()["payloads"]
    assert json.loads(base64.b64decode(plain["data"]))["job_id"] == encrypted.job


async def test_the_temporal_cli_shows_what_the_endpoint_decrypts(encrypted: Encrypted) -> None:
    address = f"--address={encrypted.client.service_client.config.target_host}"
    command = ("workflow", "show", "--workflow-id", encrypted.job, address, "--output=json")
    login = base64.b64encode(f"maestro:{PASSWORD}".encode()).decode()
    shown = await temporal_cli(*command, f"--codec-endpoint={encrypted.endpoint}", f"--codec-auth=Basic {login}")
    summary = base64.b64encode(b'"message on web, channel plain"').decode()
    assert summary in shown
    assert summary not in await temporal_cli(*command)


async def temporal_cli(*arguments: str) -> str:
    """Run Temporal's own command, and return what it says."""
    command = Path(sys.executable).with_name("temporal")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(command, *arguments, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    return output.decode()


async def test_the_embedded_web_ui_knows_the_endpoint(encrypted: Encrypted) -> None:
    async with httpx.AsyncClient() as http:
        settings = (await http.get(f"{encrypted.maestro.ui_url}/api/v1/settings")).json()
    assert settings["Codec"]["Endpoint"] == encrypted.endpoint


# Other commands and keys


async def test_replay_check_decodes_with_the_keys(encrypted: Encrypted, tmp_path: Path) -> None:
    config = f"--config={encrypted.maestro.config_file}"
    ended = await run_command("replay-check", config, f"--save={tmp_path / 'saved'}", folder=tmp_path)
    assert ended.code == 0, ended.output
    saved = await run_command("replay-check", config, "saved", folder=tmp_path)
    assert saved.output.splitlines()[-1] == "All of them go on with this code."
    without = await run_command("replay-check", "--json", "saved", folder=tmp_path)
    report = json.loads(without.output)
    assert (without.code, len(report["broken"])) == (1, 5)
    assert all("temporal.codec.keys is empty" in broken["reason"] for broken in report["broken"]), report


async def test_keys_rotate_while_jobs_are_open(tmp_path: Path) -> None:
    """A job that began without encryption and one of the first key go on after the key has changed twice."""
    first, second = new_key("first"), new_key("second")
    async with running_instance(tmp_path) as maestro:
        planned = schedule(maestro, "planned")
        maestro.llm.script("in open", delay=600, times=1)
        async with maestro.client("open") as client:
            await client.say("in open")
            await maestro.asked("in open")
        await maestro.restart(temporal={"codec": {"keys": [first]}})
        await maestro.ended("open", "completed")
        await followed(maestro, await maestro.temporal(), planned, b"first")
        maestro.llm.script("in first", delay=600, times=1)
        async with maestro.client("first") as client:
            await client.say("in first")
            await maestro.asked("in first")
        await maestro.restart(temporal={"codec": {"keys": [second, first]}})
        await maestro.ended("first", "completed")
        await followed(maestro, await maestro.temporal(), planned, b"second")
        jobs = [*maestro.jobs("open"), *maestro.jobs("first")]
        assert [(job["status"], job["run"]) for job in jobs] == [("completed", 1)] * 2
        found = await story(await maestro.temporal(), str(maestro.jobs("first")[0]["id"]))
        used = {payload.metadata.get("encryption-key-id") for event in found.events for payload in payloads(event)}
        assert {b"first", b"second"} <= used


async def test_a_worker_without_the_keys_fails_no_workflow(tmp_path: Path) -> None:
    """Its tasks fail and are repeated, and go on when a worker has the keys."""
    keys = {"codec": {"keys": [new_key("first")]}}
    async with running_instance(tmp_path, temporal=keys) as maestro:
        maestro.llm.script("in open", delay=600, times=1)
        async with maestro.client("open") as client:
            await client.say("in open")
            await maestro.asked("in open")
        with_keys = await maestro.temporal()
        await maestro.restart(temporal={"codec": {"keys": []}})
        nobody = JobRef(
            job_id="message-nobody", run=1, heartbeat_seconds=3, model_seconds=10, tool_seconds=10, tool_rounds=5
        )
        started = await with_keys.start_workflow("MessageWorkflow", nobody, id="nobody", task_queue="maestro")
        await task_failure(with_keys, "nobody")
        assert (await started.describe()).status is WorkflowExecutionStatus.RUNNING
        await maestro.restart(temporal=keys)
        [row] = await maestro.ended("open", "completed")
        assert (row["run"], row["recoveries"]) == (1, 0)
        with pytest.raises(WorkflowFailureError) as ended:
            await started.result()
        assert "temporal.codec.keys" not in str(ended.value.cause)


async def task_failure(client: Client, workflow_id: str) -> None:
    """Wait until a task of a workflow has failed."""
    handle = client.get_workflow_handle(workflow_id)
    async with asyncio.timeout(60):
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                return
