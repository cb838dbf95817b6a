"""Questions, posts and logins in a real browser, what a viewer may not, and what works without scripts."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.dashboard import Dashboard, dashboard
from tests.support.page_actions import WORK
from tests.support.populated import HOSTILE, PASSWORD, VIEWER

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-work")]

FORGED = """async ([path, fields]) => {
  const csrf_token = document.querySelector('meta[name="csrf-token"]').content;
  return (await fetch(path, { method: "POST", body: new URLSearchParams({ csrf_token, ...fields }) })).status;
}"""
"""Sends what no form of a viewer's page sends."""

ASKED = "SELECT kind, status, answered_by FROM questions WHERE status <> 'open' ORDER BY id"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("work"), WORK, tools={"approval": ["get_time"]}) as opened:
        yield opened


async def test_a_question_is_answered_and_tools_are_approved_and_refused(board: Dashboard) -> None:
    llm = board.maestro.llm
    llm.script("which colour", calls=[("ask_question", {"question": f"Which colour? {HOSTILE}"})], rounds=0)
    llm.script("which colour", reply="chosen: {results}", rounds=1)
    for word in ("approved", "refused"):
        llm.script(f"{word} time", calls=[("get_time", {})], rounds=0)
        llm.script(f"{word} time", reply="came to: {results}", rounds=1)
    async with board.tab() as tab:
        page = tab.page
        await board.say("colours", "which colour")
        await waits(board, "colours")
        await tab.open("/questions")
        asked = page.locator("li.ask").filter(has_text="Which colour?")
        await asked.get_by_role("textbox").fill(f"green {HOSTILE}")
        await asked.get_by_role("button", name="Answer").click()
        await expect(page.get_by_role("status").filter(has_text="is settled")).to_be_visible()
        await board.maestro.ended("colours", "completed")
        for word, button in (("approved", "Approve"), ("refused", "Refuse")):
            job = await board.say(f"time-{word}", f"{word} time")
            await waits(board, f"time-{word}")
            asked = page.locator("li.ask").filter(has_text=job)
            await asked.get_by_role("button", name=button).click()
            await board.maestro.ended(f"time-{word}", "completed")
            await expect(asked).to_have_count(0)
        await expect(page.get_by_role("row").filter(has_text=HOSTILE)).to_contain_text(f"green {HOSTILE}")
    assert [dict(row) for row in board.maestro.query(ASKED)] == [
        {"kind": "question", "status": "answered", "answered_by": "operator"},
        {"kind": "approval", "status": "answered", "answered_by": "operator"},
        {"kind": "approval", "status": "denied", "answered_by": "operator"},
    ]
    assert [request.results[0][0] for request in llm.matching("approved time") if request.results] == ["get_time"]


async def waits(board: Dashboard, channel: str) -> None:
    """Wait until the job of a channel waits for a person."""
    await board.maestro.until("SELECT 1 FROM queue WHERE channel = ? AND status = 'waiting'", channel)


async def test_a_post_to_the_agents_is_shown_as_it_was_typed(board: Dashboard) -> None:
    async with board.tab() as tab:
        await tab.open("/maestro")
        box = tab.page.get_by_label("Post to #maestro")
        await box.fill(f"a note {HOSTILE}")
        await tab.page.get_by_role("button", name="Post").click()
        await expect(tab.page.locator(".post-text").last).to_have_text(f"a note {HOSTILE}")
        await expect(box).to_have_value("")


async def test_a_login_begins_with_the_password_and_ends_with_a_click(board: Dashboard) -> None:
    async with board.tab(password="") as tab:
        page = tab.page
        await tab.open("/queue?status=failed")
        await page.get_by_label("Password").fill("a guess")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        tab.forgive(401)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Log in").click()
        await page.wait_for_url("**/queue?status=failed")
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login?left=true")
        await tab.open("/queue")
        await expect(page.get_by_label("Password")).to_be_visible()


async def test_a_viewer_sees_everything_and_changes_nothing(board: Dashboard) -> None:
    failed, asking = board.at.job("failed"), board.maestro.query("SELECT id FROM questions WHERE status = 'open'")[0]
    forged = {
        "/queue/replay": {"action": "resume", "ids": failed},
        f"/queue/{failed}/replay": {"mode": "resume"},
        f"/queue/{failed}/cancel": {},
        "/questions/answer": {"number": str(asking["id"]), "words": "yes"},
        "/maestro": {"text": "from a viewer"},
    }
    async with board.tab(VIEWER) as tab:
        pages = (
            "/",
            "/queue",
            "/queue?group=error",
            f"/queue/{failed}",
            f"/queue/{failed}/replay",
            "/questions",
            "/maestro",
        )
        for path in pages:
            await tab.open(path)
            await expect(tab.page.get_by_text("Read only")).to_be_visible()
            assert await tab.page.locator("form[method=post] button:visible").all_text_contents() == ["Log out"], path
        for path, fields in forged.items():
            assert await tab.page.evaluate(FORGED, [path, fields]) == 403, path
        tab.forgive(403)
        await tab.page.get_by_role("button", name="Log out").click()
        await tab.page.wait_for_url("**/login?left=true")
    assert board.maestro.query("SELECT status FROM queue WHERE id = ?", failed)[0]["status"] == "failed"


async def test_without_scripts_the_main_actions_work_too(board: Dashboard) -> None:
    one, two = await board.undelivered("plain", "plain one", "plain two")
    async with board.tab(java_script_enabled=False, viewport={"width": 400, "height": 800}) as tab:
        page = tab.page
        await tab.open("/")
        await page.get_by_role("button", name="Pages").click()
        await page.get_by_role("link", name="Jobs", exact=True).click()
        await page.get_by_label("Text, user or id").fill("plain")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tr[data-row]")).to_have_count(2)
        await page.get_by_label(f"Select {one}").check()
        await page.locator(".bulk").get_by_role("button", name="Resume").click()
        await page.get_by_role("button", name="Resume 1 job").click()
        await page.wait_for_url("**/queue/batches/batch-*")
        await board.maestro.ended("plain", "completed")
        await page.reload()
        await expect(page.locator("#completed")).to_have_text("1")
        await tab.open(f"/queue/{two}")
        await page.get_by_role("link", name="Resume", exact=True).click()
        await page.get_by_role("button", name="Resume it").click()
        await page.wait_for_url(f"**/queue/{two}")
        await board.maestro.ended("plain", "completed", 2)
        await tab.open("/maestro")
        await page.get_by_label("Post to #maestro").fill("by a plain form")
        await page.get_by_role("button", name="Post").click()
        await expect(page.locator(".post-text").last).to_have_text("by a plain form")


async def test_every_action_was_done(board: Dashboard) -> None:
    """Comes last, and says what the tests above leave out."""
    assert board.recorder.left == set()
