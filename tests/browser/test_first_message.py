"""The first five minutes of a newcomer: start it, open the page, say hello, and pull the plug."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import profile
from tests.support.command import Ports, up
from tests.support.ports import free_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser) -> AsyncIterator[Page]:
    async with profile(chromium) as context:
        yield await context.new_page()


async def test_hello_is_answered_and_a_kill_loses_nothing(tmp_path: Path, page: Page) -> None:
    ports = Ports(*free_ports(4))
    async with up(tmp_path, ports) as first:
        await page.goto(f"http://localhost:{ports.webui}/")
        await page.get_by_role("link", name="Write to your agents").click()
        await expect(
            page.get_by_text("Connected", exact=True)
        ).to_be_visible()  # its script listens to keys from then on
        box = page.get_by_label("Message", exact=True)
        await box.fill("hello")
        await box.press("Enter")
        await expect(page.locator(".message.theirs")).to_contain_text('You said: "hello"', timeout=30_000)
        await first.end(signal.SIGKILL)
        await box.fill("are you back?")
        await box.press("Enter")
    async with up(tmp_path, ports) as second:
        answers = page.locator(".message.theirs")
        await expect(answers).to_have_count(2, timeout=60_000)
        await expect(answers.last).to_contain_text('You said: "are you back?"')
        await expect(page.locator(".message.mine")).to_have_count(2)
        assert await second.end() == 0
