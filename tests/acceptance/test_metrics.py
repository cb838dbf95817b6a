"""What a collector sees of a message: it is told once, from its arrival to the receipt of its answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest_asyncio

from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port
from tests.support.scraping import Scrape

PASSWORD = "correct horse battery staple"
PATIENCE = 30.0
STEPS = ("choose_agent", "record_message", "build_context", "call_model", "record_answer", "deliver")
"""The activities of the shortest way a message can go."""


@pytest_asyncio.fixture
async def maestro(tmp_path: Path) -> AsyncIterator[Instance]:
    webui = {"enabled": True, "port": free_port(), "password": PASSWORD}
    async with running_instance(tmp_path, webui=webui, web={"apiKey": "key"}) as instance:
        yield instance


async def scrape(maestro: Instance) -> Scrape:
    """Ask as a collector does."""
    url = f"http://localhost:{maestro.loaded.settings.webui.port}/metrics"
    async with httpx.AsyncClient(auth=("maestro", PASSWORD), trust_env=False) as http:
        return Scrape((await http.get(url)).raise_for_status().text)


async def test_a_message_that_was_answered_is_counted_once(maestro: Instance) -> None:
    before = await scrape(maestro)
    assert before.value("maestro_jobs_ended_total", status="completed") == 0
    async with maestro.client("general", api_key="key") as client:
        await client.say("hello")
        await client.wait_for("message")
    await maestro.ended("general", "completed")
    found = await scrape(maestro)
    assert found.value("maestro_messages_received_total", platform="web") == 1
    assert found.value("maestro_jobs_ended_total", status="completed") == 1
    assert found.value("maestro_job_duration_seconds_count") == 1
    assert found.value("maestro_llm_calls_total", outcome="answered", provider="openai") == 1
    assert found.value("maestro_llm_tokens_total", direction="output", provider="openai") > 0
    assert found.value("maestro_deliveries_total", platform="web", state="sent") == 1
    for gauge in ("maestro_llm_calls_in_flight", "maestro_deliveries_open", "maestro_jobs_oldest_pending_age_seconds"):
        assert found.value(gauge) == 0


async def test_each_of_its_steps_was_timed_once(maestro: Instance) -> None:
    async with maestro.client("general", api_key="key") as client:
        await client.say("hello")
        await client.wait_for("message")
    await maestro.ended("general", "completed")
    async with asyncio.timeout(PATIENCE):
        # The job is closed by the last transaction of its delivery, and the step is over a moment later.
        while 'step="deliver"' not in (found := await scrape(maestro)).text:
            pass
    for step in STEPS:
        assert found.value("maestro_step_duration_seconds_count", step=step, outcome="done") == 1
    assert found.text.count("maestro_step_duration_seconds_count{") == len(STEPS)


async def test_what_works_is_told_with_the_state_of_the_connector(maestro: Instance) -> None:
    found = await scrape(maestro)
    for check in ("store", "temporal", "worker"):
        assert found.value("maestro_check_ok", check=check) == 1
    assert found.value("maestro_connector_state", platform="web", account="default", state="running") == 1
    assert found.value("maestro_build_info", command="up") == 1
    assert found.value("maestro_jobs_pending_limit") == maestro.loaded.settings.jobs.max_pending
