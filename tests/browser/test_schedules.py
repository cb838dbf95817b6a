"""The page of schedules in a real browser: planned with its times in view, refused, paused, begun and removed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import profile
from tests.support.job_rows import JobRows

pytestmark = pytest.mark.asyncio(loop_scope="session")

XSS = "<img src=x onerror=\"document.title='broken'\">"


@dataclass
class Schedules:
    """The page, logged in; ``troubles`` is what its console complained about."""

    page: Page
    rows: JobRows
    home: str
    troubles: list[str] = field(default_factory=list)

    @property
    def times(self) -> Locator:
        """The times that the form shows of what is typed."""
        return self.page.locator("#preview li")

    @property
    def said(self) -> Locator:
        """What the form says of what is typed."""
        return self.page.locator("#preview p")

    def line(self, ref: str) -> Locator:
        """What the list says of a schedule."""
        return self.page.locator(f"#{ref}")

    async def type(self, **fields: str) -> None:
        """Fill in fields by their names."""
        for name, text in fields.items():
            await self.page.locator(f"#plan [name={name}]").fill(text)

    async def fits(self) -> None:
        """Assert that nothing sticks out at the side."""
        assert await self.page.locator("#main").evaluate("main => main.scrollWidth <= main.clientWidth")

    async def press(self, name: str) -> None:
        """Press a button."""
        await self.page.get_by_role("button", name=name).click()


@asynccontextmanager
async def schedules(chromium: Browser, folder: Path, **options: object) -> AsyncIterator[Schedules]:
    """Serve the dashboard and open the page; nothing may be complained about when the block is over."""
    rows = JobRows.at(folder)
    async with dashboard(rows) as home, profile(chromium, **options) as context:
        page = await context.new_page()
        await log_in(page, home)
        opened = Schedules(page, rows, home)
        page.on("console", lambda said: opened.troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: opened.troubles.append(str(error)))
        await page.goto(f"{home}/schedules")
        yield opened
        assert opened.troubles == []
    rows.store.close()


async def test_a_person_plans_something_pauses_it_runs_it_and_removes_it(tmp_path: Path, chromium: Browser) -> None:
    async with schedules(chromium, tmp_path, timezone_id="Europe/Amsterdam") as at:
        await expect(at.page.get_by_text("Nothing is planned yet.")).to_be_visible()
        await expect(at.page.get_by_label("Time zone")).to_have_value("Europe/Amsterdam")
        await expect(at.page.get_by_role("button", name="Show its next five times")).to_be_hidden()
        await at.type(schedule="0 9 * * mon")
        await expect(at.said).to_have_text("at 09:00 on Mondays")
        await expect(at.times).to_have_count(5)
        await expect(at.times.first).to_have_text("Mon 2026-11-23 09:00 CET")
        await at.type(schedule="every 10s")
        await expect(at.said).to_contain_text("an interval has at least 30 seconds")
        await at.type(schedule="0 9 * * mon", prompt=XSS, channel="news")
        await at.press("Add schedule")
        await expect(at.line("cron-1").get_by_role("row").first).to_contain_text("at 09:00 on MondaysEurope/Amsterdam")
        await expect(at.line("cron-1").locator("time").first).to_have_attribute("title", "Mon 2026-11-23 09:00 CET")
        await expect(at.line("cron-1")).to_contain_text(XSS)
        await at.press("Pause cron-1")
        await expect(at.line("cron-1")).to_contain_text("An operator paused the schedule.")
        await at.press("Run cron-1 now")
        with at.rows.store.view() as tx:
            job_id = tx.background.schedules.get("cron-1").last_job_id
        pending = at.line("cron-1").get_by_role("link", name="pending")
        await expect(pending).to_have_attribute("href", f"/queue/{job_id}")
        await at.press("Resume cron-1")
        await expect(at.line("cron-1").locator(".tag")).to_have_text("active")
        await at.line("cron-1").get_by_text("More").click()
        await at.press("Remove cron-1")
        await expect(at.page.get_by_text("Nothing is planned yet.")).to_be_visible()
        assert await at.page.title() == "Schedules – Maestro"


async def test_everything_works_without_a_script(tmp_path: Path, chromium: Browser) -> None:
    async with schedules(chromium, tmp_path, java_script_enabled=False, viewport={"width": 400, "height": 800}) as at:
        await at.type(schedule="banana", channel="news", prompt="Tell the news.")
        await at.press("Show its next five times")
        await expect(at.said).to_contain_text("write it as every 15m")
        await at.type(schedule="every 2h")
        await at.press("Show its next five times")
        await expect(at.times).to_have_count(5)
        await expect(at.page.locator("[name=channel]")).to_have_value("news")
        await at.press("Add schedule")
        await expect(at.line("cron-1")).to_contain_text("every 2 hours")
        await at.line("cron-1").get_by_role("link", name="Edit cron-1").click()
        await at.type(schedule="every 3h")
        await at.press("Save")
        await expect(at.line("cron-1")).to_contain_text("every 3 hours")


async def test_it_fits_a_window_in_both_lights(tmp_path: Path, chromium: Browser) -> None:
    async with schedules(chromium, tmp_path, viewport={"width": 400, "height": 800}, color_scheme="dark") as at:
        await at.type(schedule="*/20 8-17 * * mon-fri", channel="C" * 200, prompt="word" * 200)
        await at.press("Add schedule")
        await expect(at.line("cron-1")).to_be_visible()
        await at.fits()
        await at.page.emulate_media(color_scheme="light")
        await at.page.set_viewport_size({"width": 1280, "height": 800})
        await at.fits()
