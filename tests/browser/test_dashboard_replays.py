"""Replays and batches in a real browser: everything that operators do with jobs, one by one and many at once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.dashboard import Dashboard, Tab, dashboard
from tests.support.llm_server import Failure
from tests.support.page_actions import REPLAYS
from tests.support.populated import HOSTILE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-replays")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("replays"), REPLAYS) as opened:
        yield opened


async def done(page: Page, completed: int) -> None:
    """Wait on the page of a batch until so many of its jobs are completed and nothing else is left."""
    await page.wait_for_url("**/queue/batches/batch-*")
    await expect(page.locator("#completed")).to_have_text(str(completed))
    await expect(page.locator(".head .tag")).to_have_text("done")
    await expect(page.locator("#refused")).to_have_text("0")


async def is_job(page: Page, status: str) -> None:
    """Wait on the page of a job until it has this status."""
    await expect(page.locator(".head .tag.state")).to_have_text(status)


async def test_selected_jobs_are_resumed_without_paying_again(board: Dashboard) -> None:
    jobs = await board.undelivered("picked", "pick one", "pick two", "pick three")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=picked&status=failed")
        resume = page.locator(".bulk").get_by_role("button", name="Resume")
        await expect(resume).to_be_disabled()
        await tab.drawn()
        await tab.press("j", "x", "j", "x")
        await expect(page.locator("#picked")).to_have_text("2 selected")
        await tab.press("k", "x")
        await expect(page.get_by_label(f"Select {jobs[1]}")).to_be_checked()
        await expect(page.locator("#picked")).to_have_text("1 selected")
        await page.get_by_label("Select every job of this page").check()
        await expect(page.locator("#picked")).to_have_text("3 selected")
        await resume.click()
        await expect(page.locator("#possible")).to_have_text("3")
        await expect(page.locator("#calls")).to_have_text("0")
        assert len(board.maestro.llm.matching("pick ")) == 3
        await page.get_by_role("button", name="Resume 3 jobs").click()
        await done(page, 3)
    assert len(board.maestro.llm.matching("pick ")) == 3
    assert {row["status"] for row in board.maestro.jobs("picked")} == {"completed"}


async def test_all_that_match_are_restarted_and_one_with_edits(board: Dashboard) -> None:
    await board.undelivered("matching", "match one", "match two")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=matching&status=failed")
        await page.get_by_label("all 2 that match").check()
        await page.locator(".bulk").get_by_role("button", name="Restart", exact=True).click()
        await expect(page.locator("#calls")).to_have_text("2")
        await page.get_by_role("button", name="Restart 2 jobs").click()
        await done(page, 2)
        assert len(board.maestro.llm.matching("match ")) == 4

        await tab.open("/queue?channel=matching&status=failed")
        await page.get_by_role("checkbox", name="Select message-").first.check()
        await page.get_by_role("button", name="Restart with edits…").click()
        await page.get_by_label("Prompt instead of the message").fill(f"rather this {HOSTILE}")
        await page.get_by_role("button", name="Preview with these edits").click()
        await expect(page.get_by_label("Prompt instead of the message")).to_have_value(f"rather this {HOSTILE}")
        await page.get_by_role("button", name="Restart 1 job").click()
        await done(page, 1)
        await page.get_by_role("link", name="All batches").click()
        await expect(page.get_by_role("link", name="Restart 1 job, with edits")).to_be_visible()
        assert len(board.maestro.llm.matching("rather this")) == 1


async def test_jobs_that_hang_are_cancelled_at_once(board: Dashboard) -> None:
    board.maestro.llm.script("hang here", failure=Failure.silence())
    for number in (1, 2):
        await board.say(f"hang-{number}", f"hang here {number}")
    await board.maestro.asked("hang here", 2)
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?status=running&q=hang+here")
        await page.get_by_label("all 2 that match").check()
        await page.locator(".bulk").get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Cancel 2 jobs").click()
        await page.wait_for_url("**/queue/batches/batch-*")
        await expect(page.locator("#begun")).to_have_text("2")
    for number in (1, 2):
        await board.maestro.ended(f"hang-{number}", "cancelled")


async def test_a_batch_is_stopped_and_leaves_the_jobs_that_had_no_turn(board: Dashboard) -> None:
    llm = board.maestro.llm
    llm.script("stay away", failure=Failure.status(400))
    await board.fail("slow", *(f"stay away {number}" for number in range(4)))
    llm.script("stay away", failure=Failure.silence())
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=slow")
        await page.get_by_label("all 4 that match").check()
        await page.locator(".bulk").get_by_role("button", name="Resume").click()
        await page.locator("#confirm").click()
        # Two jobs of a channel at a time have their turn, and the first one hangs.
        await expect(page.locator("#begun")).to_have_text("2")
        await page.get_by_role("button", name="Let no more jobs of this batch begin").click()
        await expect(page.locator("#waiting")).to_have_text("0")
        await expect(page.get_by_text("2 skipped by the stop")).to_be_visible()
        for job in board.maestro.query(
            "SELECT id FROM queue WHERE channel = 'slow' AND lane <> '' AND completed_at IS NULL"
        ):
            await board.at.make(f"/jobs/{job['id']}/cancel")
        await expect(page.locator(".head .tag")).to_have_text("stopped")
    assert len(board.maestro.query("SELECT 1 FROM queue WHERE channel = 'slow' AND status = 'failed'")) == 2


async def test_what_failed_for_one_reason_is_resumed_together(board: Dashboard) -> None:
    await board.undelivered("grouped", "group one", "group two")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=grouped")
        await page.get_by_role("link", name="Failures by error").click()
        group = page.get_by_role("row").filter(has_text="grouped is gone")
        await group.get_by_role("link", name="Show the jobs with").click()
        await expect(page.locator("tr[data-row]")).to_have_count(2)
        await page.go_back()
        await group.get_by_role("button", name="Resume all 2 with").click()
        await page.get_by_role("button", name="Resume 2 jobs").click()
        await done(page, 2)


async def test_one_job_is_resumed_restarted_and_asked_what_if(board: Dashboard) -> None:
    [job] = await board.undelivered("single", "single question")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=single")
        await page.get_by_role("link", name="single question").click()
        await page.get_by_role("link", name="Resume", exact=True).click()
        await expect(page.locator("#pays")).to_have_text("no model call")
        await page.get_by_role("button", name="Resume it").click()
        await page.wait_for_url(f"**/queue/{job}")
        await is_job(page, "completed")
        assert len(board.maestro.llm.matching("single question")) == 1

        await page.get_by_role("link", name="Restart", exact=True).click()
        await expect(page.locator("#goes-on")).to_have_text("From the beginning, as a new job")
        await page.get_by_role("button", name="Restart it").click()
        await page.wait_for_url(lambda url: "/queue/" in url and job not in url)
        await is_job(page, "completed")
        assert len(board.maestro.llm.matching("single question")) == 2
        await restart_with_edits(board, tab)
        await ask_what_if(board, tab, job)


async def restart_with_edits(board: Dashboard, tab: Tab) -> None:
    """Have the job that is shown asked something else, by another agent."""
    page, before = tab.page, tab.page.url
    await page.get_by_role("link", name="Restart with edits").click()
    await page.get_by_label("Agent", exact=True).select_option("ada")
    await page.get_by_label("Prompt", exact=True).fill(f"an edited one {HOSTILE}")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#plan")).to_contain_text(f"an edited one {HOSTILE}")
    await page.get_by_role("button", name="Restart it").click()
    await page.wait_for_url(lambda url: url.count("/") == before.count("/") and url != before)
    await is_job(page, "completed")
    await expect(page.locator("#answer")).to_contain_text(f"answer to: an edited one {HOSTILE}")
    assert len(board.maestro.llm.matching("an edited one")) == 1


async def ask_what_if(board: Dashboard, tab: Tab, job: str) -> None:
    """Ask what another model would answer; nobody is told."""
    page, sent = tab.page, len(board.maestro.taps.sent)
    await tab.open(f"/queue/{job}")
    await page.get_by_role("link", name="What if", exact=True).click()
    await page.get_by_label("First model").fill("gpt-4o")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.locator("#answer")).to_contain_text("answer to: single question")
    await expect(page.locator("#real")).to_contain_text("answer to: single question")
    assert board.maestro.llm.matching("single question")[-1].model == "gpt-4o"
    assert len(board.maestro.taps.sent) == sent


async def test_a_replay_that_comes_too_late_is_told(board: Dashboard) -> None:
    [job] = await board.undelivered("late", "too late")
    async with board.tab() as tab:
        await tab.open(f"/queue/{job}/replay?mode=resume")
        await board.at.make(f"/jobs/{job}/replay", mode="resume")
        await board.maestro.ended("late", "completed")
        await tab.page.get_by_role("button", name="Resume it").click()
        await expect(tab.page.get_by_role("alert")).to_contain_text("completed")
        tab.forgive(409)
    assert len(board.maestro.llm.matching("too late")) == 1


async def test_a_batch_of_other_jobs_than_were_seen_does_not_begin(board: Dashboard) -> None:
    jobs = await board.undelivered("fewer", "fewer one", "fewer two")
    async with board.tab() as tab:
        page = tab.page
        await tab.open("/queue?channel=fewer&status=failed")
        await page.get_by_label("all 2 that match").check()
        await page.locator(".bulk").get_by_role("button", name="Resume").click()
        await expect(page.locator("#possible")).to_have_text("2")
        await board.at.make(f"/jobs/{jobs[0]}/replay", mode="resume")
        await board.maestro.ended("fewer", "completed")
        await page.locator("#confirm").click()
        await expect(page.get_by_role("alert")).to_contain_text("1 job matches by now, not 2")
        tab.forgive(409)
        await page.get_by_role("button", name="Resume 1 job").click()
        await done(page, 1)


async def test_a_running_job_is_cancelled(board: Dashboard) -> None:
    board.maestro.llm.script("never ends", failure=Failure.silence())
    job = await board.say("endless", "never ends")
    await board.maestro.asked("never ends")
    async with board.tab() as tab:
        page = tab.page
        await tab.open(f"/queue/{job}")
        await is_job(page, "running")
        await page.get_by_role("link", name="Cancel", exact=True).click()
        await expect(page.locator("#plan")).to_contain_text("It stops within a second")
        await page.get_by_role("button", name="Cancel the job").click()
        await page.wait_for_url(f"**/queue/{job}")
        await is_job(page, "cancelled")
        await expect(page.get_by_role("link", name="Resume", exact=True)).to_be_visible()


async def test_every_action_was_done(board: Dashboard) -> None:
    """Comes last, and says what the tests above leave out."""
    assert board.recorder.left == set()
