"""The trace of a message, from the platform's event to the delivery, as a collector of OpenTelemetry sees it.

See docs/howto/trace-a-message.md.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.support.command import maestro as run
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan, otlp_collector
from tests.support.scraping import Scrape
from tests.support.separate import EXPORT_CLAIM, READY, Separate, separate, short_export_claims
from tests.support.web_client import web_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]

PATIENCE = 60.0
TAKEOVER = EXPORT_CLAIM.total_seconds() + PATIENCE
"""Seconds for an export: the one that exported may have been killed, and its claim must run out first."""
TRACE_URL = "https://traces.example.org/trace/{traceId}"
ORDINARY = [
    "message web",
    "receive",
    "accept",
    "wait for lane",
    "start workflow",
    "route",
    "conversation",
    "context",
    "model",
    "chat gpt-4o-mini",
    "tags",
    "deliver",
    "send web",
]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    with otlp_collector() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(
    llm: LLMServer, collector: OtlpCollector, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Separate]:
    agents = [{"slug": "conductor", "role": "conductor"}, {"slug": "bob", "tools": ["calculate"]}]
    telemetry = {
        "enabled": True,
        "endpoint": collector.url,
        "headers": "x-tenant=maestro%20tests,authorization=Bearer k",
        "exportSeconds": 0.1,
        "traceUrl": TRACE_URL,
    }
    folder = tmp_path_factory.mktemp("traces")
    async with separate(folder, llm, short_export_claims, agents=agents, telemetry=telemetry) as started:
        yield started


@pytest.fixture
def evidence(maestro: Separate) -> Evidence:
    return Evidence(maestro.data)


async def trace_of(collector: OtlpCollector, job: Row) -> list[ReceivedSpan]:
    """Return the trace of a job as soon as it has arrived."""
    await until(lambda: bool(collector.trace_of(job["id"])), TAKEOVER, what=f"the trace of {job['id']}")
    return collector.trace_of(job["id"])


async def ended(evidence: Evidence, channel: str, count: int = 1) -> list[Row]:
    """Return the jobs of a channel, oldest first, as soon as so many have ended."""
    found: list[Row] = []

    def there() -> bool:
        sql = "SELECT * FROM queue WHERE channel = ? AND completed_at IS NOT NULL ORDER BY created_at"
        found[:] = evidence.rows(sql, channel)
        return len(found) >= count

    await until(there, PATIENCE, what=f"{count} jobs that ended in {channel}")
    return found


def named(trace: list[ReceivedSpan], name: str) -> ReceivedSpan:
    [span] = [span for span in trace if span.name == name]
    return span


def parents(trace: list[ReceivedSpan]) -> Callable[[ReceivedSpan], str]:
    """Return a function that tells the name of a span's parent, and fails for a parent that is not in the trace."""
    names = {span.span_id: span.name for span in trace}
    assert len(names) == len(trace)
    return lambda span: names[span.parent_id] if span.parent_id else ""


async def test_a_message_is_one_whole_trace_across_connect_worker_and_collector(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector
) -> None:
    async with web_client(maestro.web_port, channelId="whole") as client:
        ack = await client.say("a confidential sentence")
        await client.wait_for("message", patience=PATIENCE)
    [job] = await ended(evidence, "whole")
    trace = await trace_of(collector, job)
    parent_of = parents(trace)
    assert sorted(span.name for span in trace) == sorted(ORDINARY)
    assert [span.name for span in trace if not span.parent_id] == ["message web"]
    assert parent_of(named(trace, "chat gpt-4o-mini")) == "model"
    assert parent_of(named(trace, "send web")) == "deliver"
    assert {span.command for span in trace} == {"connect", "worker"}
    assert {named(trace, name).command for name in ("message web", "receive", "accept", "send web")} == {"connect"}
    assert {named(trace, name).command for name in ("route", "context", "model", "chat gpt-4o-mini")} == {"worker"}
    root = named(trace, "message web")
    assert all(root.start <= span.start <= span.end <= root.end for span in trace)
    assert root.attributes["messaging.message.id"].endswith(ack["messageId"])
    assert {"maestro.platform": "web", "maestro.agent": "conductor"}.items() <= root.attributes.items()
    assert root.service["service.name"] == "maestro"
    assert collector.headers[-1]["x-tenant"] == "maestro tests"


async def test_a_model_call_shows_account_tokens_and_cost_and_no_attribute_holds_content(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector, llm: LLMServer
) -> None:
    llm.script("unmistakable", calls=[("calculate", {"expression": "6*7"})], rounds=0)
    llm.script("unmistakable", reply="a secret reply", rounds=1)
    async with web_client(maestro.web_port, channelId="content", userName="Somebody Private") as client:
        assert (await client.say("something unmistakable, @bob"))["type"] == "ack"
        await client.wait_for("message", patience=PATIENCE)
    [job] = await ended(evidence, "content")
    trace = await trace_of(collector, job)
    calls = [span for span in trace if span.name == "chat gpt-4o-mini"]
    rows = evidence.rows("SELECT * FROM llm_calls WHERE job_id = ? ORDER BY id", job["id"])
    assert [call.attributes["gen_ai.usage.input_tokens"] for call in calls] == [row["input_tokens"] for row in rows]
    assert [call.attributes["maestro.llm.cost_usd"] for call in calls] == [row["cost_usd"] for row in rows]
    assert {call.attributes["maestro.llm.account"] for call in calls} == {"main"}
    tool = named(trace, "execute_tool calculate")
    assert parents(trace)(tool) == "tool"
    everything = b"".join(collector.bodies)
    for text in (b"unmistakable", b"secret reply", b"6*7", b"Private", b"key-of-the-account", b"content"):
        assert text not in everything, text


async def test_a_trace_is_whole_although_the_worker_was_killed_in_a_model_call(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector, llm: LLMServer
) -> None:
    llm.script("hold on", delay=3.0, times=1, reply="too late")
    async with web_client(maestro.web_port, channelId="killed") as client:
        assert (await client.say("hold on"))["type"] == "ack"
        await until(lambda: bool(llm.matching("hold on")), PATIENCE, what="the model call")
        await maestro.worker.end()
        await maestro.revive("worker")
        await client.wait_for("message", patience=PATIENCE)
    [job] = await ended(evidence, "killed")
    trace = await trace_of(collector, job)
    parent_of = parents(trace)
    assert all(parent_of(span) or span.name == "message web" for span in trace)
    attempts = [(span.failed, span.service["service.instance.id"]) for span in trace if span.name == "model"]
    assert [failed for failed, _ in attempts] == ["interrupted", ""]
    assert len({process for _, process in attempts}) == 2
    calls = [span for span in trace if span.name == "chat gpt-4o-mini"]
    assert [call.attributes["maestro.llm.state"] for call in calls] == ["interrupted", "answered"]


async def test_a_lost_collector_delays_no_message_and_gets_each_trace_once_when_it_is_back(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector
) -> None:
    collector.status, before = HTTPStatus.SERVICE_UNAVAILABLE, collector.refused
    try:
        async with web_client(maestro.web_port, channelId="away") as client:
            for number in range(3):
                assert (await client.say(f"number {number}"))["type"] == "ack"
                await client.wait_for("message", patience=PATIENCE)
        jobs = await ended(evidence, "away", 3)
        await until(lambda: collector.refused > before, PATIENCE, what="an export that failed")
    finally:
        collector.status = HTTPStatus.OK
    for job in jobs:
        trace = await trace_of(collector, job)
        assert sorted(span.name for span in trace) == sorted(ORDINARY)
    names = [span.span_id for span in collector.spans]
    assert len(names) == len(set(names)), "a span arrived twice"
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        metrics = Scrape((await http.get(f"http://127.0.0.1:{maestro.health_ports['worker']}/metrics")).text)
    assert metrics.value("maestro_traces_exported_total", outcome="sent") >= 3


async def test_a_restart_through_the_api_is_a_trace_of_its_own_that_links_to_the_first(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector
) -> None:
    async with web_client(maestro.web_port, channelId="again") as client:
        assert (await client.say("once more"))["type"] == "ack"
        await client.wait_for("message", patience=PATIENCE)
        [first] = await ended(evidence, "again")
        async with httpx.AsyncClient(base_url=f"http://localhost:{maestro.api_port}", timeout=PATIENCE) as api:
            answer = await api.post(f"/api/jobs/{first['id']}/replay", json={"mode": "restart"})
            shown = (await api.get(f"/api/jobs/{first['id']}")).json()
        await client.wait_for("message", patience=PATIENCE)
    second = next(job for job in await ended(evidence, "again", 2) if job["id"] == answer.json()["id"])
    original, trace = await trace_of(collector, first), await trace_of(collector, second)
    assert shown["traceId"] == original[0].trace_id
    assert shown["traceUrl"] == TRACE_URL.replace("{traceId}", shown["traceId"])
    root = named(trace, "message web")
    assert root.command == "api"
    assert root.links == (("restarted from", original[0].trace_id),)
    assert "receive" not in {span.name for span in trace}


async def test_the_command_shows_the_id_of_the_trace(maestro: Separate, evidence: Evidence, tmp_path: Path) -> None:
    job = evidence.rows("SELECT id FROM queue ORDER BY created_at LIMIT 1")[0]
    done = await run("--config", str(maestro.config), "jobs", "show", job["id"], "--json", folder=tmp_path)
    assert len(json.loads(done.output)["traceId"]) == 32


async def test_another_process_goes_on_where_the_exporting_one_ended(
    maestro: Separate, evidence: Evidence, collector: OtlpCollector
) -> None:
    await maestro.worker.end()
    await maestro.worker.says(READY["worker"], await maestro.worker.begin())
    async with web_client(maestro.web_port, channelId="taken-over") as client:
        assert (await client.say("hello"))["type"] == "ack"
        await client.wait_for("message", patience=PATIENCE)
    [job] = await ended(evidence, "taken-over")
    assert sorted(span.name for span in await trace_of(collector, job)) == sorted(ORDINARY)
    names = [span.span_id for span in collector.spans]
    assert len(names) == len(set(names)), "a span arrived twice"
