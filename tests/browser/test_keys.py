"""The keys of a list: every line is a place to stand on, those that lead nowhere as well."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import profile
from tests.support.job_rows import JobRows
from tests.support.wishes import wish

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_lines_without_a_link_are_walked_over_too(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    for user, code in (("ada", "ABCDEFGH"), ("bob", "BCDEFGHJ")):
        wish(rows, user, code)
    async with dashboard(rows) as home, profile(chromium) as own:
        page = await own.new_page()
        await log_in(page, home)
        await page.goto(f"{home}/accounts")
        first, second = page.locator("#pairing-1"), page.locator("#pairing-2")
        for key, line in (("j", first), ("j", second), ("k", first)):
            await page.keyboard.press(key)
            await expect(line).to_be_focused()
    rows.store.close()
