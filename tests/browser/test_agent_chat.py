"""The #maestro pane in a real browser: new posts appear, and what is being typed stays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from api.parts import AgentChat
from maestro.domain.settings.jobs import ChatLimits, ChatSettings
from tests.browser.test_logout import dashboard, log_in
from tests.support.browser import profile
from tests.support.job_rows import JobRows
from tests.support.outside import MOST_CHARS, SECRET, chat_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

XSS = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@dataclass
class Pane:
    """The page of the chat, logged in; ``troubles`` is what its console complained about."""

    page: Page
    rows: JobRows
    home: str
    troubles: list[str] = field(default_factory=list)

    @property
    def posts(self) -> Locator:
        """The posts that are shown."""
        return self.page.locator(".post")

    @property
    def box(self) -> Locator:
        """Where people write."""
        return self.page.get_by_label("Post to #maestro")

    def say(self, text: str, author: str = "@ada") -> None:
        """Let an agent post."""
        chat_of(self.rows.store).add_post(author, text)

    async def open(self) -> None:
        """Open the page."""
        await self.page.goto(f"{self.home}/maestro")


@asynccontextmanager
async def pane(chromium: Browser, folder: Path, **options: object) -> AsyncIterator[Pane]:
    """Serve the dashboard with a chat, and open its page; nothing may be complained about when the block is over."""
    rows = JobRows.at(folder)
    chat = AgentChat(
        chat_of(rows.store), lambda: ChatSettings(limits=ChatLimits(max_message_chars=MOST_CHARS), poll_ms=200)
    )
    async with dashboard(rows, chat=chat) as home, profile(chromium, **options) as context:
        page = await context.new_page()
        await log_in(page, home)
        opened = Pane(page, rows, home)
        page.on("console", lambda said: opened.troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: opened.troubles.append(str(error)))
        await opened.open()
        yield opened
        assert opened.troubles == []
    rows.store.close()


@pytest_asyncio.fixture(loop_scope="session")
async def at(tmp_path: Path, chromium: Browser) -> AsyncIterator[Pane]:
    """Open the page."""
    async with pane(chromium, tmp_path) as opened:
        yield opened


async def test_a_person_posts_and_sees_who_said_what(at: Pane) -> None:
    await expect(at.page.get_by_role("heading", level=2)).to_have_text("Nothing in #maestro yet")
    await at.box.fill("one line")
    await at.box.press("Shift+Enter")
    await at.box.press_sequentially(f"and {SECRET}")
    await at.box.press("Enter")
    await expect(at.posts).to_have_count(1)
    await expect(at.box).to_have_value("")
    await expect(at.posts.locator(".author")).to_have_text("@human")
    await expect(at.posts.locator(".post-text")).to_have_text(
        "one line\nand [redacted] (Note: content redacted by scanner)"
    )
    assert await at.posts.locator("time").get_attribute("title")
    await expect(at.page.get_by_role("heading", level=2)).to_be_hidden()


async def test_what_agents_post_appears_while_a_person_types(at: Pane) -> None:
    at.say("first")
    await expect(at.posts).to_have_count(1)
    await at.box.press_sequentially("half a sent")
    await at.box.evaluate("box => box.setSelectionRange(2, 5)")
    at.say(XSS)
    await expect(at.posts).to_have_count(2)
    await expect(at.posts.last.locator(".post-text")).to_have_text(XSS)
    await expect(at.box).to_have_value("half a sent")
    await expect(at.box).to_be_focused()
    assert await at.box.evaluate("box => [box.selectionStart, box.selectionEnd]") == [2, 5]
    assert await at.page.title() == "#maestro – Maestro"


async def test_a_login_that_ends_takes_nothing_away_that_is_being_typed(at: Pane) -> None:
    await at.box.fill("a long thought")
    await at.page.context.clear_cookies()
    await expect(at.page.get_by_role("alert")).to_contain_text("Your login has ended")
    await expect(at.box).to_have_value("a long thought")
    await at.box.fill("")
    await at.page.wait_for_url("**/login?**")
    at.troubles.clear()  # of the requests that were refused


async def test_who_reads_what_was_said_before_is_not_moved(at: Pane) -> None:
    for number in range(30):
        at.say(f"post {number}\nwith a second line")
    await expect(at.posts).to_have_count(30)
    await expect(at.posts.last).to_be_in_viewport()
    scroller = at.page.locator("#scroller")
    await scroller.evaluate("one => { one.scrollTop = 200; }")
    at.say("new")
    jump = at.page.get_by_role("button", name="New posts")
    await expect(jump).to_be_visible()
    assert await scroller.evaluate("one => one.scrollTop") == 200
    await jump.click()
    await expect(at.posts.last).to_be_in_viewport()
    await expect(jump).to_be_hidden()


async def test_the_counter_counts_as_the_server_does(at: Pane) -> None:
    await at.box.fill("😀" * MOST_CHARS)
    await expect(at.page.locator("#count")).to_have_text(f"{MOST_CHARS} / {MOST_CHARS}")
    await at.box.fill("😀" * (MOST_CHARS + 1))
    await expect(at.page.locator("#count")).to_contain_text(f"will be cut to {MOST_CHARS}")


async def test_a_new_session_begins_with_an_empty_page(at: Pane) -> None:
    at.say("of the old session")
    await expect(at.posts).to_have_count(1)
    with at.rows.store.begin() as tx:
        tx.chat.open_session("another")
    await expect(at.posts).to_have_count(0)
    await expect(at.page.get_by_role("heading", level=2)).to_be_visible()


async def test_without_scripts_people_post_with_a_form(tmp_path: Path, chromium: Browser) -> None:
    async with pane(chromium, tmp_path, java_script_enabled=False) as at:
        await at.box.fill("plain")
        await at.page.get_by_role("button", name="Post").click()
        await at.page.wait_for_url("**/maestro#end")
        await expect(at.posts.locator(".post-text")).to_have_text("plain")
