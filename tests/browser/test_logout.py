"""Logging out in a real browser: nothing of a chat stays behind, in no tab."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from maestro.serving import ListenAddress, Server, listen_on_address, serve_until_cancelled, uvicorn_config
from tests.support.api_client import PASSWORD, app_of
from tests.support.browser import profile
from tests.support.job_rows import JobRows

pytestmark = pytest.mark.asyncio(loop_scope="session")

REMEMBER = """localStorage.setItem("maestro.chat.main", JSON.stringify({
  channelId: "c", lastId: 1, resumeToken: "a token",
  entries: [{ mine: true, clientId: "1", text: "private", files: [], at: 0, state: "kept" }],
}))"""
KEYS = 'Object.keys(localStorage).filter((key) => key.startsWith("maestro.chat."))'
LOG_OUT = """document.body.insertAdjacentHTML("beforeend", `<form id="out" method="post" action="/logout">
  <input name="csrf_token" value="${document.querySelector('meta[name="csrf-token"]').content}"></form>`);
document.getElementById("out").submit()"""


@asynccontextmanager
async def dashboard(rows: JobRows, **changes: Any) -> AsyncIterator[str]:
    """Serve the real application, without a web connector, and return its address."""
    started = asyncio.Event()

    async def serving() -> None:
        started.set()

    sockets = listen_on_address(ListenAddress("127.0.0.1", 0, section="webui", option="--port"))
    app = app_of(rows, web_port=0, **changes)
    task = asyncio.create_task(serve_until_cancelled(Server(uvicorn_config(app), serving), sockets))
    await started.wait()
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def log_in(page: Page, home: str) -> None:
    """Fill in the form."""
    await page.goto(f"{home}/chat")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(f"{home}/chat")


async def test_a_logout_leaves_nothing_in_the_browser(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    async with dashboard(rows) as home, profile(chromium) as own:
        page = await own.new_page()
        await log_in(page, home)
        await page.evaluate(REMEMBER)
        other = await own.new_page()
        await other.goto(f"{home}/chat")
        await expect(other.get_by_text("private")).to_be_visible()

        await page.evaluate(LOG_OUT)
        await page.wait_for_url(f"{home}/login?left=true")
        await other.wait_for_url(f"{home}/login?next=*")
        for tab in (page, other):
            await expect(tab.get_by_label("Password")).to_be_visible()
            assert await tab.evaluate(KEYS) == []
    rows.store.close()


async def test_the_end_of_a_session_alone_keeps_what_was_written(tmp_path: Path, chromium: Browser) -> None:
    rows = JobRows.at(tmp_path)
    async with dashboard(rows) as home, profile(chromium) as own:
        page = await own.new_page()
        await log_in(page, home)
        await page.evaluate(REMEMBER)
        rows.clock.go(hours=13)
        await page.reload()
        await expect(page.get_by_label("Password")).to_be_visible()
        assert await page.evaluate(KEYS) == ["maestro.chat.main"]
    rows.store.close()
