"""Worker, API and connectors as processes of their own work together as one Maestro.

See docs/architecture.md: processes and queues.
"""

import asyncio
import contextlib
import json
import random
import signal
import string
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from temporalio.client import WorkflowHistory

from benchmarks.billing import billable_actions
from maestro.domain.redaction import REDACTED
from temporal.client import connect
from temporal.endpoint import Endpoint
from tests.documentation.actions_page import cloud_actions
from tests.support.command import maestro as run
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import Failure, LLMServer
from tests.support.scraping import Scrape
from tests.support.separate import READY, Separate, separate
from tests.support.web_client import WebClient, web_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]

PNG = b"\x89PNG\r\n\x1a\n and pixels"
LONG = 60.0
PATIENCE = 60.0


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Separate]:
    agents = [{"slug": "conductor", "role": "conductor"}, {"slug": "bob"}]
    async with separate(tmp_path_factory.mktemp("separate"), llm, agents=agents) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def api(maestro: Separate) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API's process."""
    async with httpx.AsyncClient(base_url=f"http://localhost:{maestro.api_port}", timeout=PATIENCE) as client:
        yield client


async def job_in(maestro: Separate, channel: str, status: str) -> Row:
    """Return the newest job of a channel as soon as it has this status."""
    found: list[Row] = []

    def there() -> bool:
        sql = "SELECT * FROM queue WHERE channel = ? AND notice = '' ORDER BY created_at DESC LIMIT 1"
        found[:] = [row for row in Evidence(maestro.data).rows(sql, channel) if row["status"] == status]
        return bool(found)

    await until(there, PATIENCE, what=f"a job that is {status} in {channel}")
    return found[0]


def statuses(maestro: Separate, channel: str) -> list[str]:
    """Return how the jobs of a channel stand, in the order they came."""
    sql = "SELECT status FROM queue WHERE channel = ? ORDER BY created_at"
    return [row["status"] for row in Evidence(maestro.data).rows(sql, channel)]


async def silence(client: WebClient) -> None:
    """Return when nothing arrives for longer than an indicator's interval; what came before is read."""
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(TimeoutError):
            while await client.next(1.0):
                pass


async def ask(client: WebClient, content: str, *attachments: str) -> str:
    """Say something and return the answer."""
    ack = await client.say(content, attachments=attachments)
    assert ack["type"] == "ack", ack
    return str((await client.wait_for("message", patience=PATIENCE))["content"])


async def test_a_message_is_answered_and_each_step_is_done_on_its_queue(maestro: Separate) -> None:
    async with web_client(maestro.web_port, channelId="queues") as client:
        assert await ask(client, "hello") == "answer to: hello"
    await assert_on_its_queue(maestro, await job_in(maestro, "queues", "completed"))


async def test_what_is_set_through_the_api_counts_in_worker_and_connector_without_a_restart(
    maestro: Separate, llm: LLMServer, api: httpx.AsyncClient
) -> None:
    secret = f"ghp_{''.join(random.Random(6).choices(string.ascii_letters, k=36))}"
    llm.script("tell me the key", reply=f"It is {secret}.")
    scope = "chat.scanner.scope"
    assert (await api.patch("/api/settings", json={scope: ["prompts", "outgoing"]})).status_code == HTTPStatus.OK
    async with web_client(maestro.web_port, channelId="settings") as client, asyncio.timeout(PATIENCE):
        answer, told = "", secret
        while secret in answer + told:  # the connector redacts the answer, the worker what the model is told
            answer = await ask(client, f"tell me the key {secret}")
            told = llm.matching("tell me the key")[-1].texts[-1]
    assert answer == f"It is {REDACTED}."
    await api.patch("/api/settings", json={scope: None})


async def test_so_is_each_step_of_a_task_that_it_leads_to(maestro: Separate, llm: LLMServer) -> None:
    llm.script("hello both", reply="Bob, too. [DELEGATE:bob]say hello[/DELEGATE]")
    llm.script("> say hello", reply="Hello.")
    async with web_client(maestro.web_port, channelId="task") as client:
        assert await ask(client, "hello both") == "Bob, too."
        assert (await client.wait_for("message", patience=PATIENCE))["content"] == "Hello."
    task = await job_in(maestro, "task", "completed")
    assert task["task"] == "say hello"
    await assert_on_its_queue(maestro, task)
    await assert_as_documented(maestro, task, "task")


async def test_a_message_costs_as_many_billable_actions_as_documented(maestro: Separate) -> None:
    async with web_client(maestro.web_port, channelId="billed") as client:
        await ask(client, "hello")
    await assert_as_documented(maestro, await job_in(maestro, "billed", "completed"), "answered")


async def assert_as_documented(maestro: Separate, job: Row, way: str) -> None:
    """A job costs the billable actions that docs/reference/temporal-cloud.md gives for this way of a message."""
    actions = billable_actions((await history_of(maestro, job)).events)
    assert actions.total() == cloud_actions(way), actions


async def history_of(maestro: Separate, job: Row) -> WorkflowHistory:
    """Return what Temporal knows of a job."""
    temporal = await connect(Endpoint(f"127.0.0.1:{maestro.temporal.port}", "default"))
    workflow = temporal.get_workflow_handle(job["id"])
    await workflow.result()  # a job is completed before its workflow is
    return await workflow.fetch_history()


async def assert_on_its_queue(maestro: Separate, job: Row) -> None:
    """The steps of a job were done by the processes that are there for them."""
    history = await history_of(maestro, job)
    queues = {
        event.activity_task_scheduled_event_attributes.activity_type.name: (
            event.activity_task_scheduled_event_attributes.task_queue.name
        )
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    assert queues == {
        "show_typing": "maestro-connector-web-default",
        "answer": "maestro-llm",
        "deliver": "maestro-connector-web-default",
    }


async def test_typing_shows_while_another_process_calls_the_model_and_ends_with_a_stop(
    maestro: Separate, llm: LLMServer
) -> None:
    llm.script(match="think long", delay=LONG)
    async with web_client(maestro.web_port, channelId="typing") as client:
        await client.say("think long")
        await client.wait_for("typing", patience=PATIENCE)
        await client.wait_for("typing", patience=PATIENCE)
        await client.say("/stop")
        assert (await client.wait_for("message", patience=PATIENCE))["content"] == "Stopped."
        await until(lambda: statuses(maestro, "typing") == ["cancelled", "completed"], PATIENCE, what="the stop")
        await silence(client)  # the indicator ends though its job ended in another process


async def test_a_picture_goes_from_one_process_to_the_other(maestro: Separate, llm: LLMServer) -> None:
    async with web_client(maestro.web_port, channelId="picture") as client:
        bearer = {"Authorization": f"Bearer {client.resume_token}"}
        async with httpx.AsyncClient() as http:
            url = f"http://127.0.0.1:{maestro.web_port}/api/upload"
            kept = (await http.post(url, files={"file": ("cat.png", PNG)}, headers=bearer)).json()
        await ask(client, "what is on it", kept["id"])
    [request] = llm.matching("what is on it")
    assert "image_url" in json.dumps(request.body["messages"][-1])


async def test_worker_and_connectors_say_how_they_are_and_what_they_did(maestro: Separate) -> None:
    async with web_client(maestro.web_port, channelId="health") as client:
        await ask(client, "how are you")
    await job_in(maestro, "health", "completed")
    done = {"worker": "call_model", "connect": "deliver"}
    async with httpx.AsyncClient(trust_env=False) as http:
        for name, step in done.items():
            url = f"http://localhost:{maestro.health_ports[name]}"
            assert (await http.get(f"{url}/healthz")).json() == {"status": "ok"}
            ready = await http.get(f"{url}/readyz")
            assert (ready.status_code, set(ready.json()["checks"].values())) == (200, {"ok"})
            told = Scrape((await http.get(f"{url}/metrics")).text)
            assert told.value("maestro_step_duration_seconds_count", step=step, outcome="done") >= 1
            assert told.value("maestro_jobs_ended_total", status="completed") >= 1, "the store is the same for all"


async def test_a_failed_job_is_replayed_from_the_process_of_the_api(
    maestro: Separate, llm: LLMServer, api: httpx.AsyncClient
) -> None:
    llm.script(match="fails", failure=Failure.status(400), times=1)
    async with web_client(maestro.web_port, channelId="replay") as client:
        await client.say("this fails")
        job = await job_in(maestro, "replay", "failed")
        await client.wait_for("message", patience=PATIENCE)
        assert (await api.post(f"/api/jobs/{job['id']}/replay", json={"mode": "resume"})).status_code == 200
        assert (await client.wait_for("message", patience=PATIENCE))["content"] == "answer to: this fails"


async def test_a_running_job_is_cancelled_from_the_process_of_the_api(
    maestro: Separate, llm: LLMServer, api: httpx.AsyncClient
) -> None:
    llm.script(match="never mind", delay=LONG)
    async with web_client(maestro.web_port, channelId="cancel") as client:
        await client.say("never mind")
        job = await job_in(maestro, "cancel", "running")
        assert (await api.post(f"/api/jobs/{job['id']}/cancel")).status_code == 200
        await job_in(maestro, "cancel", "cancelled")


async def test_messages_wait_while_the_cluster_is_away_and_the_states_are_told(
    maestro: Separate, api: httpx.AsyncClient
) -> None:
    await maestro.temporal.end()
    async with web_client(maestro.web_port, channelId="away") as client:
        assert (await client.say("are you there"))["type"] == "ack"
        answer = await api.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"]["store"] == "ok"
        assert answer.json()["checks"]["temporal"] != "ok"
        await maestro.temporal.start()
        assert (await client.wait_for("message", patience=PATIENCE))["content"] == "answer to: are you there"


async def test_the_api_says_that_nobody_works(maestro: Separate, api: httpx.AsyncClient) -> None:
    """Temporal remembers a poller for some minutes after it has gone, so a queue that nobody ever polled is asked."""
    config = json.loads(maestro.config.read_text())
    assert (await api.get("/readyz")).json()["checks"]["worker"] == "ok"
    lonely = maestro.folder / "lonely.json"
    lonely.write_text(json.dumps({**config, "temporal": {**config["temporal"], "taskQueue": "lonely"}}))
    await maestro.api.end(signal.SIGTERM)
    other = maestro.another("api", "--config", str(lonely))
    try:
        await other.says(READY["api"], await other.begin())
        await until_connected(api)
        checks = (await api.get("/readyz")).json()["checks"]
        assert checks["worker"] == "no worker polls the queue lonely: start `maestro worker`"
    finally:
        await other.end(signal.SIGTERM)
        await maestro.revive("api")


async def until_connected(api: httpx.AsyncClient) -> None:
    """Return when the API has reached Temporal."""
    async with asyncio.timeout(PATIENCE):
        while (await api.get("/readyz")).json()["checks"]["temporal"] != "ok":
            pass


@pytest.mark.parametrize("command", [("worker",), ("api",), ("connect", "web")])
async def test_without_an_address_there_is_nothing_to_share(tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = await run(*command, folder=tmp_path)
    assert ended.code == 1
    assert "temporal.address" in ended.errors
    assert "maestro up" in ended.errors
    assert not (tmp_path / "data").exists()


async def test_a_platform_that_is_not_enabled_is_named(maestro: Separate) -> None:
    ended = await run("connect", "pigeon", "--config", str(maestro.config), folder=maestro.folder)
    assert ended.code == 1
    assert "no enabled connector for pigeon (there are: discord, slack, telegram, web, whatsapp)" in ended.errors


async def test_one_that_wants_the_data_folder_alone_is_refused(maestro: Separate, tmp_path: Path) -> None:
    ended = await run("up", "--data-dir", str(maestro.data), folder=tmp_path)
    assert ended.code == 1
    assert "is in use by another Maestro" in ended.errors
