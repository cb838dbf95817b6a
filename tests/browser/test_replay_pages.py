"""Replays in a real browser: a failed job resumed without paying again, and many of them at once."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from ulid import ULID

from connectors.base import FailureScope, PermanentSend
from maestro.domain.jobs.job import Job, JobEnding, JobKind, JobStatus
from maestro.domain.messages import Address, IncomingMessage, lane_key
from tests.support.browser import profile
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("replay-pages")]

MANY = 60
"""More than one page of the list holds, and than a batch begins at a time; each costs a fifth of a second of CPU."""
CHANNELS = 30
AT_ONCE_MS = 150_000


def answers(instance: Instance) -> int:
    """Count the requests that the model server got."""
    return len(instance.llm.requests)


async def open_dashboard(page: Page, home: str, troubles: list[str]) -> None:
    """Look at the dashboard, which has no password here, and note what the console complains of."""
    page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    await page.goto(home)


async def test_a_job_that_failed_at_its_delivery_is_resumed_without_paying_again(
    tmp_path: Path, chromium: Browser
) -> None:
    port, troubles = free_port(), list[str]()
    async with (
        running_instance(tmp_path, webui={"enabled": True, "port": port}) as maestro,
        profile(chromium) as context,
    ):
        maestro.taps.failures["lobby"].append(PermanentSend("gone", scope=FailureScope.MESSAGE))
        async with maestro.client("lobby") as client:
            await client.say("what is six times seven")
            [job] = await maestro.ended("lobby", "failed")
            paid = answers(maestro)
            page = await context.new_page()
            await open_dashboard(page, f"http://localhost:{port}/queue?status=failed", troubles)
            await page.get_by_role("row").filter(has_text="six times seven").get_by_role("link").first.click()
            await page.get_by_role("link", name="Resume", exact=True).click()
            await expect(page.locator("main")).to_contain_text("Send the answer")
            await expect(page.locator("main")).to_contain_text("no model call")
            await page.get_by_role("button", name="Resume").click()
            await page.wait_for_url(f"**/queue/{job['id']}")
            await expect(page.locator(".head .tag.state")).to_have_text("completed")
            assert (await client.wait_for("message"))["content"] == "answer to: what is six times seven"
        assert answers(maestro) == paid == 1
        assert [
            row["action"] for row in maestro.query("SELECT action FROM audit_log WHERE subject = ?", job["id"])
        ] == ["job.resume"]
    assert troubles == []


async def test_many_failed_jobs_are_resumed_at_once_and_each_is_answered_once(
    tmp_path: Path, chromium: Browser
) -> None:
    port, troubles = free_port(), list[str]()
    async with (
        running_instance(tmp_path, webui={"enabled": True, "port": port}) as maestro,
        profile(chromium) as context,
    ):
        fail_many(maestro)
        page = await context.new_page()
        await open_dashboard(page, f"http://localhost:{port}/queue?group=error", troubles)
        await page.get_by_role("button", name=f"Resume all {MANY} with ProviderDown").click()
        await expect(page.locator("#possible")).to_have_text(str(MANY))
        assert answers(maestro) == 0
        await page.locator("#confirm").click()
        await page.wait_for_url("**/queue/batches/*")
        await expect(page.locator("#completed")).to_have_text(str(MANY), timeout=AT_ONCE_MS)
        await expect(page.locator("#refused")).to_have_text("0")
        assert [tuple(row) for row in maestro.query("SELECT status, count(*) FROM queue GROUP BY status")] == [
            ("completed", MANY)
        ]
        assert sorted(request.last_user for request in maestro.llm.requests) == sorted(map(question, range(MANY)))
        assert troubles == []


def question(number: int) -> str:
    """Return what was asked in one of many messages."""
    return f"question {number:04}"


def fail_many(maestro: Instance) -> None:
    """Keep many messages, over some channels, whose jobs failed while a provider was away."""
    with maestro.operator() as operator, operator.store.begin() as tx:
        for number in range(MANY):
            address = Address(platform="web", channel=f"c-{number % CHANNELS}")
            message = IncomingMessage(
                id=f"m-{number}",
                address=address,
                user_id="u-1",
                user_name="Grace",
                content=question(number),
                sent_at=tx.now,
                is_direct=True,
            )
            job = Job(
                id=f"{JobKind.MESSAGE}-{ULID()}",
                lane=lane_key(address, None),
                created_at=tx.now,
                **address.model_dump(),
            )
            job.inbox_id = tx.inbox.add(message, job.id).id
            tx.jobs.add(job)
            tx.jobs.close_job(job.id, JobEnding(status=JobStatus.FAILED, error="ProviderDown", reason="HTTP 503"))
