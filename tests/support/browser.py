"""The browser that the tests drive."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, BrowserContext, async_playwright, expect

ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-gpu-compositing")
"""Without a graphics card Chromium computes one, which costs more than to draw without."""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

PATIENCE_MS = 30_000
"""How long a page may take to show what is expected of it; only a failure ever takes so long."""


def chromium() -> str:
    """Return the path of the system's Chromium; its absence is a failure with the fix, never a skip."""
    found = os.environ.get("MAESTRO_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium here: `make test` installs one, or set MAESTRO_TEST_CHROMIUM to a browser's path"
    return found


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run a browser."""
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield running
        await running.close()


@asynccontextmanager
async def profile(chromium: Browser, **options: Any) -> AsyncIterator[BrowserContext]:
    """Open a browser as somebody new has it; ``options`` are those of Playwright."""
    context = await chromium.new_context(**options)
    try:
        yield context
    finally:
        await context.close()
