"""Every page of the dashboard in a real browser, with hostile data that the real system made.

Each is looked at in light and dark, wide and narrow. With MAESTRO_TEST_SCREENSHOTS set to a folder, the pictures
for the documentation are written there.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page

from tests.support.populated import PASSWORD, PICTURES, Populated, populated

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-pages")]

SIZES = {1280: 900, 400: 860}
NAMES = {
    "overview": "/",
    "jobs": "/queue",
    "jobs-by-error": "/queue?group=error",
    "job-completed": "/queue/{completed}",
    "job-failed": "/queue/{failed}",
    "prompt": "/queue/{completed}/calls/{call}",
    "batches": "/queue/batches",
    "questions": "/questions",
    "conversations": "/conversations",
    "conversation": "/conversations/{conversation}",
    "chat": "/chat",
    "maestro": "/maestro",
    "agents": "/agents",
    "agent": "/agent/ada",
    "tokens": "/agents/tokens",
    "memory": "/memory?agent=conductor",
    "skills": "/skills",
    "schedules": "/schedules",
    "webhooks": "/webhooks",
    "usage": "/usage",
    "accounts": "/accounts",
    "settings": "/settings",
    "audit": "/audit",
    "api": "/docs",
    "api-jobs": "/docs/jobs",
    "unknown": "/nowhere",
}
"""Every page, by the name of its picture."""
AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""
OUTSIDE = """() => {
  const main = document.getElementById("main"), root = document.documentElement;
  const bottom = (element) => element.getBoundingClientRect().bottom;
  const end = Math.max(...[...main.querySelectorAll("*")].filter((one) => one.checkVisibility()).map(bottom));
  const overflow = main.scrollHeight - main.clientHeight;
  const after = overflow && overflow - main.scrollTop - (end - bottom(main));
  return {
    right: Math.max(0, main.scrollWidth - main.clientWidth, root.scrollWidth - root.clientWidth),
    below: root.scrollHeight - root.clientHeight,
    blank: after < 2 ? 0 : Math.round(after),  // the browser rounds each of them
  };
}"""
"""Pixels that stick out at the right, by which the window scrolls (only ``main`` may), and that follow the content."""
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
"""A page takes on the other one while it is open, as with a system that turns dark in the evening."""
SEARCHED = {("light", 1280), ("dark", 400)}
"""Where a page is searched for what some people cannot use: it takes seconds, and two see every colour and place."""


@dataclass
class Stage:
    """The dashboard and a browser that is logged in, for all pages: to log in costs more than to look at one."""

    at: Populated
    visitor: BrowserContext
    paths: dict[str, str]
    axe: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with populated(tmp_path_factory.mktemp("pages")) as at:
        [call] = at.instance.query(
            "SELECT id, job_id FROM llm_calls WHERE state = 'answered' AND purpose = 'answer' ORDER BY id LIMIT 1"
        )
        [conversation] = at.instance.query("SELECT id FROM conversations ORDER BY id LIMIT 1")
        known = {
            "completed": call["job_id"],
            "failed": at.job("failed"),
            "call": call["id"],
            "conversation": conversation["id"],
        }
        paths = {name: path.format(**known) for name, path in NAMES.items()}
        axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
        visitor = await logged_in(chromium, at.home)
        yield Stage(at, visitor, paths, axe)
        await visitor.close()


async def logged_in(chromium: Browser, home: str) -> BrowserContext:
    """Return a profile of the browser whose pages are those of the operator."""
    context = await chromium.new_context(locale="en-GB", timezone_id="Europe/Amsterdam")
    answer = await context.request.post(f"{home}/login", data={"password": PASSWORD})
    assert answer.ok, await answer.text()
    return context


async def open_page(stage: Stage, troubles: list[str]) -> Page:
    """Open a page; what its console complains of is noted."""
    page = await stage.visitor.new_page()
    page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    return page


async def is_inert(page: Page) -> None:
    """Assert that nothing that people wrote became a part of the page."""
    assert await page.locator("img[src=x]").count() == 0
    assert await page.title() != "broken"


async def fits(page: Page) -> None:
    """Assert that nothing sticks out at the side, and that the page ends where its content does."""
    assert await page.evaluate(OUTSIDE) == {"right": 0, "below": 0, "blank": 0}


@pytest.mark.parametrize("name", NAMES)
async def test_a_page_is_whole(stage: Stage, name: str) -> None:
    troubles: list[str] = []
    page = await open_page(stage, troubles)
    answer = await page.goto(stage.at.home + stage.paths[name])
    assert answer is not None
    assert answer.status == (404 if name == "unknown" else 200)
    if name == "unknown":
        troubles.clear()  # a browser complains of every 404
    assert await page.locator("h1").count() == 1
    for (width, height), scheme in product(SIZES.items(), SCHEMES):
        await page.set_viewport_size({"width": width, "height": height})
        await page.emulate_media(color_scheme=scheme)
        await fits(page)
        await is_inert(page)
        await picture(page, name, scheme, width)
        if (scheme, width) in SEARCHED:
            await page.evaluate(stage.axe)
            assert await page.evaluate(AXE) == [], f"{scheme}, at {width} pixels"
    assert troubles == []
    await page.close()


async def picture(page: Page, name: str, scheme: Scheme, width: int) -> None:
    """Write a picture of the page, where somebody wants one."""
    folder = os.environ.get(PICTURES)
    if folder:
        path = Path(folder) / f"{name}-{scheme}-{width}.png"
        await page.screenshot(path=path, animations="disabled")
