"""What begins work, what is set and what it costs, in a real browser: each action of these pages once."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.support.dashboard import Dashboard, dashboard
from tests.support.desk import ACCOUNTS, SCHEDULES, SETTINGS, WEBHOOKS, WITHOUT_SCRIPT, Desk, desk, fill
from tests.support.hooks import signature
from tests.support.populated import HOSTILE, KEY, MARKUP

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-operation")]

SPARE_KEY = "sk-the-key-of-the-spare-account-0000-8765"
LIMIT = "routing.messagesPerMinute"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("operation")) as opened:
        yield opened


# Schedules


async def test_something_is_planned_run_made_up_for_and_removed(board: Dashboard) -> None:
    async with desk(board, SCHEDULES, refusals=(400,)) as at:
        ref = await plan(at)
        line = at.page.locator(f"#{ref}")
        await at.follow(f"Edit {ref}")
        await fill(at.page.locator("#plan"), prompt=f"Sum it up. {HOSTILE}")
        await at.press("Save")
        await expect(line).to_contain_text("Sum it up.")
        await at.press(f"Pause {ref}")
        await expect(line.locator(".tag")).to_have_text("paused")
        await at.press(f"Resume {ref}")
        await expect(line.locator(".tag")).to_have_text("active")
        await at.press(f"Run {ref} now")
        await at.at.instance.ended("digest", "completed")
        await make_up(at, ref)
        await at.open("/schedules?kind=cron&agent=ada&state=active")
        await at.unfold("More", line)
        await at.press(f"Remove {ref}")
        await expect(line).to_have_count(0)


async def plan(at: Desk) -> str:
    """Plan something after a time that never comes was refused; return its short name."""
    await at.open("/schedules")
    await at.unfold("Add a schedule")
    form = at.page.locator("#plan")
    await form.locator("[name=agent]").select_option("ada")
    await fill(form, schedule="0 0 30 2 *", channel="digest", prompt=HOSTILE)
    await at.press("Add schedule")
    await expect(at.page.get_by_role("alert")).to_be_visible()
    await expect(form.locator("[name=prompt]")).to_have_value(HOSTILE)
    await fill(form, schedule="0 * * * *")
    await expect(at.page.locator("#preview li")).to_have_count(5)
    await at.press("Add schedule")
    line = at.page.locator("tbody").filter(has_text="web/digest")
    return await line.locator("th small").inner_text()


async def make_up(at: Desk, ref: str) -> None:
    """Begin the runs of the last two hours, after those that had none are shown."""
    now = datetime.now(UTC)
    await at.follow(f"Backfill missed runs of {ref}")
    first = (now - timedelta(hours=2, minutes=now.minute + 5)).strftime("%Y-%m-%d %H:%M")
    last = (now - timedelta(hours=1, minutes=now.minute - 5)).strftime("%Y-%m-%d %H:%M")
    await at.page.get_by_label("From (UTC)").fill(first)
    await at.page.get_by_label("To (UTC)").fill(last)
    await at.press("Preview")
    await expect(at.page.locator("ol.times li")).to_have_count(2)
    await at.press("Begin 2 runs")
    await at.said("The missed runs start now")
    await at.at.instance.ended("digest", "completed", 3)


async def test_times_are_shown_without_a_script(board: Dashboard) -> None:
    async with desk(board, WITHOUT_SCRIPT, java_script_enabled=False) as at:
        await at.open("/schedules")
        await at.unfold("Add a schedule")
        await fill(at.page.locator("#plan"), schedule="every 2h", prompt=HOSTILE)
        await at.press("Show its next five times")
        await expect(at.page.locator("#preview li")).to_have_count(5)
        await expect(at.page.locator("#plan [name=prompt]")).to_have_value(HOSTILE)


# Webhooks


async def test_a_webhook_takes_deliveries_until_it_is_switched_off(board: Dashboard) -> None:
    async with desk(board, WEBHOOKS) as at:
        await at.open("/webhooks")
        await at.unfold("Add a webhook")
        form = at.page.locator("#hook")
        await form.locator("[name=agent]").select_option("ada")
        await fill(form, path="pulse", prompt_template="Build {{payload.build}} " + MARKUP, channel="pulse")
        await at.press("Add")
        await at.said("pulse is ready for deliveries")
        secret = await at.page.locator("code.secret").inner_text()
        assert await deliver(at, secret) == 202
        await at.at.instance.ended("pulse", "completed")
        await change_webhook(at, secret)
        line = at.page.locator("#webhook-pulse")
        await at.unfold("More", line)
        await at.press("Remove pulse")
        await expect(line).to_have_count(0)


async def deliver(at: Desk, secret: str) -> int:
    """Send a signed delivery to the address on the page, and return its status."""
    address = await at.page.locator("code", has_text="/hooks/pulse").first.inner_text()
    body = json.dumps({"build": HOSTILE}).encode()
    async with httpx.AsyncClient() as sender:
        number = len(at.at.instance.llm.requests)
        headers = signature(body, f"delivery-{number}-{secret[-4:]}", secret=secret)
        return (await sender.post(address, content=body, headers=headers)).status_code


async def change_webhook(at: Desk, secret: str) -> None:
    line = at.page.locator("#webhook-pulse")
    await at.open("/webhooks")
    await at.follow("Edit pulse")
    await fill(at.page.locator("#hook"), name="Builds", per_minute="30")
    await at.press("Save")
    await expect(line).to_contain_text("Builds")
    await at.press("Disable pulse")
    await expect(line).to_contain_text("disabled")
    assert await deliver(at, secret) >= 400
    await at.press("Enable pulse")
    await expect(line).to_contain_text("enabled")
    await at.unfold("More", line)
    await at.press(re.compile("^Make another secret for pulse"))
    await at.said("pulse is ready for deliveries")
    other = await at.page.locator("code.secret").inner_text()
    assert await deliver(at, secret) == 401
    assert await deliver(at, other) == 202
    await at.at.instance.ended("pulse", "completed", 2)
    await at.open("/webhooks")
    assert other not in await at.page.content()


# Settings and accounts


async def limit(at: Desk) -> object:
    """Return what the API says that holds."""
    items = (await at.at.http.get("/api/settings")).json()["items"]
    return next(one["value"] for one in items if one["key"] == LIMIT)


async def test_a_setting_is_changed_while_it_runs_and_reset(board: Dashboard) -> None:
    async with desk(board, SETTINGS, refusals=(400,)) as at:
        before = await limit(at)
        await at.open(f"/settings?q={LIMIT}")
        await at.follow(f"Change {LIMIT}")
        value = at.page.get_by_label(LIMIT, exact=True)
        await value.fill("seven")
        await at.press("Set it")
        await expect(at.page.locator("#wrong")).to_be_visible()
        await expect(value).to_have_value("seven")
        assert await limit(at) == before
        await value.fill("77")
        await at.press("Set it")
        await at.said(f"{LIMIT} is 77 now")
        assert await limit(at) == 77
        await at.press(f"Reset {LIMIT}")
        await at.said(f"{LIMIT} is {before} now")
        assert await limit(at) == before


async def test_an_account_is_added_asked_first_stopped_and_removed(board: Dashboard) -> None:
    async with desk(board, ACCOUNTS, refusals=(400,)) as at:
        await at.open("/accounts")
        await at.unfold("Add an account")
        form = at.page.locator("#add-account form")
        base = at.at.instance.llm.base_url("openai")
        await fill(form, name="spare", provider="openai", model="gpt-4o-mini", base_url=base, priority="soon")
        await at.press("Add it", form)
        await at.warned("priority")
        await expect(form.locator("[name=base_url]")).to_have_value(base)
        await fill(form, api_key=SPARE_KEY, priority="0")
        await at.press("Add it", form)
        await at.said("The entry was added.")
        row = at.page.locator("#account-spare")
        await expect(row).to_contain_text(f"ends in {SPARE_KEY[-4:]}")
        await asked_with(at, SPARE_KEY, "who is asked first")
        await at.open("/accounts")
        await expect(row).to_contain_text("1 calls")
        assert SPARE_KEY not in await at.page.content()
        await switch_account(at, row)


async def asked_with(at: Desk, key: str, text: str) -> None:
    """Say something, and expect that the provider was shown this key."""
    async with at.at.instance.client("", user_name="Pam", api_key=KEY) as client:
        await client.ask(text)
    assert key in at.at.instance.llm.matching(text)[0].key


async def switch_account(at: Desk, row: Locator) -> None:
    await at.press("Disable spare")
    await at.said("The entry was disabled.")
    await asked_with(at, "key-of-the-model-account", "who is asked now")
    await at.press("Enable spare")
    await at.said("The entry was enabled.")
    await at.follow("Change spare")
    await fill(at.page.locator("#add-account form"), priority="9", requests_per_minute="60")
    await at.press("Save")
    await at.said("The entry was changed.")
    await expect(row).to_contain_text("priority 9")
    await at.unfold("Remove", row)
    await at.press("Remove spare")
    await at.said("The entry was removed.")
    await expect(row).to_have_count(0)


# Usage, the audit log and the overview


async def test_usage_is_filtered_and_taken_along(board: Dashboard) -> None:
    async with desk(board, frozenset()) as at:
        async with at.at.instance.client("", user_name="Pam", api_key=KEY) as client:
            await client.ask("what does it cost")
        await at.open("/usage")
        await expect(at.page.get_by_role("heading", name="Cost by day and agent")).to_have_count(1)
        await at.follow("7 days")
        await at.page.get_by_label("Group by").select_option("model")
        await fill(at.page.get_by_role("search"), agent="conductor")
        await at.press("Show")
        await expect(at.page.get_by_role("table", name="Usage by model")).to_contain_text("gpt-4o-mini")
        by_model = await at.download("By model as CSV")
        assert "gpt-4o-mini" in by_model
        by_day = await at.download("By day as CSV")
        assert str(datetime.now(UTC).date()) in by_day or str(datetime.now(UTC).date() - timedelta(days=1)) in by_day
        await fill(at.page.get_by_role("search"), agent=HOSTILE)
        await at.press("Show")
        await at.has("No model was called for this")
        await at.follow("All")
        await expect(at.page.get_by_role("table", name="Usage by agent")).to_contain_text("conductor")


async def test_the_audit_log_is_filtered_and_taken_along(board: Dashboard) -> None:
    async with desk(board, frozenset(), refusals=(400,)) as at:
        await at.at.make("/agents", slug="witness", name=MARKUP)
        await at.open("/audit")
        await at.page.get_by_label("Target").fill("witness")
        await at.press("Show")
        await expect(at.page.locator("tr[data-row]")).to_have_count(1)
        await at.follow("agent.create")
        await expect(at.page.get_by_label("Action", exact=True)).to_have_value("agent.create")
        lines = (await at.download("Download as CSV")).splitlines()
        assert len(lines) == 2
        assert "agent.create" in lines[1]
        assert "witness" in lines[1]
        await at.page.get_by_label("Since (UTC)").fill("some day")
        await at.press("Show")
        await at.warned("since")
        await at.follow("All")
        await at.page.get_by_role("searchbox").fill("nothing like this was ever done")
        await at.press("Show")
        await at.has("Nothing was done that fits.")


async def test_every_link_of_the_overview_leads_to_something(board: Dashboard) -> None:
    async with desk(board, frozenset()) as at:
        await at.open("/")
        links = await at.page.locator("a[href]").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
        assert {"/queue?status=running", "/questions", "/usage", "/accounts#people"} <= set(links)
        for address in sorted({one.partition("#")[0] for one in links if one.startswith("/")} - {""}):
            answer = await at.page.context.request.get(at.at.home + address)
            assert answer.status == 200, address
        await at.follow("1 failed")
        await at.has("break it")
        await at.open("/")
        await at.follow("Group and resume them")
        await at.has("The provider refused the request")
        await at.open("/")
        await at.page.locator("#connector-web-default").get_by_role("link", name="web", exact=True).click()
        await expect(at.page.locator("#connector-web-default:target")).to_be_visible()
