"""The keys of a list: every line is a place to stand on, those that lead nowhere as well."""

from pathlib import Path

from playwright.async_api import expect

from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import browser
from tests.support.job_rows import JobRows
from tests.support.wishes import wish


async def test_lines_without_a_link_are_walked_over_too(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    for user, code in (("ada", "ABCDEFGH"), ("bob", "BCDEFGHJ")):
        wish(rows, user, code)
    async with dashboard(rows) as home, browser() as chromium:
        page = await (await chromium.new_context()).new_page()
        await log_in(page, home)
        await page.goto(f"{home}/accounts")
        first, second = page.locator("#pairing-1"), page.locator("#pairing-2")
        for key, line in (("j", first), ("j", second), ("k", first)):
            await page.keyboard.press(key)
            await expect(line).to_be_focused()
    rows.store.close()
