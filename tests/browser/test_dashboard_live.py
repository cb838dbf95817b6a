"""How pages follow what happens, in a real browser: by themselves, without touching what somebody does, and at rest."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Response, expect

from tests.support.dashboard import Dashboard, Tab, dashboard
from tests.support.populated import HOSTILE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-live")]

MARK = "window.notReloaded = true"
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Tells a page that its tab is hidden or not; a browser without a screen hides none."""
LONG_MS = 120_000
"""Of a page's own time; it would have looked many times."""
LOOKS = 10


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("live")) as opened:
        yield opened


async def ask(board: Dashboard, channel: str, question: str = "Which way?") -> str:
    """Have a job wait for a person, and return it; the question is ``question`` and its channel."""
    about = f"{channel} goes"
    board.maestro.llm.script(about, calls=[("ask_question", {"question": f"{question} {channel}"})], rounds=0)
    board.maestro.llm.script(about, reply="went {results}", rounds=1)
    job = await board.say(channel, about)
    await board.maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'waiting'", job)
    return job


async def answer(board: Dashboard, job: str) -> None:
    """Let a job go on that waits for a person."""
    [question] = board.maestro.query("SELECT id FROM questions WHERE job_id = ?", job)
    await board.at.make(f"/questions/{question['id']}/answer", answer="left")


async def stayed(page: Page) -> None:
    """Assert that the page was not loaded anew since it was marked."""
    assert await page.evaluate("window.notReloaded") is True


async def test_a_job_and_the_list_follow_without_a_reload(board: Dashboard) -> None:
    job = await ask(board, "followed")
    async with board.tab() as tab, board.tab() as other:
        await tab.open(f"/queue/{job}")
        await other.open("/queue?channel=followed")
        for one in (tab, other):
            await one.page.evaluate(MARK)
        layers = tab.page.locator("#layers")
        await layers.locator("summary").click()
        await expect(tab.page.locator("#now")).to_contain_text("Waits for a person")
        await answer(board, job)
        await expect(tab.page.locator(".head .tag.state")).to_have_text("completed")
        await expect(tab.page.locator("#answer")).to_contain_text("went")
        await expect(layers).to_have_attribute("open", "")
        await expect(other.page.locator(f"#row-{job} .tag.state")).to_have_text("completed")
        for one in (tab, other):
            await stayed(one.page)


async def test_a_selection_and_typed_words_survive_what_is_new(board: Dashboard) -> None:
    [job] = await board.undelivered("kept-1", "selection lives")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?q=selection+lives")
        await page.evaluate(MARK)
        await page.get_by_label(f"Select {job}").check()
        box = page.get_by_label("Text, user or id")
        await box.fill(f"half a thou {HOSTILE}")
        await box.evaluate("box => box.setSelectionRange(2, 5)")
        newer = await board.say("kept-2", "selection lives on")
        await expect(page.locator(f"#row-{newer}")).to_be_visible()
        await expect(page.get_by_label(f"Select {job}")).to_be_checked()
        await expect(page.locator("#picked")).to_have_text("1 selected")
        await expect(box).to_have_value(f"half a thou {HOSTILE}")
        await expect(box).to_be_focused()
        assert await box.evaluate("box => [box.selectionStart, box.selectionEnd]") == [2, 5]
        await stayed(page)


async def test_an_answer_that_is_being_typed_survives_another_question(board: Dashboard) -> None:
    await ask(board, "first", "Which one?")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/questions")
        await page.evaluate(MARK)
        box = page.locator("li.ask").filter(has_text="Which one? first").get_by_role("textbox")
        await box.fill("the left o")
        await ask(board, "second", "Which other?")
        await expect(page.locator("li.ask").filter(has_text="Which other? second")).to_be_visible()
        await expect(box).to_have_value("the left o")
        await expect(box).to_be_focused()
        await stayed(page)


async def test_an_idle_page_costs_nothing_and_a_hidden_one_is_silent(board: Dashboard) -> None:
    [job] = await board.undelivered("idle", "idle hands")
    looks: list[Response] = []
    async with board.tab() as tab:
        page = tab.page
        await page.clock.install()
        await tab.open(f"/queue/{job}")
        page.on("response", lambda response: looks.append(response) if response.url.endswith(job) else None)
        first = await look(tab, job)
        assert first.headers["etag"]
        await rested(tab, job)
        await page.evaluate(HIDE, True)
        seen = len(looks)
        assert seen
        await page.clock.run_for(LONG_MS)
        assert len(looks) == seen
        async with page.expect_response(lambda response: response.url.endswith(job)):
            await page.evaluate(HIDE, False)
        await rested(tab, job)


async def rested(tab: Tab, job: str) -> None:
    """Look until nothing is new: the system itself may write something now and then."""
    for _ in range(LOOKS):
        if (await look(tab, job)).status == 304:
            return
    raise AssertionError("each look is answered with the whole page")


async def look(tab: Tab, job: str) -> Response:
    """Let a page's own time go on until it looks, and return what it was answered."""
    async with tab.page.expect_response(lambda response: response.url.endswith(job)) as looked:
        await tab.page.clock.run_for(5_000)
    answered = await looked.value
    await answered.finished()
    return answered


async def test_keys_lead_everywhere(board: Dashboard) -> None:
    job = await board.say("keys", "press a key")
    await board.maestro.ended("keys", "completed")
    async with board.tab() as tab:
        page = tab.page
        # A busy machine may need longer between two keys than a person does.
        await stand_still(page)
        await tab.open("/queue?channel=keys")
        await tab.drawn()
        await tab.press("/")
        box = page.get_by_label("Text, user or id")
        await expect(box).to_be_focused()
        await tab.press("j", "t")
        await expect(box).to_have_value("jt")
        await tab.press("Escape")
        await expect(box).not_to_be_focused()
        await tab.press("?")
        keys = page.get_by_role("dialog", name="Keys")
        await expect(keys).to_be_visible()
        await tab.press("Escape")
        await expect(keys).to_be_hidden()
        await tab.press("j", "Enter")
        await page.wait_for_url(f"**/queue/{job}")
        for link in await page.locator("[data-go]").all():
            key, path = await link.get_attribute("data-go"), await link.get_attribute("href")
            assert key, path
            await keys_of(tab, key, str(path))


async def stand_still(page: Page) -> None:
    """Let no time of its own go by in a page, so that it looks for no other reason than a key."""
    await page.clock.pause_at(datetime.now(tz=UTC) + timedelta(hours=1))


async def keys_of(tab: Tab, key: str, path: str) -> None:
    """Go somewhere by two keys, from the page of jobs or, where that is meant, from another one."""
    await tab.open("/audit" if path == "/queue" else "/queue")
    await tab.drawn()
    await tab.press("g", key)
    await tab.page.wait_for_url(tab.home + path)


async def test_r_looks_again_and_t_is_kept(board: Dashboard) -> None:
    async with board.tab(color_scheme="light") as tab:
        page = tab.page
        await stand_still(page)
        await tab.open("/queue?channel=refreshed")
        job = await board.say("refreshed", "seen at a key")
        await tab.drawn()
        await tab.press("r")
        await expect(page.locator(f"#row-{job}")).to_be_visible()
        theme = page.locator("html")
        await tab.press("t")
        await expect(theme).to_have_attribute("data-theme", "dark")
        await tab.open("/audit")
        await expect(theme).to_have_attribute("data-theme", "dark")
        await page.get_by_role("button", name="Change between light and dark").click()
        await expect(theme).to_have_attribute("data-theme", "light")
