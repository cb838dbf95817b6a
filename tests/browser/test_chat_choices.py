"""Buttons and files of agents on the chat page, in a real browser."""

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from maestro.domain.messages import Button
from tests.browser.test_chat_page import desk

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_a_press_says_what_the_button_says_once_and_in_every_tab(chromium: Browser) -> None:
    buttons = (Button(label="Red", value="Red #7"), Button(label="Dark blue", value="Dark blue #7"))
    async with desk(chromium) as here:
        channel = await here.say("paint the shed")
        await here.server.answer(channel, "Which colour?", buttons=buttons)
        other = await here.open()
        await here.page.get_by_role("button", name="Dark blue").click()
        await expect(here.mine.last).to_contain_text("Dark blue #7")
        await expect(here.mine.last).to_have_attribute("data-state", "kept")
        for page in (here.page, other):
            choices = page.get_by_role("group", name="Answers to choose from")
            await expect(choices.get_by_role("button", name="Red")).to_be_disabled()
            await expect(choices.get_by_role("button", name="Dark blue")).to_have_attribute("aria-pressed", "true")
        await here.page.reload()
        await expect(here.page.get_by_role("button", name="Red")).to_be_disabled()
        assert [message.content for message in here.server.context.inbox] == ["paint the shed", "Dark blue #7"]
        assert here.troubles == []


async def test_a_picture_is_seen_and_every_file_can_be_kept(chromium: Browser, tmp_path: Path) -> None:
    picture, report = tmp_path / "picture", tmp_path / "report"
    await asyncio.to_thread(picture.write_bytes, PIXEL)
    await asyncio.to_thread(report.write_bytes, b"<script>alert(1)</script>")
    async with desk(chromium, accept_downloads=True) as here:
        channel = await here.say("draw the shed")
        await here.server.answer(channel, "The **shed**", filename="shed.png", path=picture, content_type="image/png")
        await here.server.answer(channel, "", filename="<b>report</b>.html", path=report, content_type="text/html")
        image = here.page.get_by_role("img", name="shed.png")
        await expect(image).to_be_visible()
        assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        await expect(here.theirs.first.locator("strong")).to_have_text("shed")
        assert await here.page.locator(".sent img").count() == 1
        async with here.page.expect_download() as started:
            await here.page.get_by_role("button", name="Download <b>report</b>.html, 25 bytes").click()
        kept = await (await started.value).path()
        assert await asyncio.to_thread(kept.read_bytes) == b"<script>alert(1)</script>"
        assert here.troubles == []
        await asyncio.to_thread(report.unlink)
        await here.page.get_by_role("button", name="Download <b>report</b>.html").click()
        await expect(here.theirs.last.get_by_role("status")).to_have_text("The file no longer exists.")
