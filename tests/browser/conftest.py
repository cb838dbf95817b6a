"""One browser for all tests of a worker, which run with ``loop_scope="session"``: to start one costs more than most.

Each test opens a profile of its own (``tests.support.browser.profile``), which shares nothing with others.
"""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser."""
    async with browser() as running:
        yield running
