"""Agents and what they know, in a real browser: each action of their pages once, on a real Maestro."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.acceptance.test_compaction import FACTS, FILLER, ROUNDS, SMALL_MODEL, SUMMARY
from tests.support.dashboard import Dashboard, dashboard
from tests.support.desk import AGENTS, CONVERSATIONS, MEMORY, SKILLS, TOKENS, Desk, desk, fill
from tests.support.populated import HOSTILE, KEY
from tests.support.skill_texts import skill_text

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard-things")]

VOICE = "[name=voice]"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("things")) as opened:
        yield opened


async def ask(at: Desk, channel: str, text: str) -> str:
    """Say something in a channel, and return the answer."""
    async with at.at.instance.client(channel, user_name="Pam", api_key=KEY) as client:
        return await client.ask(text)


async def test_an_agent_is_made_given_a_channel_changed_and_put_away(board: Dashboard) -> None:
    async with desk(board, AGENTS, refusals=(409,)) as at:
        await make_agent(at)
        await give_channel(at)
        await change_agent(at)
        await rest_and_return(at)
        await at.press("Free web/atrium")
        await at.said("The channel was unbound.")
        await put_away(at)


async def make_agent(at: Desk) -> None:
    await at.open("/agents")
    await at.follow("Create an agent")
    texts = {"name": f"Grace {HOSTILE}"[:64], "description": HOSTILE, "voice": "warm", "quirks": HOSTILE}
    await fill(at.page.locator("#edit"), slug="grace", role="assistant", **texts)
    await at.press("Create")
    await at.said("The agent was created")


async def give_channel(at: Desk) -> None:
    await at.unfold("Bind a channel")
    await fill(at.page.locator("#bind form"), platform="web", channel="atrium")
    await at.press("Bind")
    await at.said("The channel is bound to this agent")
    await expect(at.row("web/atrium")).to_be_visible()
    assert await ask(at, "atrium", "who has this channel") == "answer to: who has this channel"
    [job] = at.at.instance.jobs("atrium")
    [agent] = at.at.instance.query("SELECT slug FROM agents WHERE id = ?", job["agent_id"])
    assert agent["slug"] == "grace"


async def change_agent(at: Desk) -> None:
    """Change it from two windows at once: the second is told, and nothing that it typed is lost."""
    other = await at.page.context.new_page()
    await other.goto(f"{at.at.home}/agent/grace")
    await other.locator(VOICE).fill("curt")
    await at.open("/agent/grace")
    await fill(at.page.locator("#edit"), voice="dry", reason="too warm")
    await at.press("Save")
    await at.said("The agent was saved")
    await other.get_by_role("button", name="Save", exact=True).click()
    await expect(other.get_by_role("alert")).to_be_visible()
    await expect(other.locator(VOICE)).to_have_value("curt")
    await other.close()
    await at.follow("History")
    await expect(at.row("too warm")).to_contain_text("voice")
    await at.follow("Version 1")
    await at.follow("Compared with the current version")
    await expect(at.page.locator(".diff ins")).to_have_text("warm")
    await at.press("Roll back to version 1")
    await at.said("The agent was rolled back to that version")
    await expect(at.page.locator(VOICE)).to_have_value("warm")


async def rest_and_return(at: Desk) -> None:
    await at.press("Pause")
    await at.said("The agent is paused")
    await at.press("Make active")
    await at.said("The agent is active")


async def put_away(at: Desk) -> None:
    """Archive and restore one that spoke, which cannot be removed, and remove one that never did."""
    await at.unfold("More")
    await at.press("Archive")
    await at.said("The agent is archived")
    await at.unfold("More")
    await at.press("Delete permanently")
    await expect(at.page.get_by_role("alert")).to_be_visible()
    await at.press("Restore")
    await at.said("The agent is active")
    await at.at.make("/agents", slug="passing", name="Passing")
    await at.open("/agent/passing")
    await at.unfold("More")
    await at.press("Archive")
    await at.unfold("More")
    await at.press("Delete permanently")
    await at.page.wait_for_url("**/agents")
    await at.page.get_by_label("State").select_option("archived")
    await at.press("Show")
    await at.has("No agent fits.")


async def test_an_agent_is_told_facts_and_forgets_them(board: Dashboard) -> None:
    async with desk(board, MEMORY, refusals=(409,)) as at:
        await at.at.make("/agents", slug="elephant", name="Elephant")
        await at.open("/memory?agent=elephant")
        await at.has("No facts yet.")
        for words, outcome in (
            ("Grace likes oolong", True),
            ("The office is in Lyon", True),
            ("Grace likes oolong", False),
        ):
            await at.unfold("Add a fact")
            await fill(at.page.locator("#tell form"), content=f"{words} {HOSTILE}")
            await at.press("Add")
            await (at.said("The fact was added") if outcome else at.warned("has the same content already"))
        await expect(at.page.locator("#tell textarea")).to_have_value(f"Grace likes oolong {HOSTILE}")
        await at.follow("user preference 2")
        await expect(at.page.locator("#facts tbody tr")).to_have_count(2)
        await change_facts(at)
        await keep_values(at)
        await at.unfold("More")
        await at.press("Forget everything")
        await at.said("All facts and states of the agent were deleted.")
        await at.has("No facts yet.")


async def change_facts(at: Desk) -> None:
    await at.open("/memory?agent=elephant&q=oolong")
    await expect(at.row("Lyon")).to_have_count(0)
    row = at.row("Grace likes oolong")
    await at.unfold("Change", row)
    await fill(row, content="Grace likes sencha", confidence="0.5")
    await at.press("Save", row)
    await at.said("The fact was changed.")
    await at.has("No fact matches.")
    await at.open("/memory?agent=elephant")
    await expect(at.row("Grace likes sencha")).to_contain_text("50 %")
    await at.press(re.compile("^Make fact"), at.row("Grace likes sencha"))
    await expect(at.page.locator("#sticky")).to_contain_text("Grace likes sencha")
    row = at.row("Lyon")
    await at.unfold("Forget", row)
    await at.press(re.compile("^Forget fact"), row)
    await at.said("The entry was deleted.")
    await expect(at.row("Lyon")).to_have_count(0)


async def keep_values(at: Desk) -> None:
    for key in ("topic", "mood"):
        await at.unfold("Store a value")
        await fill(at.page.locator("#keep form"), key=key, value=HOSTILE)
        await at.press("Store")
        await at.said("The value was stored.")
    row = at.row("topic")
    await at.unfold("Change", row)
    await fill(row, value="the ships of Lyon")
    await at.press("Save", row)
    await expect(at.row("the ships of Lyon")).to_be_visible()
    row = at.row("mood")
    await at.unfold("Forget", row)
    await at.press("Forget mood for good", row)
    await expect(at.row("mood")).to_have_count(0)


async def test_a_skill_is_added_tried_changed_and_deleted(board: Dashboard) -> None:
    async with desk(board, SKILLS, refusals=(409,)) as at:
        for refused in (False, True):
            await at.open("/skills")
            await at.follow("Add a skill")
            await fill(at.page.locator("#edit"), text=skill_text("brewing", "brew", body=f"Warm the pot. {HOSTILE}"))
            await at.press("Add it")
            await (at.warned("brewing") if refused else at.said("The skill is used"))
        await ask(at, "kitchen", "brew a pot")
        [asked] = at.at.instance.llm.matching("brew a pot")
        assert any("Warm the pot." in text for text in asked.texts)
        await at.open("/skills/brewing")
        await at.press("Disable")
        await at.said("The skill is disabled")
        await at.press("Enable")
        await at.said("The skill is enabled: messages can trigger it again.")
        await at.unfold("Change the file")
        await fill(at.page.locator("#edit"), text=skill_text("brewing", "brew", body="Warm the cups."))
        await at.press("Save")
        await expect(at.page.locator("pre")).to_have_text("Warm the cups.")
        await try_skill(at)
        await at.open("/skills/brewing")
        await at.unfold("More")
        await at.press("Delete the file")
        await at.said("The skill's file was deleted.")
        await expect(at.page.locator("#skill-brewing")).to_have_count(0)


async def try_skill(at: Desk) -> None:
    await at.open("/skills?q=brewing&source=own")
    await expect(at.page.locator("#main tr[data-row]")).to_have_count(1)
    await at.unfold("Try a message")
    await fill(at.page.locator("#try form"), message=f"please brew {HOSTILE}")
    await at.press("Try it")
    await expect(at.page.locator("#tried").get_by_role("row").filter(has_text="brewing")).to_contain_text("yes")


async def test_a_token_is_made_shown_once_and_revoked(board: Dashboard) -> None:
    async with desk(board, TOKENS) as at:
        await at.open("/agents/tokens")
        await at.page.locator("#make [name=agent]").select_option("ada")
        await fill(at.page.locator("#make"), name="bench")
        await at.press("Create a token")
        await at.said("The new token of ada")
        token = await at.page.locator("code.secret").inner_text()
        await at.open("/agents/tokens")
        assert token not in await at.page.content()
        row = at.row("bench")
        await expect(row).to_contain_text(f"ends in {token[-4:]}")
        await at.unfold("Revoke", row)
        await at.press(re.compile("^Revoke for good"), row)
        await expect(at.row("bench")).to_have_count(0)


async def test_a_conversation_is_found_taken_along_ended_and_deleted(board: Dashboard) -> None:
    async with desk(board, CONVERSATIONS) as at:
        async with at.at.instance.client("zoo", user_name="Pam", api_key=KEY) as client:
            await client.ask(f"the zebra sleeps {HOSTILE}")
            await client.ask("and the lion eats")
        await at.open("/conversations")
        await at.page.get_by_role("searchbox").fill("zebra sleeps")
        await at.press("Show")
        await expect(at.page.locator("#main tr[data-row]")).to_have_count(1)
        await at.follow("Pam")
        await at.page.get_by_role("searchbox").fill("ZEBRA")
        await at.press("Search")
        await expect(at.page.locator("mark").first).to_have_text("zebra")
        await at.follow("Show it there")
        await at.has("and the lion eats")
        await at.unfold("More")
        assert "the zebra sleeps" in await at.download("Download as Markdown")
        assert '"messages"' in await at.download("Download as JSON")
        await at.press("End this conversation, as /new does")
        await expect(at.page.locator(".head .tag")).to_have_text("closed")
        await at.unfold("More")
        await at.follow("Delete…")
        await at.has("Not deleted")
        await at.press("Delete permanently")
        await at.said("The conversation was deleted")
        assert at.at.instance.query("SELECT id FROM messages WHERE content LIKE '%zebra%'") == []


async def test_a_compacted_conversation_is_read_from_its_beginning(board: Dashboard) -> None:
    async with desk(board, frozenset()) as at:
        at.at.instance.llm.script(FACTS, reply="[]")
        at.at.instance.llm.script(SUMMARY, reply=f"They counted. {HOSTILE}")
        await at.at.make("/agents", slug="small", model=SMALL_MODEL)
        await at.at.make("/bindings", agent="small", platform="web", channel="long")
        async with at.at.instance.client("long", user_name="Pam", api_key=KEY) as client:
            for number in range(ROUNDS + 1):
                await client.ask(f"number-{number} {FILLER}")
            summary = await open_summary(at)
            await client.ask("one more")
            await at.has("answer to: one more")
            await expect(summary).to_have_attribute("open", "")


async def open_summary(at: Desk) -> Locator:
    """Read the first summary, and what was compacted into it."""
    [compaction] = await at.at.instance.until("SELECT id, conversation_id FROM compactions ORDER BY id LIMIT 1")
    await at.open(f"/conversations/{compaction['conversation_id']}")
    summary = at.page.locator(f"#summary-{compaction['id']}")
    await summary.locator("summary").click()
    await expect(summary).to_contain_text(f"They counted. {HOSTILE}")
    await at.has("number-0")
    await expect(at.main.locator("li.said-line").first.locator(".tag")).to_have_text("compacted")
    return summary
