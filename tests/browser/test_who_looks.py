"""What a page says of who looks at it: on a phone as well, and when the login is over."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, ViewportSize, expect

from tests.browser.test_logout import LOG_OUT, dashboard, log_in
from tests.support.api_client import VIEWER_PASSWORD
from tests.support.browser import profile
from tests.support.job_rows import JobRows

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE: ViewportSize = {"width": 400, "height": 800}


@pytest.mark.parametrize(("password", "words"), [("", "No password"), (VIEWER_PASSWORD, "Read only")])
async def test_a_phone_shows_who_may_do_what(tmp_path: Path, chromium: Browser, password: str, words: str) -> None:
    rows = JobRows.at(tmp_path)
    async with (
        dashboard(rows, **({} if password else {"password": ""})) as home,
        profile(chromium, viewport=PHONE) as own,
    ):
        page = await own.new_page()
        await page.goto(home)
        if password:
            await page.get_by_label("Password").fill(password)
            await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await expect(page.get_by_role("banner").get_by_text(words)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    rows.store.close()


async def test_a_page_that_follows_says_that_somebody_logged_out_elsewhere(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    async with dashboard(rows) as home, profile(chromium) as own:
        page, other = await own.new_page(), await own.new_page()
        await log_in(page, home)
        await other.goto(home)
        state = other.locator("#live-state")
        await expect(state).to_have_text("Live")
        await page.evaluate(LOG_OUT)
        await page.wait_for_url(f"{home}/login?left=true")
        await expect(state).to_have_text("Logged out")
        await expect(other.get_by_role("heading", name="Overview")).to_be_visible()
    rows.store.close()
