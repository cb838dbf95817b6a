"""The chat page in a real browser: what is typed is sent once, what is answered is shown once."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.browser import profile
from tests.support.chat_page import ChatPage, chat_page
from tests.support.memory_context import MemoryContext
from tests.support.web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64


@dataclass
class Desk:
    """A browser in front of the page; ``troubles`` is what its console complained about."""

    browser: BrowserContext
    page: Page
    site: ChatPage
    server: WebServer
    troubles: list[str] = field(default_factory=list)

    @property
    def box(self) -> Locator:
        """Where people type."""
        return self.page.get_by_label("Message", exact=True)

    @property
    def mine(self) -> Locator:
        """What this person wrote."""
        return self.page.locator(".message.mine")

    @property
    def theirs(self) -> Locator:
        """What agents answered."""
        return self.page.locator(".message.theirs")

    async def open(self) -> Page:
        """Open the page in a further tab and wait until it is connected."""
        page = await self.browser.new_page()
        page.on("console", lambda message: self.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        await page.goto(self.site.url)
        await expect(page.get_by_role("status").first).to_have_text("Connected")
        return page

    async def say(self, text: str) -> str:
        """Type, press Enter, and return the channel once the message is kept."""
        count = len(self.server.context.inbox)
        await self.box.fill(text)
        await self.box.press("Enter")
        await expect(self.mine.last).to_have_attribute("data-state", "kept")
        assert len(self.server.context.inbox) == count + 1
        return self.server.context.inbox[-1].address.channel


@asynccontextmanager
async def desk(chromium: Browser, **settings: object) -> AsyncIterator[Desk]:
    """Serve page and connector, and open the page in a fresh browser profile."""
    listening = socket.create_server(("127.0.0.1", 0))
    origin = f"http://localhost:{listening.getsockname()[1]}"
    async with (
        web_server(MemoryContext(), host="localhost", local_owner=False, dashboard_origins=(origin,)) as server,
        chat_page(server.context, server.port, listening) as site,
        profile(chromium, **settings) as own,
    ):
        opened = Desk(own, await own.new_page(), site, server)
        await opened.page.close()
        opened.page = await opened.open()
        yield opened


async def test_a_message_gets_its_ticks_and_its_answer(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("hello")
        kept = at.server.context.inbox[0]
        assert (kept.content, kept.user_id, kept.is_owner) == ("hello", "operator", True)
        await at.server.answer(channel, "hi **there**", reply_to=kept.id)
        await expect(at.theirs.locator("strong")).to_have_text("there")
        await expect(at.mine).to_have_attribute("data-state", "answered")
        await expect(at.page.get_by_text("What shall we work on?")).to_be_hidden()
    assert at.troubles == []


async def test_an_answer_is_for_what_came_before_it_too_and_a_notice_is_not(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("one")
        for text in ("two", "three"):
            await at.say(text)
        _, second, third = (kept.id for kept in at.server.context.inbox)
        await at.server.answer(channel, "Too fast.", reply_to=third, notice=True)
        await expect(at.mine.nth(2)).to_have_attribute("data-state", "answered")
        for number in (0, 1):
            await expect(at.mine.nth(number)).to_have_attribute("data-state", "kept")
        await at.server.answer(channel, "to both", reply_to=second)
        for number in (0, 1):
            await expect(at.mine.nth(number)).to_have_attribute("data-state", "answered")


async def test_enter_sends_and_shift_enter_does_not(chromium: Browser) -> None:
    async with desk(chromium) as at:
        await at.box.press_sequentially("one")
        await at.box.press("Shift+Enter")
        await at.box.press_sequentially("two")
        await at.say("one\ntwo")
        await expect(at.box).to_have_value("")
        await at.box.press("Enter")
        await expect(at.mine).to_have_count(1)
    assert [kept.content for kept in at.server.context.inbox] == ["one\ntwo"]


async def test_markup_in_an_answer_is_text(chromium: Browser) -> None:
    attack = '<img src=x onerror="alert(1)"><script>alert(2)</script> [x](javascript:alert(3)) `<b>` **<i>**'
    async with desk(chromium) as at:
        channel = await at.say('<script>document.title="owned"</script>')
        await at.server.answer(channel, attack)
        await expect(at.theirs.locator(".body")).to_contain_text("<script>alert(2)</script> [x](javascript:alert(3))")
        assert await at.page.locator(".messages :is(img, script, i, a)").count() == 0
        assert await at.page.title() == "Chat – Maestro"
    assert at.troubles == []


async def test_strange_texts_do_not_freeze_the_page(chromium: Browser) -> None:
    texts = ("**" * 16_000, "[" * 32_000, "`" * 32_000, ">" * 32_000, "*a" * 16_000, "- " * 16_000, "```\n" * 8_000)
    async with desk(chromium) as at:
        channel = await at.say("hello")
        async with asyncio.timeout(15):
            for text in texts:
                await at.server.answer(channel, text)
            await expect(at.theirs).to_have_count(len(texts))
    assert at.troubles == []


async def test_code_lists_and_links_look_like_what_they_are(chromium: Browser) -> None:
    answer = "# Plan\n1. run\n   ```sh\n   make up\n   ```\n2. see https://example.org/a_b.\n   - deep\n\n> said\n\n---"
    async with desk(chromium) as at:
        await at.server.answer(await at.say("hello"), answer)
        body = at.theirs.locator(".body")
        await expect(body.locator("pre code")).to_have_text("make up")
        await expect(body.locator("ol > li")).to_have_count(2)
        await expect(body.locator("ol ul li")).to_have_text("deep")
        await expect(body.locator("blockquote")).to_have_text("said")
        link = body.locator("a")
        await expect(link).to_have_attribute("href", "https://example.org/a_b")
        await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")


async def test_what_is_written_offline_is_sent_once_when_the_server_is_back(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("before")
        at.server.task.cancel()
        await asyncio.wait([at.server.task])
        await at.box.fill("during")
        await at.box.press("Enter")
        await expect(at.page.get_by_role("alert")).to_contain_text("No connection")
        await expect(at.mine.last).to_have_attribute("data-state", "sending")
        origins = (at.site.url.rstrip("/"),)
        async with web_server(
            at.server.context, host="localhost", port=at.server.port, local_owner=False, dashboard_origins=origins
        ) as back:
            await back.answer(channel, "missed")
            await expect(at.mine.last).to_have_attribute("data-state", "kept", timeout=15_000)
            await expect(at.theirs).to_have_count(1)
            await expect(at.page.get_by_role("alert")).to_be_hidden()
    assert [kept.content for kept in at.server.context.inbox] == ["before", "during"]


async def test_a_reload_shows_the_conversation_and_resumes_it(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("hello")
        await at.server.answer(channel, "first")
        await expect(at.theirs).to_have_count(1)
        await at.page.close()
        await at.server.answer(channel, "while away")
        at.page = await at.open()
        await expect(at.theirs.locator(".body")).to_have_text(["first", "while away"])
        await expect(at.mine).to_have_count(1)
        assert await at.say("still here") == channel


async def test_two_tabs_show_one_conversation(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("hello")
        second = await at.open()
        await at.server.answer(channel, "hi")
        for page in (at.page, second):
            await expect(page.locator(".message.theirs")).to_have_count(1)
        await at.say("more")
        await expect(second.locator(".message.mine")).to_have_count(2)
        assert await second.evaluate("JSON.parse(localStorage['maestro.chat.main']).entries.length") == 3


async def test_typing_shows_and_stop_stops(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("hello")
        stop = at.page.get_by_role("button", name="Stop")
        await expect(stop).to_be_hidden()
        await at.server.connector.typing(at.server.context.inbox[0].address)
        await expect(at.page.get_by_text("Maestro is writing…")).to_be_visible()
        await stop.click()
        await expect(stop).to_be_disabled()
        await at.server.answer(channel, "stopped")
        await expect(stop).to_be_hidden()
    assert at.server.context.inbox[-1].content == "/stop"


async def test_a_busy_server_is_asked_again(chromium: Browser) -> None:
    async with desk(chromium) as at:
        await at.say("hello")
        at.server.context.limit = 1
        await at.box.fill("later")
        await at.box.press("Enter")
        await expect(at.mine.last).to_have_attribute("data-state", "sending")
        at.server.context.limit = 10
        await expect(at.mine.last).to_have_attribute("data-state", "kept", timeout=10_000)
    assert [kept.content for kept in at.server.context.inbox] == ["hello", "later"]


async def test_a_file_goes_with_a_message(tmp_path: Path, chromium: Browser) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "page.html").write_text("<!doctype html>")
    async with desk(chromium) as at:
        await at.page.get_by_label("Attach a file").set_input_files([tmp_path / "cat.png", tmp_path / "page.html"])
        chips = at.page.get_by_label("Attachments").get_by_role("listitem")
        await expect(chips.last).to_contain_text("not accepted")
        await at.page.get_by_role("button", name="Remove page.html").click()
        await expect(chips).to_have_count(1)
        await at.say("look")
    [kept] = at.server.context.inbox[0].attachments
    assert (kept.filename, kept.content_type) == ("cat.png", "image/png")


async def test_a_new_chat_is_a_new_channel(chromium: Browser) -> None:
    async with desk(chromium) as at:
        first = await at.say("one")
        await at.page.get_by_role("button", name="New chat").click()
        await expect(at.page.get_by_text("What shall we work on?")).to_be_visible()
        await expect(at.page.get_by_role("status").first).to_have_text("Connected")
        assert await at.say("two") != first
        await at.server.answer(first, "for the old one")
        await expect(at.theirs).to_have_count(0)


async def test_a_channel_that_is_somebody_elses_becomes_a_new_one(chromium: Browser) -> None:
    async with desk(chromium) as at:
        channel = await at.say("hello")
        await at.page.close()
        for address in list(at.server.context.owners):
            at.server.context.owners[address] = "somebody-else"
        at.page = await at.open()
        await expect(at.page.get_by_role("alert")).to_contain_text("new one was started")
        assert await at.say("again") != channel


async def test_another_installation_starts_a_new_conversation(chromium: Browser) -> None:
    async with desk(chromium) as at:
        await at.server.answer(await at.say("hello"), "from the old store")
        await expect(at.theirs).to_have_count(1)
        at.server.task.cancel()
        await asyncio.wait([at.server.task])
        at.server.context.owners.clear()
        at.server.context.sent.clear()
        async with web_server(
            at.server.context,
            host="localhost",
            port=at.server.port,
            local_owner=False,
            signing_key=b"another installation",
            dashboard_origins=(at.site.url.rstrip("/"),),
        ) as other:
            await expect(at.page.get_by_role("alert")).to_contain_text("empty store", timeout=15_000)
            await expect(at.page.get_by_role("status").first).to_have_text("Connected")
            await expect(at.theirs).to_have_count(0)
            await other.answer(await at.say("anybody?"), "from the new store")
            await expect(at.theirs.locator(".body")).to_have_text(["from the new store"])


async def test_without_the_web_connector_the_page_says_what_to_set(chromium: Browser) -> None:
    async with desk(chromium) as at:
        at.site.web_port = 0
        await at.page.reload()
        await expect(at.page.get_by_role("alert")).to_contain_text("web.enabled")


async def test_a_lost_session_says_so(chromium: Browser) -> None:
    async with desk(chromium) as at:
        at.site.signed_in = False
        await at.page.reload()
        await expect(at.page.get_by_role("alert")).to_contain_text("signed out")
        await expect(at.page.get_by_role("button", name="Reload the page")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_fits_a_phone(chromium: Browser, scheme: str) -> None:
    async with desk(chromium, color_scheme=scheme, viewport={"width": 400, "height": 760}) as at:
        await at.server.answer(
            await at.say("w" * 300), "```\n" + "long " * 200 + "\n```\nhttps://example.org/" + "q" * 300
        )
        await expect(at.theirs).to_have_count(1)
        # The links at the top scroll by themselves.
        wide = "[...document.querySelectorAll('body *')].filter(e => !e.closest('pre, .unseen, .skip, .nav')"
        assert (
            await at.page.evaluate(wide + " && e.getBoundingClientRect().right > innerWidth).map(e => e.className)")
            == []
        )


async def test_everything_has_a_name_and_a_place_in_the_tab_order(chromium: Browser) -> None:
    async with desk(chromium) as at:
        await expect(at.box).to_be_focused()
        names = set()
        await at.page.locator("body").press("Home")
        for _ in range(40):
            await at.page.keyboard.press("Tab")
            names.add(
                await at.page.evaluate(
                    "(e => e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)"
                )
            )
        await expect(at.page.get_by_role("log", name="Conversation")).to_be_attached()
    assert {"Skip to content", "Maestro, home", "New chat", "Attach a file", "What can you do for me?"} <= names
