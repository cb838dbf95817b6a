"""The page of jobs in a real browser: how much of it is seen, and the clock of the person who looks."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from maestro.domain.jobs.job import JobStatus
from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import profile
from tests.support.job_rows import JobRows

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "Please summarise ticket 4711 for the board, with the three open points of the last meeting and who has them."
SEEN = """() => [...document.querySelectorAll("tr[data-row]")]
  .filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length"""
READABLE = """() => Math.min(...[...document.querySelectorAll("tr[data-row] th")].map((cell) => cell.clientWidth))"""


async def test_twenty_jobs_are_seen_and_found_by_the_clock_of_the_browser(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    rows.clock.now = datetime.now(UTC) - timedelta(days=2)
    asked = rows.failed(LONG)
    minute = rows.clock.now
    rows.clock.go(hours=1)
    for _ in range(30):
        rows.end(rows.add(LONG), JobStatus.COMPLETED)
    size = {"width": 1440, "height": 900}
    async with dashboard(rows) as home, profile(chromium, viewport=size, timezone_id="Asia/Kolkata") as own:
        page = await own.new_page()
        await log_in(page, home)
        await page.goto(f"{home}/queue")
        assert await page.evaluate(SEEN) >= 20
        assert await page.evaluate(READABLE) >= 300
        await page.set_viewport_size({"width": 1280, "height": 900})
        assert await page.evaluate(SEEN) >= 20
        await expect(page.locator("[data-zone]").first).to_have_text("GMT+5:30")
        there = minute + timedelta(hours=5, minutes=30)
        this_year = there.year == (datetime.now(UTC) + timedelta(hours=5, minutes=30)).year
        shown = f"{there:%m-%d %H:%M}" if this_year else f"{there:%Y-%m-%d}"
        await expect(page.locator(f"#row-{asked} time[data-clock]")).to_have_text(shown)
        typed = f"{there:%Y-%m-%dT%H:%M}"
        await page.get_by_label("Around").fill(typed)
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tr[data-row]")).to_have_count(1)
        await expect(page.locator(f"#row-{asked}")).to_be_visible()
        await expect(page.get_by_label("Around")).to_have_value(typed)
        assert f"at={minute:%Y-%m-%dT%H}%3A{minute:%M}" in page.url
        await page.get_by_role("link", name="Failed 1").click()
        await page.get_by_role("link", name=LONG).click()
        await expect(page.locator(".job-at").first).to_have_text(f"{there:%H:%M:%S}")
        await expect(page.locator(".job-facts")).to_contain_text(f"{there:%Y-%m-%d %H:%M:%S} GMT+5:30")
    rows.store.close()
