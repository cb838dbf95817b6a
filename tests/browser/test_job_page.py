"""The page of a job in a real browser: it follows the job by itself, and leaves alone what somebody opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import JobStatus, StepRef, Wait
from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import profile
from tests.support.job_rows import JobRows
from tests.support.spoken import Spoken

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def opened(chromium: Browser, rows: JobRows, job_id: str, scripts: bool = True) -> AsyncIterator[Page]:
    """Open the page of a job; nothing may be complained about when the block is over."""
    troubles: list[str] = []
    async with dashboard(rows) as home, profile(chromium, java_script_enabled=scripts) as own:
        page = await own.new_page()
        await log_in(page, home)
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        await page.goto(f"{home}/queue/{job_id}")
        yield page
        assert troubles == []
    rows.store.close()


def begin(rows: JobRows, job_id: str, step: str, run: int = 1) -> StepRef:
    ref = StepRef(job_id=job_id, step=step)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, started_at=tx.now)
        tx.jobs.steps.start_attempt(ref, step, run)
    return ref


async def test_the_page_follows_a_job_and_keeps_what_was_opened(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    job_id = Spoken(rows).prepared("what is the weather?")
    begin(rows, job_id, "model-1")
    async with opened(chromium, rows, job_id) as page:
        now, layers = page.locator("#now"), page.locator("#layers")
        await expect(now).to_contain_text("Ask the model, call 1")
        await layers.locator("summary").click()
        begin(rows, job_id, "tags")
        await expect(now).to_contain_text("Act on the answer")
        await expect(layers).to_have_attribute("open", "")
        await expect(layers.locator("summary")).to_be_focused()
        rows.end(job_id, JobStatus.FAILED, "ProviderDown", "the provider is down")
        await expect(page.locator("#why")).to_contain_text("the provider is down")
        await expect(now).to_have_count(0)
        await expect(layers).to_have_attribute("open", "")


async def test_a_run_that_was_closed_stays_closed(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    job_id = rows.add()
    for run in (1, 2):
        ref = begin(rows, job_id, "model-1", run)
        with rows.store.begin() as tx:
            tx.jobs.steps.suspend_attempt(ref, "NoAccount", "", Wait(reason=WaitReason.ACCOUNT))
    async with opened(chromium, rows, job_id) as page:
        await page.locator("#run-2 > summary").click()
        await page.locator("#run-1 > summary").click()
        begin(rows, job_id, "tags", 3)
        await expect(page.locator("#run-3")).to_have_attribute("open", "")
        await expect(page.locator("#run-1")).to_have_attribute("open", "")
        await expect(page.locator("#run-2")).not_to_have_attribute("open", "")


async def test_a_job_is_resumed_and_cancelled_without_a_script(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    job_id = rows.failed("hello")
    async with opened(chromium, rows, job_id, scripts=False) as page:
        await expect(page.get_by_role("button", name="Copy")).to_be_hidden()
        await page.get_by_role("link", name="Resume").click()
        await expect(page.locator("#goes-on")).to_have_text("Choose the agent")
        await page.get_by_role("button", name="Resume it").click()
        await expect(page.locator(".tag.state").first).to_have_text("pending")
        await page.get_by_role("link", name="Cancel").click()
        await expect(page.get_by_text("No step runs at the moment")).to_be_visible()
        await page.get_by_role("button", name="Cancel the job").click()
        await expect(page.locator(".tag.state").first).to_have_text("cancelled")
